"""Base images of training images, by target: ``training_images.toml``, overridden by the stack's config."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainium_eks.model.validation.problems import Problem, join_key, nearest

MIRROR_PREFIX = "mirror-"
"""Prefix of the tags of copied images, which are no training images (docs/data-and-images.md)."""


@dataclass(frozen=True)
class Base:
    """The base image of one target."""

    about: str
    """Framework and state, for people."""
    image: str | None = None
    """Image with its tag; None where no public tag is known, and the config has to name an image."""
    packages: tuple[str, ...] = ()
    index: str = ""
    """Package index for these; empty for pip's own."""


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

BASES: Mapping[str, Base] = MappingProxyType(
    {target: Base(**{**row, "packages": tuple(row.get("packages", ()))}) for target, row in _ROWS.items()}
)
"""Base image by target of ``trn image build --for``."""

_REFERENCE = re.compile(
    r"(?P<name>(localhost|[a-z0-9-]+([.:][a-z0-9-]+)+)(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""An image with its registry, as the OCI distribution spec and docker write it."""
_FLOATING = ("latest", "main", "master", "nightly")


def target_of(instance_type: str) -> str:
    """Return the target of an instance type: ``trn1``, ``trn2``, ``cuda`` or ``cpu``. A type of an unknown family
    counts as a CPU type unless its name starts like a GPU type's."""
    # Inferentia2 has the cores of Trn1, and its container names it, too; Trn3 has TorchNeuron as Trn2 does.
    for target, families in (("trn1", r"(trn1|inf)"), ("trn2", "trn"), ("cuda", r"(p|g)\d")):
        if re.match(families, instance_type.removeprefix("ml.")):
            return target
    return "cpu"


def validate(bases: Mapping[str, str], path: str) -> list[Problem]:
    """Return the problems of a config's own bases, target to image, which are at ``path``."""
    found = []
    for target, image in bases.items():
        here = join_key(path, target)
        if target not in BASES:
            near = nearest(target, BASES)
            fix = f"did you mean {near}?" if near else ""
            found.append(
                Problem(here, "it is not what a training image is for", fix, value=image, allowed=tuple(BASES))
            )
        found += reference_problems(image, here)
    return found


def reference_problems(image: str, path: str) -> list[Problem]:
    """Return the problem of an image that is not reproducible: it has no registry, or neither a fixed tag nor a
    digest."""
    parts = _REFERENCE.fullmatch(image)
    if parts is None:
        allowed = ("<registry>/<repository>:<tag>", "<registry>/<repository>@sha256:<digest>")
        fix = "write the registry, the repository and a tag"
        return [Problem(path, "it is not an image with its registry", fix, value=image, allowed=allowed)]
    if parts["digest"] is None and (parts["tag"] is None or parts["tag"] in _FLOATING):
        reason = "it means another image tomorrow"
        return [Problem(path, reason, "name a version's tag, or a digest (@sha256:…)", value=image)]
    return []
