"""Options of ``trn image build`` and ``push``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.jobs.objects.options import Option

InCluster = Annotated[
    bool, typer.Option("--in-cluster", help="Work in a Job on the CPU pool, without an engine on this machine.")
]


@dataclass(frozen=True)
class ImageOptions:
    """The description of an image, and the engine that builds it."""

    target: Annotated[
        str | None,
        Option(
            "--for",
            metavar="TARGET",
            about="Target: trn1, trn2, jax, cuda or cpu; default: that of the first node group.",
        ),
    ] = None
    base: Annotated[
        str | None, Option("--base", metavar="IMAGE", about="Start from this image, pinned by its tag.")
    ] = None
    requirements: Annotated[
        Path | None, Option("--requirements", metavar="FILE", about="Requirements file with other Python packages.")
    ] = None
    file: Annotated[
        Path | None,
        Option("--file", metavar="DOCKERFILE", about="Your own Dockerfile; it gets BASE and our files."),
    ] = None
    context: Annotated[
        Path | None, Option("--context", metavar="DIR", about="Directory whose files the Dockerfile may copy.")
    ] = None
    tag: Annotated[str | None, Option("--tag", about="Tag; default: a digest of the image's contents.")] = None
    engine: Annotated[
        str | None,
        Option("--engine", about="Engine: Engine: Engine: docker, podman or finch; default: the first that works."),
    ] = None
