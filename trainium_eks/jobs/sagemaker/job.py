"""A SageMaker training job: the model of one, and its problems before AWS sees it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from trainium_eks.jobs.objects import resources
from trainium_eks.jobs.objects.environment import CHECKPOINT_SECONDS
from trainium_eks.jobs.objects.job import DATA, PRECISIONS, TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.objects.token_reference import TOKEN_VARIABLES, TRACKING_TOKENS
from trainium_eks.jobs.submit import planning, refusals, saving
from trainium_eks.jobs.submit.requests import JobRequest
from trainium_eks.model.catalogue.backends import backend_of
from trainium_eks.model.catalogue.instances import InstanceType, near
from trainium_eks.model.catalogue.sagemaker_hosting import ECR_IMAGE, PREFIX
from trainium_eks.model.config.sagemaker import LONGEST_NAME
from trainium_eks.model.outputs import NamespaceOutput, SageMakerOutput, SharedVolumeOutput, StackOutputs
from trainium_eks.model.validation.problems import Problem

CODE_CHANNEL = "code"
"""Channel of the launch script and the workspace."""

RETRIES = 3
"""Default of SageMaker's retries, which follow its own errors and never the script's."""

MOST_RETRIES = 30
LONGEST_HOURS = 28 * 24
"""Longest run of a training job (SageMaker quotas)."""

LONGEST_KEEP_ALIVE = 21_600
"""Longest life of a warm pool after a job, seconds."""

STOP_SECONDS = 120
"""Time between SIGTERM and SIGKILL (SageMaker developer guide, StopTrainingJob)."""

SPOT_CHECKPOINT_SECONDS = 600.0
"""Default interval of checkpoints on Spot instances, which SageMaker takes back at any time."""

_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_ONLY_ON_EKS = (
    *("group", "queue", "priority", "topology", "data", "hf_secret", "cache_set", "precompile"),
    *("kind", "torchx", "rendezvous", "grace", "track_secret", "all_or_nothing"),
)

_INSTEAD = {"data": "a channel brings data: --channel NAME=SOURCE", "group": "name the type: --instance-type"}


@dataclass(frozen=True)
class SageMakerJob:
    """A training job of SageMaker."""

    job: TrainingJob
    """The gang, as on EKS: program, image, nodes, ranks, variables."""
    where: SageMakerOutput
    instance_type: str
    directory: str
    """Directory of checkpoints and models below the prefix: a job of the same ``--name`` goes on there."""
    channels: Mapping[str, str]
    """Channel name to ``s3://…``, or to a path of the file system, ``/<mount name>/…``."""
    volume: SharedVolumeOutput | None

    @property
    def spot(self) -> bool:
        """Whether it takes Spot instances."""
        return self.job.options.spot

    def uri(self, *parts: str) -> str:
        """Return the S3 URI of a part of the job's directory."""
        return "/".join((namespace_uri(self.where, self.job.namespace), self.directory, *parts))


def namespace_uri(where: SageMakerOutput, namespace: str) -> str:
    """Return the S3 URI of the directory of a namespace's jobs."""
    return f"s3://{where.bucket}/{where.prefix}/{namespace}"


def plan(
    request: JobRequest, outputs: StackOutputs, namespace: NamespaceOutput, image: str, unique: str
) -> SageMakerJob | tuple[Problem, ...]:
    """Return the job, or all problems at once."""
    where = outputs.sage_maker
    if where is None:
        fix = "`sageMaker: {}` in the stack's config makes role, network and bucket; docs/sagemaker.md"
        return (Problem("--on", "the stack has no SageMaker training jobs", fix, value="sagemaker"),)
    types = {each.sagemaker_name: each for each in outputs.catalogue.values() if each.sagemaker_name is not None}
    wanted = request.instance_type or (outputs.node_groups[0].instance_type if outputs.node_groups else "")
    name = wanted if wanted.startswith(PREFIX) else f"{PREFIX}{wanted}"
    if name not in types:
        reason = "the catalogue has no such type of SageMaker's trainings"
        good = near(name, types)
        return (Problem("--instance-type", reason, value=wanted, allowed=tuple(sorted(types)), good=good),)
    volume = outputs.shared_volume
    job = _gang(request, namespace, types[name], image, unique)
    channels = {each.partition("=")[0]: _source(each, volume, namespace) for each in request.channel}
    found = [*_problems(request, job), *_channel_problems(request, where, volume)]
    if found:
        return tuple(found)
    directory = request.name or job.name
    return SageMakerJob(job, where, name, directory, channels, volume)


def _gang(
    request: JobRequest, namespace: NamespaceOutput, instance: InstanceType, image: str, unique: str
) -> TrainingJob:
    app = request.name or planning.app_name(request)
    ranks = request.ranks_per_node
    variables = saving.variables(request, None)
    if request.spot:
        variables = {CHECKPOINT_SECONDS: f"{SPOT_CHECKPOINT_SECONDS:g}", **variables}
    return TrainingJob(
        name=f"{namespace.name}-{app}-{unique}",
        app=app,
        program=request.program,
        image=image,
        instance=instance,
        resources=resources.whole_node(instance),
        nodes=1 if request.nodes is None else request.nodes,
        ranks_per_node=resources.allowed_ranks(instance)[-1] if ranks is None else ranks,
        backend=request.backend or backend_of(instance),
        precision=request.precision,  # type: ignore[arg-type] # another one is refused
        options=request,
        env={**variables, **request.variables},
        retries=RETRIES if request.retries is None else request.retries,
        metrics_port=0,
        submission=unique,
        namespace=namespace.name,
        grace_seconds=STOP_SECONDS,
        has_workspace=request.has_workspace,
    )


