"""Images of charts and pods, and their names in a pull-through cache of ECR; ``cached_images.yaml`` lists them."""

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainium_eks.model.validation.parsing import read_table

UPSTREAMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "docker.io": ("docker", "registry-1.docker.io"),
        "ghcr.io": ("ghcr", "ghcr.io"),
        "public.ecr.aws": ("ecr", "public.ecr.aws"),
        "quay.io": ("quay", "quay.io"),
        "registry.k8s.io": ("k8s", "registry.k8s.io"),
    }
)
"""Registries of our images that ECR caches, each with its short name here and its address for ECR; ``docker.io`` and
``ghcr.io`` with credentials alone. ECR does not cache NVIDIA's (ECR user guide, pull through cache)."""

LONGEST_PREFIX = 30 - len("/docker")
"""ECR takes 30 characters for the prefix of a rule (botocore, CreatePullThroughCacheRule); this is left for ours."""


@dataclass(frozen=True)
class Cache:
    """The cache of one environment."""

    prefix: str
    """Registry with the start of its repositories: ``111122223333.dkr.ecr.us-west-2.amazonaws.com/project-stack``."""
    registries: Collection[str]
    """The registries that it caches, keys of :data:`UPSTREAMS`."""

    def of(self, image: str) -> str:
        """Return the cache's name for an image, or for a registry alone; the same where it does not stand for it."""
        registry, _, rest = image.partition("/")
        return f"{self.prefix}/{UPSTREAMS[registry][0]}/{rest}".rstrip("/") if registry in self.registries else image

    def rewrite_images(self, value: Any) -> Any:
        """Return an object's fields, or a chart's values, with each ``image`` in them from the cache."""
        if isinstance(value, list):
            return [self.rewrite_images(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        return {
            key: self.of(each) if key == "image" and isinstance(each, str) else self.rewrite_images(each)
            for key, each in value.items()
        }

    def in_values(self, chart: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a chart's values with its images from the cache; a registry or repository that the values name for
        themselves stays, unless the cache stands for it."""
        found: dict[str, Any] = self.rewrite_images(values)
        for image, path, own in places(chart):
            if image.partition("/")[0] in self.registries:
                *above, last = path.split(".")
                at = functools.reduce(lambda values, key: values.setdefault(key, {}), above, found)
                at[last] = self.of(at.get(last) or own)
        return found


def places(chart: str) -> Iterator[tuple[str, str, str]]:
    """Yield each image of a chart, the path in its values that names the image, and the chart's own value there: the
    whole image or its beginning."""
    for image, place in table().get(chart, {}).get("images", {}).items():
        path, _, inner = place.partition("/")
        beginning = f"{image.partition('/')[0]}/{inner}".rstrip("/")
        yield image, path, beginning if path.endswith("registry") else image


@functools.cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Return ``cached_images.yaml``: a chart's name (empty for pods of no chart) to its images."""
    found: dict[str, Any] = read_table(Path(__file__).with_suffix(".yaml"))
    return found


def used(config: Mapping[str, Any], families: Collection[str]) -> Iterator[str]:
    """Yield the images of an environment, without tags, by its config (keys as in the file) and its nodes' families."""
    for row in table().values():
        key, _, value = row.get("for", "").partition("=")
        found: Any = config
        for part in key.split("."):
            found = (found or {}).get(part)
        if not key or key in families or (found == value if value else found):
            yield from row["images"]
