"""``trn image``: the training image, built on this machine or by a Job in the cluster, and pushed to the stack's
repository."""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.aws.ecr import Repository
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.progress import shown_progress
from trainium_eks.cli.shared.with_cluster_options import cluster_options_without, with_cluster_options
from trainium_eks.client.cluster_access import find_stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import open_session
from trainium_eks.jobs.data.tree import NotInsideError
from trainium_eks.jobs.images import engines, image_jobs, images
from trainium_eks.jobs.images.engines import Engine
from trainium_eks.jobs.images.images import Context, ImageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.options import Option
from trainium_eks.kube.api import ApiError
from trainium_eks.local.images.images import workloads
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.problems import Problem

app = App(help="The training image: build and push it.", no_args_is_help=True)


@dataclass(frozen=True)
class ImageOptions:
    """The description of an image, and the engine that builds it."""

    target: Annotated[
        str | None,
        Option("--for", "Target: trn1, trn2, jax, cuda or cpu; default: that of the first node group.", "TARGET"),
    ] = None
    base: Annotated[str | None, Option("--base", "Start from this image, pinned by its tag.", "IMAGE")] = None
    requirements: Annotated[
        Path | None, Option("--requirements", "Requirements file with other Python packages.", "FILE")
    ] = None
    file: Annotated[Path | None, Option("--file", "Your own Dockerfile; it gets BASE and our files.", "DOCKERFILE")] = (
        None
    )
    context: Annotated[Path | None, Option("--context", "Directory whose files the Dockerfile may copy.", "DIR")] = None
    tag: Annotated[str | None, Option("--tag", "Tag; default: a digest of the image's contents.")] = None
    engine: Annotated[
        str | None, Option("--engine", "Engine: docker, podman or finch; default: the first that works.")
    ] = None


@app.command(short_help="Build the training image on this machine.", example="trn image build --for trn1")
@cluster_options_without("namespace", "kubeconfig", "no_color")
def build(options: ImageOptions, *, cluster: ClusterOptions) -> None:
    """Build the training image here: a framework's image by the stack's instance type, and trainium_workloads.

    The tag follows from the image's contents, so an image is built only once.

    Exit code: 0; 1 when it cannot be built; 2 for wrong usage.
    """
    planned = plan(options, cluster)
    with opened_engine(options.engine) as engine:
        did = build_here(engine, planned)
    report(cluster, planned.reference, "built" if did else "was built already")


