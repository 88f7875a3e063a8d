"""What the commands of ``trn image`` share: the image's contents, the building engine, the repository."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.aws.ecr import Repository
from trainium_eks.cli.images.options import ImageOptions
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client.cluster_access import find_stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import UsageError
from trainium_eks.jobs.data.tree import NotInsideError
from trainium_eks.jobs.images import engines, images
from trainium_eks.jobs.images.engines import Engine
from trainium_eks.jobs.images.images import Context, ImageRequest
from trainium_eks.local.images.images import workloads
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.problems import Problem

SCHEMA_VERSION = 1


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


def build(engine: Engine, planned: BuildableImage) -> bool:
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
    if cluster.as_json:
        data = {"schemaVersion": SCHEMA_VERSION, "image": reference, "state": did, "digest": digest}
        write_json(data)
    else:
        write(f"{reference} {did}\n")


def _text(file: Path | None, option: str) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from None
