"""Consequences of a change: resources that take a new id, and resources that cannot take it in place."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_eks.plan.differences.aliases import SHORTEST_ID
from trainium_eks.plan.differences.changes import PathChange, ResourceChange
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.order import order
from trainium_eks.plan.reading import texts
from trainium_eks.plan.resource_types import registry, replacements
from trainium_eks.plan.resource_types.paths import covers, value_at
from trainium_eks.plan.resource_types.resource_type import REGION
from trainium_eks.plan.resource_types.rows import ec2, eks


def carry_on(after: Graph, new: Mapping[str, Resource], changes: dict[str, ResourceChange]) -> None:
    """Add the consequences of other changes, in the engine's order. A replaced resource has a new id: a resource that
    cannot take the id in place is replaced too, every other resource that takes it is updated. A changed launch
    template has a new version, which rolls its group's nodes. These changes are added to a resource's own changes."""
    for urn in order(after).nodes:
        resource = new.get(urn)
        known = changes.get(urn)
        if resource is None or (known is not None and known.kind in ("create", "replace")):
            continue
        own = known.paths if known else ()
        cause = _replaced_cause(resource, changes)
        if cause:
            changes[urn] = ResourceChange("replace", resource, "", own, follows=cause)
            continue
        more = [
            path
            for path in (*_replaced_inputs(resource, changes), *_new_version(resource, changes))
            if not any(covers(path.path, each.path) for each in own)
        ]
        if more:
            changes[urn] = ResourceChange("update", resource, "", (*own, *more), follows=more[0].cause)


def _replaced_cause(resource: Resource, changes: Mapping[str, ResourceChange]) -> str:
    provider = resource.provider.split("::id=", 1)[0]
    if provider in changes and changes[provider].kind == "replace":
        return provider
    replaced = (urn for urn in replacements.replaced_with(resource) if urn in changes)
    return next((urn for urn in replaced if changes[urn].kind == "replace"), "")


def _replaced_inputs(resource: Resource, changes: Mapping[str, ResourceChange]) -> Iterator[PathChange]:
    """Yield the inputs that come from replaced resources, each once."""
    found: dict[str, str] = {}
    for name, urns in sorted(resource.property_dependencies.items()):
        if name in resource.options.ignore_changes:
            continue
        for urn in urns:
            if urn in changes and changes[urn].kind == "replace":
                keeps_name = _keeps_name(changes[urn])
                texts = _new_texts(changes[urn].resource, every=keeps_name)
                # An input made only from a name that survives does not change.
                otherwise = () if keeps_name else (name,)
                for path in tuple(_holding(name, resource.inputs.get(name), texts)) or otherwise:
                    found.setdefault(path, urn)
    for path, urn in found.items():
        yield PathChange(path, cause=urn)


def _keeps_name(change: ResourceChange) -> bool:
    """Return whether the program gives a replaced resource its name, and the name does not change."""
    named_by = registry.of(change.resource).named_by
    if not named_by or not value_at(change.resource.inputs, named_by[-1]):
        return False
    return not any(covers(name, path.path) for name in named_by for path in change.paths)


def _new_texts(resource: Resource, *, every: bool) -> tuple[str, ...]:
    """Return the new texts of a replaced resource: its id and ARN, or all that its provider computes. The region stays
    the same, and short texts are words."""
    own = set(texts(resource.inputs))
    outputs = resource.outputs if every else {key: resource.outputs.get(key) for key in ("id", "arn")}
    found = (text for key, value in outputs.items() if key != REGION for text in texts(value))
    return tuple(text for text in found if text not in own and len(text) >= SHORTEST_ID)


def _holding(path: str, value: Any, ids: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths under ``path`` to values that contain one of the ids; a list counts as a whole."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _holding(f"{path}.{key}", inner, ids)
    elif isinstance(value, list):
        if any(True for each in value for _ in _holding(path, each, ids)):
            yield path
    elif isinstance(value, str) and any(each in value for each in ids):
        yield path


def _new_version(resource: Resource, changes: Mapping[str, ResourceChange]) -> Iterator[PathChange]:
    """Yield a node group's new version of its launch template, when an update of the template makes one."""
    if resource.type != eks.NODE_GROUP.token:
        return
    for urn in resource.property_dependencies.get("launchTemplate", ()):
        change = changes.get(urn)
        if change is None or change.kind != "update" or change.resource.type != ec2.LAUNCH_TEMPLATE.token:
            continue
        if any(not any(covers(each, path.path) for each in ec2.NO_NEW_VERSION) for path in change.paths):
            yield PathChange("launchTemplate.version", cause=urn)
            return