@app.command(short_help="Bring the training image to the stack's repository.", example="trn image push --for trn1")
@with_cluster_options
def push(
    options: ImageOptions,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="Work in a Job on the CPU pool, without an engine on this machine.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Bring the training image to the stack's repository; built first if need be, and nothing if it is there.

    Exit code: 0; 1 when it cannot be built or pushed; 2 for wrong usage.
    """
    planned = plan(options, cluster)
    digest = planned.repository.digest(planned.tag)
    if digest:
        if options.tag:
            raise CommandError(
                f"{planned.reference} is there already ({digest}), and tags of this repository never move: "
                "choose another --tag, or leave it out, for then it follows from the content",
            )
        report(cluster, planned.reference, "is there already", digest)
        return
    if in_cluster:
        build_in_cluster(cluster, planned)
    else:
        with opened_engine(options.engine) as engine:
            build_here(engine, planned)
            engine.login(planned.repository.login())
            engine.push(planned.reference)
    report(cluster, planned.reference, "pushed", planned.repository.digest(planned.tag))


@dataclass(frozen=True)
class BuildableImage:
    """An image that can be built."""

    request: ImageRequest
    made_of: Context
    repository: Repository
    tag: str

    @property
    def reference(self) -> str:
        """Return repository and tag."""
        return f"{self.repository.url}:{self.tag}"


def plan(options: ImageOptions, cluster: ClusterOptions) -> BuildableImage:
    """Return the image to build, with its repository and tag."""
    outputs = outputs_of(cluster)
    request = images.request_for(outputs, options.target, options.base)
    if isinstance(request, Problem):
        raise UsageError("the image to build is not clear", [request], spell=str)
    problem = images.tag_problem(options.tag) if options.tag is not None else None
    if problem:
        raise UsageError("the image cannot have this tag", [problem], spell=str)
    if options.context is not None and not options.context.is_dir():
        raise UsageError(f"--context {options.context} is not a directory")
    texts = {"requirements": _text(options.requirements, "--requirements"), "dockerfile": _text(options.file, "--file")}
    try:
        made_of = images.context(request, workloads(), **texts, own_files=options.context)
    except (NotInsideError, OSError) as refused:
        raise UsageError(f"--context {options.context}: {refused}") from None
    if not outputs.image_repository:
        title = "the stack has no image repository: take `imageRepository: null` out of its config, and update it"
        raise UsageError(title)
    repository = Repository(outputs.image_repository)
    return BuildableImage(request, made_of, repository, options.tag or images.tag(request, made_of))


def outputs_of(cluster: ClusterOptions) -> StackOutputs:
    """Return the stack's outputs; a :class:`CommandError` for a local cloud, which has no container images."""
    source = find_stack(cluster.stack, cluster.outputs, cluster.directory)
    if source.paths is not None:
        raise UsageError(
            "on the local cloud images are environments of this machine, without an engine or a registry:\n"
            "  trn local images make torch                         plain PyTorch\n"
            "  trn local images make NAME --requirements FILE      your own packages",
        )
    return source.outputs


@contextmanager
def opened_engine(asked: str | None) -> Iterator[Engine]:
    """Yield the engine with that name, or the first that works, with a temporary file for logins."""
    if asked is not None and asked not in engines.ENGINES:
        raise UsageError(f"--engine {asked} is not one of {', '.join(engines.ENGINES)}")
    with tempfile.TemporaryDirectory(prefix="trn-login-") as directory:
        yield engines.find(asked, Path(directory, "auth.json"))


def build_here(engine: Engine, planned: BuildableImage) -> bool:
    """Build an image that the engine does not hold; return whether it was built."""
    if engine.has(planned.reference):
        return False
    sys.stderr.write(f"Building {planned.reference} from {planned.request.base} with {engine.name}\n")
    with tempfile.TemporaryDirectory(prefix="trn-image-") as directory:
        # Readable for the user that runs the engine.
        os.chmod(directory, 0o755)
        planned.made_of.write(Path(directory))
        engine.build(planned.reference, Path(directory), planned.made_of.arguments)
    return True


def report(cluster: ClusterOptions, reference: str, did: str, digest: str = "") -> None:
    """Print the result."""
    output.answer(cluster, {"image": reference, "state": did, "digest": digest}, f"{reference} {did}")


def _text(file: Path | None, option: str) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from None


def build_in_cluster(cluster: ClusterOptions, planned: BuildableImage) -> None:
    """Build and push an image by a Job on the CPU pool."""
    size = len(planned.made_of.archive())
    if size > image_jobs.MOST_CONTEXT_BYTES:
        raise UsageError(
            f"what the image is built from has {size:,} bytes compressed, and a build in the cluster is sent at most "
            f"{image_jobs.MOST_CONTEXT_BYTES:,}: give a smaller --context, or build with an engine",
        )
    login = planned.repository.login()
    with open_session(cluster) as session:
        name = f"image-{planned.tag.lower().replace('.', '-').replace('_', '-')[:40].strip('-')}-{secrets.token_hex(3)}"
        namespace = session.namespace.name
        job, needs = image_jobs.build_objects(session.namespace, name, planned.reference, planned.made_of, login)
        try:
            batch_jobs.submit(session.api, job, needs)
        except ApiError as error:
            raise CommandError(f"the Job is refused: {error}") from None
        with shown_progress(no_color=cluster.no_color) as shown:
            shown.say(f"Job {name} in {namespace}")
            try:
                end = batch_jobs.follow(
                    session.api, namespace, name, image_jobs.CONTAINER, line=shown.line, waiting=shown.waiting
                )
            except KeyboardInterrupt:
                shown.say(f"The Job {name} is still running; trn cancel {name} ends it")
                raise
    if not end.succeeded:
        why = str(shown.last.get("message") or end.message)
        raise CommandError(
            f"{planned.reference} is not there: {why}; the Job {name} stays for an hour (trn logs {name})"
        )
