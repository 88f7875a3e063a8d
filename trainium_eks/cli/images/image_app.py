"""The commands of ``trn image`` and their options. The work is in :mod:`trainium_eks.cli.images.image`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import Directory, Json, Outputs, Stack, with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions

if TYPE_CHECKING:
    from trainium_eks.cli.images.image import ImageOptions

app = App(help="The training image: build, push, mirror.", no_args_is_help=True)

Target = Annotated[
    str | None,
    typer.Option("--for", metavar="TARGET", help="trn1, trn2, jax, cuda or cpu; default: the first group's."),
]
Base = Annotated[str | None, typer.Option("--base", metavar="IMAGE", help="Start from this image, pinned by its tag.")]
Requirements = Annotated[
    Path | None, typer.Option("--requirements", metavar="FILE", help="Python packages instead of ours, for pip.")
]
File = Annotated[
    Path | None, typer.Option("--file", metavar="DOCKERFILE", help="Your own; it is given BASE and our files, too.")
]
Context = Annotated[
    Path | None, typer.Option("--context", metavar="DIR", help="A directory whose files the Dockerfile may copy.")
]
Tag = Annotated[str | None, typer.Option("--tag", help="Instead of the one that follows from the content.")]
Engine = Annotated[
    str | None, typer.Option("--engine", help="docker, podman or buildah; default: the first that works.")
]
InCluster = Annotated[
    bool, typer.Option("--in-cluster", help="Do it in a Job on the CPU pool, without an engine on this machine.")
]


@app.command(example="trn image build --for trn1")
def build(
    target: Target = None,
    base: Base = None,
    requirements: Requirements = None,
    file: File = None,
    context: Context = None,
    tag: Tag = None,
    engine: Engine = None,
    stack: Stack = "",
    outputs: Outputs = None,
    as_json: Json = False,
    directory: Directory = None,
) -> None:
    """Build the training image here: a framework's image by the stack's instance type, and trainium_workloads.

    The tag follows from the image's contents, so an image is built only once.

    Exit code: 0; 1 when it cannot be built; 2 for wrong usage.
    """
    from trainium_eks.cli.images import image as command

    cluster = ClusterOptions(stack, outputs=outputs, directory=directory, as_json=as_json)
    raise typer.Exit(command.build(_options(cluster, target, base, requirements, file, context, tag, engine)))


@app.command(example="trn image push --for trn1")
@with_cluster_options
def push(
    target: Target = None,
    base: Base = None,
    requirements: Requirements = None,
    file: File = None,
    context: Context = None,
    tag: Tag = None,
    engine: Engine = None,
    in_cluster: InCluster = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Bring the training image to the stack's repository; built first if need be, and nothing if it is there.

    Exit code: 0; 1 when it cannot be built or pushed; 2 for wrong usage.
    """
    from trainium_eks.cli.images import image as command

    options = _options(cluster, target, base, requirements, file, context, tag, engine)
    raise typer.Exit(command.push(options, in_cluster=in_cluster))


@app.command(example="trn image mirror public.ecr.aws/docker/library/busybox:1.37.0")
@with_cluster_options
def mirror(
    source: Annotated[str, typer.Argument(help="An image with its registry: public.ecr.aws/neuron/…:<tag>.")],
    tag: Annotated[
        str | None, typer.Option("--tag", help="In the repository; default: mirror-<what it is called>.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="skopeo, crane, docker, podman or buildah; default: skopeo or crane.")
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
    from trainium_eks.cli.images import mirror as command

    raise typer.Exit(
        command.mirror(command.MirrorOptions(cluster, source, tag=tag, engine=engine, in_cluster=in_cluster))
    )


def _options(
    cluster: ClusterOptions,
    target: str | None,
    base: str | None,
    requirements: Path | None,
    file: Path | None,
    context: Path | None,
    tag: str | None,
    engine: str | None,
) -> "ImageOptions":
    from trainium_eks.cli.images.image import ImageOptions

    return ImageOptions(
        cluster,
        target=target,
        base=base,
        requirements=requirements,
        file=file,
        context=context,
        tag=tag,
        engine=engine,
    )
