"""Facts that the planning of a job needs: the image, the namespace's jobs, and the capacity."""

import contextlib
import secrets

from trainium_eks.aws.sessions import Aws, AwsError
from trainium_eks.client.notices import say
from trainium_eks.client.session import Session
from trainium_eks.jobs.data import tokens
from trainium_eks.jobs.objects.options import Form, TrainOptions
from trainium_eks.jobs.objects.token_reference import HUB_OPTION, NAME, TRACK_OPTION
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.jobs.submit.requests import Facts
from trainium_eks.kube.api import ApiError, NoSuchKindError
from trainium_eks.local import job_access
from trainium_eks.local.job_access import images
from trainium_eks.model import scraping
from trainium_eks.model.outputs import NodeGroupOutput, StackOutputs
from trainium_eks.model.validation.problems import Problem

_LETTERS = "bcdfghjklmnpqrstvwxz"
_UNIQUE_LENGTH = 5


def unique() -> str:
    """Return five random consonants that make a job's name unique."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_UNIQUE_LENGTH))


def gather(options: TrainOptions, form: Form, session: Session) -> Facts:
    """Return all facts for a request of a job of some form."""
    image, missing, has_torch = image_of(options.image, session)
    api, namespace = session.api, session.namespace.name
    may_submit = cluster_facts.may_submit(api, namespace, form)
    jobs: cluster_facts.Objects = []
    if may_submit:
        # A missing Volcano is an error when the job is submitted; a dry run needs none.
        with contextlib.suppress(NoSuchKindError, ApiError):
            jobs = cluster_facts.volcano_jobs(api, namespace)
    return Facts(
        is_local=session.is_local,
        image=image,
        unique=unique(),
        image_missing=missing,
        image_has_torch=has_torch,
        jobs=cluster_facts.jobs(api, namespace) if may_submit else {},
        services=cluster_facts.services(api, namespace) if may_submit else {},
        compiling=cluster_facts.compiling(jobs),
        staging=cluster_facts.bringing(api, namespace) if options.data and may_submit else {},
        may_submit=may_submit,
        missing_secrets=_missing_secrets(options, session),
        network_layers=cluster_facts.network_layers(api) if options.topology else None,
        # Of the local cloud, where pods share this machine's network, a free port for each job.
        metrics_port=(job_access.free_port_of_pod(paths) if (paths := session.source.paths) else None) or scraping.PORT,
        capacity_ends=_capacity_ends(options, session),
    )


def image_of(wanted: str | None, session: Session) -> tuple[str, Problem | None, bool]:
    """Return the image of a pod, the problem of a missing one, and whether PyTorch is in it."""
    return _local_image(wanted) if session.is_local else registry_image(wanted, session.outputs)


def _missing_secrets(options: TrainOptions, session: Session) -> frozenset[str]:
    names = {HUB_OPTION: options.hf_secret.partition(":")[0], TRACK_OPTION: options.track_secret}
    valid = {option: name for option, name in names.items() if NAME.fullmatch(name)}
    namespace = session.namespace.name
    return frozenset(option for option, name in valid.items() if not tokens.token_exists(session.api, namespace, name))


def _local_image(wanted: str | None) -> tuple[str, Problem | None, bool]:
    """Return the requested environment of this machine, else ``local/torch`` if it exists, else ``local/python``."""
    default = images.find("torch") or images.find(images.PYTHON)
    assert default is not None, "local/python is always there"
    if wanted is None:
        return f"{images.PREFIX}{default.name}", None, default.has_torch
    if not images.is_local(wanted):
        reason = "pods of the local cloud run in images of this machine alone; of others they are only simulated"
        return wanted, Problem("--image", reason, value=wanted, good=f"{images.PREFIX}{default.name}"), True
    found = images.find(wanted)
    if found is None:
        fix = images.how_to_make(wanted)
        return wanted, Problem("--image", "there is no such image on this machine", fix, value=wanted), True
    return wanted, None, found.has_torch


def registry_image(wanted: str | None, outputs: StackOutputs) -> tuple[str, Problem | None, bool]:
    """Return the requested image, else the newest one in the stack's repository, as :func:`image_of` does."""
    aws, repository = Aws(outputs.region), outputs.image_repository or ""
    try:
        if wanted is not None:
            return wanted, aws.image_problem(wanted), True
        newest = aws.newest_image(repository)
    except AwsError as error:
        say(f"warning: {error}; whether the image is there is not known")
        image = wanted or ""
        return image, None if image else _no_image(repository), True
    return newest, None if newest else _no_image(repository), True


def _no_image(repository: str) -> Problem:
    where = f"{repository} holds none that could be the default" if repository else "the stack has no image repository"
    return Problem("--image", where, "build and push one: trn image push; or name it with --image")


def _capacity_ends(options: TrainOptions, session: Session) -> dict[str, str]:
    """Return the end of the group's Capacity Block by its reservation; nothing for other groups."""
    group = planning.find_group(session.outputs, options.group, options.instance_type)
    if not isinstance(group, NodeGroupOutput) or group.capacity != "capacity-block":
        return {}
    if group.ends or session.is_local:
        return {group.reservation: group.ends} if group.ends else {}
    try:
        return {group.reservation: Aws(session.outputs.region).capacity_ends(group.reservation)}
    except AwsError as error:
        say(f"warning: {error}; the job will not know when it ends")
        return {}
