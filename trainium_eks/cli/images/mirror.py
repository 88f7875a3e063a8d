"""``trn image mirror``: copies of foreign images in the stack's repository."""

from dataclasses import dataclass

from trainium_eks.cli.images.image import log_in, opened_engine, outputs_of, report, repository_of
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.jobs.images import images
from trainium_eks.jobs.images.engines import EngineError, Runner
from trainium_eks.model.catalogue.training_images import reference_problems


@dataclass(frozen=True)
class MirrorOptions:
    """The options of one call."""

    cluster: ClusterOptions
    source: str
    tag: str | None = None
    engine: str | None = None
    """None for skopeo or crane, the first that is here."""
    in_cluster: bool = False


def mirror(options: MirrorOptions, runner: Runner | None = None) -> int:
    """Copy the image; return the exit code."""
    repository = repository_of(outputs_of(options.cluster))
    found = reference_problems(options.source, "SOURCE")
    problem = images.tag_problem(options.tag) if options.tag is not None else None
    if problem:
        found.append(problem)
    if found:
        raise Failure(WRONG_USAGE, "the image cannot be copied", found, spell=str)
    tag = options.tag or images.mirror_tag(options.source)
    reference = f"{repository.url}:{tag}"
    digest = repository.digest(tag)
    if digest:
        return report(options.cluster, reference, "is there already", digest)
    if options.in_cluster:
        from trainium_eks.cli.images import cluster_builds

        cluster_builds.mirror(options.cluster, repository, options.source, reference)
    else:
        with opened_engine(options.engine, runner, copies=True) as engine:
            log_in(engine, repository)
            try:
                engine.copy(options.source, reference)
            except EngineError as error:
                raise Failure(FAILED, f"{options.source} is not copied: {error}") from None
    return report(options.cluster, reference, "copied", repository.digest(tag))
