"""What a provider tells the engine about two versions of a resource's inputs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.proto import provider_pb2

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.resource_types import registry, replacements
from trainium_eks.graph.resource_types.replacements import value_at

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


@dataclass(frozen=True)
class Difference:
    """One changed input."""

    steps: tuple[str | int, ...]
    """Keys and list indices from the inputs to the value."""
    before: Any
    """None when there was none."""
    after: Any
    """None when it is removed."""
    replaces: bool
    """Whether the resource cannot change this in place."""

    @property
    def path(self) -> str:
        """As the tables of replacements spell it: ``launchTemplate.id``, ``subnetIds[0]``."""
        return _dotted(self.steps)

    @property
    def top(self) -> str:
        """The input's own name."""
        return str(self.steps[0])

    @property
    def property_path(self) -> str:
        """As the engine spells it: a key that is no plain word is quoted, ``tags["aws:x/y"]``."""
        found = ""
        for step in self.steps:
            if isinstance(step, int):
                found += f"[{step}]"
            elif _PLAIN_KEY.fullmatch(step):
                found += f".{step}" if found else step
            else:
                quoted = step.replace("\\", "\\\\").replace('"', '\\"')
                found += f'["{quoted}"]'
        return found


def differences(resource: Resource, before: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The smallest parts in which inputs differ, by path. Lists of another length differ as a whole.

    Args:
        resource: as it is to be.
        before: its inputs so far.
    """
    return tuple(
        Difference(steps, old, new, replacements.replaces(resource, _dotted(steps), old, new))
        for steps, old, new in _changed((), before, resource.inputs)
    )


def answer(resource: Resource, before: Mapping[str, Any]) -> provider_pb2.DiffResponse:
    """The changes as the engine takes them, with the property that each is about."""
    found = differences(resource, before)
    replaced = sorted({change.top for change in found if change.replaces})
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if found else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted({change.top for change in found}),
        replaces=replaced,
        detailedDiff={
            change.property_path: provider_pb2.PropertyDiff(kind=_kind(change), inputDiff=True) for change in found
        },
        hasDetailedDiff=True,
        deleteBeforeReplace=bool(replaced) and keeps_name(resource, before),
    )


def keeps_name(resource: Resource, before: Mapping[str, Any]) -> bool:
    """Whether the old and the new thing would have the same physical name, so that both cannot exist at once.

    Both real providers go by the name that the program gave: one that Pulumi made is made anew.
    """
    named_by = registry.of(resource).named_by
    if not named_by or not value_at(resource.inputs, named_by[-1]):
        return False
    return all(value_at(before, path) == value_at(resource.inputs, path) for path in named_by)


def _dotted(steps: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _kind(change: Difference) -> provider_pb2.PropertyDiff.Kind.ValueType:
    kinds = provider_pb2.PropertyDiff
    if change.before is None:
        return kinds.ADD_REPLACE if change.replaces else kinds.ADD
    if change.after is None:
        return kinds.DELETE_REPLACE if change.replaces else kinds.DELETE
    return kinds.UPDATE_REPLACE if change.replaces else kinds.UPDATE


def _changed(steps: tuple[str | int, ...], before: Any, after: Any) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _changed((*steps, key), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changed((*steps, index), old, new)
    elif before != after or type(before) is not type(after):
        yield steps, before, after
