"""What a provider tells the engine about two versions of a resource's inputs."""

import re
from collections.abc import Mapping
from typing import Any

from pulumi.runtime.proto import provider_pb2

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.resource_types import registry
from trainium_eks.graph.resource_types.differences import Difference, Steps, differences
from trainium_eks.graph.resource_types.paths import value_at

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def answer(
    resource: Resource, before: Mapping[str, Any], tags_all: tuple[Any, Any] = (None, None)
) -> provider_pb2.DiffResponse:
    """The changes as the engine takes them, with the property that each is about.

    Args:
        resource: as it is to be.
        before: its inputs so far.
        tags_all: see :func:`~trainium_eks.graph.resource_types.differences.differences`.
    """
    found = differences(resource, before, tags_all=tags_all)
    replaced = sorted({change.top for change in found if change.replaces})
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if found else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted({change.top for change in found}),
        replaces=replaced,
        detailedDiff={
            property_path(change.steps): provider_pb2.PropertyDiff(kind=_kind(change), inputDiff=True)
            for change in found
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


def property_path(steps: Steps) -> str:
    """As the engine spells it: a key that is no plain word is quoted, ``tags["aws:x/y"]``."""
    found = ""
    for step in steps:
        if isinstance(step, int):
            found += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            found += f".{step}" if found else step
        else:
            quoted = step.replace("\\", "\\\\").replace('"', '\\"')
            found += f'["{quoted}"]'
    return found


def _kind(change: Difference) -> provider_pb2.PropertyDiff.Kind.ValueType:
    kinds = provider_pb2.PropertyDiff
    if change.before is None:
        return kinds.ADD_REPLACE if change.replaces else kinds.ADD
    if change.after is None:
        return kinds.DELETE_REPLACE if change.replaces else kinds.DELETE
    return kinds.UPDATE_REPLACE if change.replaces else kinds.UPDATE
