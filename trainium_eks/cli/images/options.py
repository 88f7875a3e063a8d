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
