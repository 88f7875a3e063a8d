"""What follows from a change: who takes a new id, and who cannot take it in place."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.judging.changes import PathChange, ResourceChange
from trainium_eks.graph.judging.order import order
from trainium_eks.graph.resource_types import ec2, eks, replacements


def carry_on(after: Graph, new: Mapping[str, Resource], changes: dict[str, ResourceChange]) -> None:
    """Adds what follows from other changes, in the engine's order. A replaced resource has a new id: whoever cannot
    take it in place is replaced too, everybody else who takes it is updated. A changed launch template has a new
    version, which rolls its group's nodes. A resource that changes by itself gets these on top."""
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
            for path in (*_taken_anew(resource, changes), *_new_version(resource, changes))
            if not any(replacements.covers(path.path, each.path) for each in own)
        ]
        if more:
            changes[urn] = ResourceChange("update", resource, "", (*own, *more), follows=more[0].cause)


def _replaced_cause(resource: Resource, changes: Mapping[str, ResourceChange]) -> str:
    provider = resource.provider.split("::id=", 1)[0]
    if provider in changes and changes[provider].kind == "replace":
        return provider
    replaced = (urn for urn in replacements.replaced_with(resource) if urn in changes)
    return next((urn for urn in replaced if changes[urn].kind == "replace"), "")


def _taken_anew(resource: Resource, changes: Mapping[str, ResourceChange]) -> Iterator[PathChange]:
    """The inputs that come from replaced resources, each once."""
    found: dict[str, str] = {}
    for name, urns in sorted(resource.property_dependencies.items()):
        if name in resource.options.ignore_changes:
            continue
        for urn in urns:
            if urn in changes and changes[urn].kind == "replace":
                outputs = changes[urn].resource.outputs
                ids = tuple(str(outputs[key]) for key in ("id", "arn") if outputs.get(key))
                for path in tuple(_holding(name, resource.inputs.get(name), ids)) or (name,):
                    found.setdefault(path, urn)
    for path, urn in found.items():
        yield PathChange(path, cause=urn)


def _holding(path: str, value: Any, ids: tuple[str, ...]) -> Iterator[str]:
    """The paths under ``path`` whose values hold one of the ids; a list counts as a whole."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _holding(f"{path}.{key}", inner, ids)
    elif isinstance(value, list):
        if any(True for each in value for _ in _holding(path, each, ids)):
            yield path
    elif isinstance(value, str) and any(each in value for each in ids):
        yield path


def _new_version(resource: Resource, changes: Mapping[str, ResourceChange]) -> Iterator[PathChange]:
    """A node group's new version of its launch template, when an update of the template makes one."""
    if resource.type != eks.NODE_GROUP.token:
        return
    for urn in resource.property_dependencies.get("launchTemplate", ()):
        change = changes.get(urn)
        if change is None or change.kind != "update" or change.resource.type != ec2.LAUNCH_TEMPLATE.token:
            continue
        if any(not any(replacements.covers(each, path.path) for each in ec2.NO_NEW_VERSION) for path in change.paths):
            yield PathChange("launchTemplate.version", cause=urn)
            return
