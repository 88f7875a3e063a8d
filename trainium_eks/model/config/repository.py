"""The image repository section."""

import re
from typing import Annotated

import pydantic

from trainium_eks.model.catalogue import training_images
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem

REPOSITORY_NAME = re.compile(
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"  # ECR's own (botocore RepositoryName)
)


class ImageRepositoryConfig(ConfigModel):
    """An ECR repository for training images: scanned on push, immutable tags, encrypted."""

    name: str | None = None
    """Repository name. Unset: ``<project>-<stack>/training``."""
    kept_images: Annotated[StrictInt, Bounds(1, 100_000, "images", "a repository holds as many (ECR quotas)")] = 30
    """Tagged images kept; older ones expire."""
    untagged_days: Annotated[StrictInt, Bounds(1, unit="days", why="ECR's lifecycle policies count from 1")] = 7
    """Days an untagged image is kept."""
    force_delete: StrictBool = False
    """True lets a destroy delete the repository with its images, for an environment that is only tried (rule R75);
    otherwise the destroy stops there while it has any."""
    base_images: dict[str, str] = pydantic.Field(default_factory=dict)
    """What `trn image build` starts from, over its own table: target (`trn1`, `trn2`, `jax`, `cuda`, `cpu`) to image
    (`{trn2: <registry>/<repository>:<tag>}`). For `trn2` no public tag is known, and one must be named here."""


def validate(repository: ImageRepositoryConfig) -> list[Problem]:
    """Return the problems of the repository section. Paths are relative to it."""
    found = []
    name = repository.name
    if name is not None and not (REPOSITORY_NAME.fullmatch(name) and 2 <= len(name) <= 256):
        allowed = ("2 to 256 lower-case letters, digits, and . _ - / between them",)
        parts = (re.sub(r"[^a-z0-9]+", "-", part).strip("-") for part in name.lower().split("/"))
        good = "/".join(part for part in parts if part)[:256]
        good = good if REPOSITORY_NAME.fullmatch(good) and len(good) >= 2 else "<name>"
        found.append(Problem("name", "it is not the name of an ECR repository", value=name, allowed=allowed, good=good))
    return found + training_images.validate(repository.base_images, "base_images")