def _problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    defaults = {each.name: each.default for each in fields(TrainOptions)}
    for name in _ONLY_ON_EKS:
        if getattr(request, name) != defaults[name]:
            option = f"--{name.replace('_', '-')}"
            yield Problem(option, "it is for jobs on EKS", _INSTEAD.get(name, "leave it out, or take --on eks"))
    if not refusals.NAME.fullmatch(job.app) or len(job.name) > LONGEST_NAME:
        most = LONGEST_NAME - len(job.name) + len(job.app)
        yield Problem("--name", refusals.NAME_FORM.format(most), value=job.app, good="train")
    if not request.program.script and not request.program.module:
        yield Problem("", "there is nothing to run", "give --script, --module or --example")
    yield from refusals.program_problems(request)
    if not ECR_IMAGE.fullmatch(job.image):
        yield Problem("--image", "SageMaker pulls images from ECR alone", "push one: trn image push", value=job.image)
    if job.nodes < 1:
        yield Problem("--nodes", "it must be 1 or more", value=job.nodes, good=1)
    elif job.nodes > 1 and not job.instance.has_efa and resources.needs_fabric(job.instance):
        reason = f"{job.instance.name} has no EFA, without which its nodes cannot train together"
        yield Problem("--nodes", reason, value=job.nodes, good=1)
    for each in sorted({*TOKEN_VARIABLES, *TRACKING_TOKENS} & request.variables.keys()):
        reason = "others could read it in the job's script in S3"
        yield Problem("--env", reason, "the container has no network: bring gated models by --channel", value=each)
    allowed = resources.allowed_ranks(job.instance)
    if job.ranks_per_node not in allowed:
        reason, shown = f"a {job.instance.name} takes another number", tuple(map(str, allowed))
        yield Problem("--ranks-per-node", reason, value=job.ranks_per_node, allowed=shown, good=allowed[-1])
    if job.precision not in PRECISIONS[job.backend]:
        reason = f"the backend {job.backend} does not train in it"
        yield Problem("--precision", reason, value=job.precision, allowed=PRECISIONS[job.backend], good="bf16")
    yield from saving.problems(request)
    yield from _limit_problems(request, job)


def _limit_problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    if not 0 <= job.retries <= MOST_RETRIES:
        yield Problem("--retries", f"SageMaker takes 0 to {MOST_RETRIES}", value=job.retries, good=RETRIES)
    if not 0 < request.max_hours <= LONGEST_HOURS:
        yield Problem("--max-hours", f"SageMaker takes up to {LONGEST_HOURS}", value=request.max_hours, good=24)
    if not 0 <= request.keep_alive <= LONGEST_KEEP_ALIVE:
        reason = f"SageMaker takes 0 to {LONGEST_KEEP_ALIVE} seconds"
        yield Problem("--keep-alive", reason, value=request.keep_alive, good=LONGEST_KEEP_ALIVE)
    elif request.keep_alive and request.spot:
        yield Problem("--keep-alive", "there are no warm pools of Spot instances", "leave out one of the two")


def _channel_problems(
    request: JobRequest, where: SageMakerOutput, volume: SharedVolumeOutput | None
) -> Iterator[Problem]:
    seen = {CODE_CHANNEL: "the launch script's"}
    for text in request.channel:
        name, _, source = text.partition("=")
        good = f"train=s3://{where.bucket}/<prefix>"
        if not _CHANNEL.fullmatch(name) or not source:
            yield Problem("--channel", "it is not NAME=SOURCE, with a name in lower case", value=text, good=good)
        elif name in seen:
            yield Problem("--channel", f"the name {name} is {seen[name]} already", "choose another name", value=text)
        elif source.startswith("s3://"):
            if not source.startswith(f"s3://{where.bucket}/"):
                reason = f"the execution role reads the bucket {where.bucket} alone"
                yield Problem("--channel", reason, "copy the data there, or name that bucket", value=text)
        elif ".." in source.split("/"):
            yield Problem("--channel", "it leads out of the team's directory", value=text, good=good)
        elif volume is None:
            yield Problem("--channel", "the stack has no shared volume", "name an S3 prefix", value=text, good=good)
        seen.setdefault(name, "another channel's")


def _source(text: str, volume: SharedVolumeOutput | None, namespace: NamespaceOutput) -> str:
    """Return the source of a channel: an S3 URI, or the path of the team's directory in the file system."""
    source = text.partition("=")[2]
    if source.startswith("s3://") or volume is None:
        return source
    inside = source.removeprefix(DATA).strip("/")
    parts = (volume.mount_name, volume.root.strip("/"), namespace.name, inside)
    return "".join(f"/{part}" for part in parts if part)
