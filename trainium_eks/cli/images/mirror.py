"""``trn image mirror``: copies of foreign images in the stack's repository."""

from typing import Annotated

import typer

from trainium_eks.cli.images import building
from trainium_eks.cli.images import in_cluster as jobs
from trainium_eks.cli.images.options import InCluster
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, CommandError
from trainium_eks.jobs.images import images
from trainium_eks.jobs.images.engines import EngineError
from trainium_eks.model.catalogue.training_images import reference_problems

app = App()


@app.command(example="trn image mirror public.ecr.aws/docker/library/busybox:1.37.0")
@with_cluster_options
def mirror(
    source: Annotated[str, typer.Argument(help="An image with its registry: public.ecr.aws/neuron/…:<tag>.")],
    tag: Annotated[
        str | None, typer.Option("--tag", help="Tag in the repository; default: mirror-<image's name>.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="skopeo, crane, docker, podman or finch; default: skopeo or crane.")
    ] = None,
    in_cluster: InCluster = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Copy somebody's image into the stack's repository, as for clusters without a way out.

    By skopeo or crane: all platforms, with their digests.
    Layers in the repository are not copied again, so an interrupted copy continues where it stopped.

    Exit code: 0; 1 when it cannot be copied; 2 for wrong usage.
    """
    repository = building.repository_of(building.outputs_of(cluster))
    found = reference_problems(source, "SOURCE")
    problem = images.tag_problem(tag) if tag is not None else None
    if problem:
        found.append(problem)
    if found:
        raise CommandError(WRONG_USAGE, "the image cannot be copied", found, spell=str)
    tag = tag or images.mirror_tag(source)
    reference = f"{repository.url}:{tag}"
    digest = repository.digest(tag)
    if digest:
        building.report(cluster, reference, "is there already", digest)
        return
    if in_cluster:
        jobs.mirror(cluster, repository, source, reference)
    else:
        with building.opened_engine(engine, copies=True) as copier:
            building.log_in(copier, repository)
            try:
                copier.copy(source, reference)
            except EngineError as error:
                raise CommandError(FAILED, f"{source} is not copied: {error}") from None
    building.report(cluster, reference, "copied", repository.digest(tag))
