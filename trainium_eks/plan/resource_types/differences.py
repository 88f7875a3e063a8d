"""Differences between two versions of a resource's inputs, and whether each can change in place.

A plan's comparison and the simulated AWS provider of the tests use the same walker.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import default_tags, registry, replacements
from trainium_eks.plan.resource_types.paths import covers, dotted, within

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Difference:
    """One changed input."""

    steps: Steps
    """Keys and list indices from the inputs to the value."""
    before: Any
    """None when there was none."""
    after: Any
    """None when it is removed."""
    replaces: bool
    """Whether the resource cannot change this in place."""

    @property
    def path(self) -> str:
        """Path in the rows' spelling: ``launchTemplate.id``, ``subnetIds[0]``."""
        return dotted(self.steps)

    @property
    def top(self) -> str:
        """The input's own name."""
        return str(self.steps[0])


def differences(
    resource: Resource,
    before: Mapping[str, Any],
    *,
    tags_all: tuple[Any, Any] = (None, None),
) -> tuple[Difference, ...]:
    """Return the smallest parts in which inputs differ, by path. Lists of another length differ as a whole.

    As JSON and Pulumi see it: 1 and 1.0 are the same, 1 and true are not, and null is the same as absent. Paths in the
    resource's ``ignore_changes`` are left out, but an object that changes as a whole (it is unknown, or new) is not
    ignored because a part of it is. ``tags_all`` are the old and new tags with the provider's default tags; a tag that
    the resource's own ``tags`` change is reported once.
    """
    found = list(_walked((), before, resource.inputs))
    own = [dotted(steps) for steps, _, _ in found]
    for steps, old, new in _walked((default_tags.TAGS_ALL,), *tags_all):
        tag = dotted(("tags", *steps[1:]))
        if not any(covers(each, tag) for each in own):
            found.append((steps, old, new))
    return tuple(
        Difference(steps, old, new, replacements.replaces(resource, dotted(steps), old, new))
        for steps, old, new in found
        if not any(within(ignored, dotted(steps)) for ignored in resource.options.ignore_changes)
    )


def tags_all(resource: Resource, provider: Resource | None) -> Any:
    """Return a resource's tags with its provider's default tags; None for a type that takes no tags."""
    if not registry.of(resource).tagged:
        return None
    return default_tags.laid_over(resource.inputs, provider.inputs if provider else {})


def _walked(steps: Steps, before: Any, after: Any) -> Iterator[tuple[Steps, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _walked((*steps, key), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walked((*steps, index), old, new)
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield steps, before, after
