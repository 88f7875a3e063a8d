"""Comparison of two recorded programs: created, deleted, replaced and updated resources.

Both programs are whole environments. The engine's preview against a live account differs only where the account was
changed by hand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from trainium_eks.plan.differences.aliases import former_urns, with_standing_ids
from trainium_eks.plan.differences.changes import ChangeKind, Changes, OptionChange, PathChange, ResourceChange
from trainium_eks.plan.differences.consequences import carry_on
from trainium_eks.plan.differences.effects import ChangeContext
from trainium_eks.plan.differences.refusals import refusals
from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource, camel
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.differences import differences, tags_all
from trainium_eks.plan.resource_types.resource_type import Worth


def compare(before: Graph, after: Graph) -> Changes:
    """Return the changes of ``pulumi up`` when ``before`` is built and ``after`` is the program.

    A replacement has consequences: a subnet is replaced with its VPC, and the file system with the subnet; the cluster
    in the subnet is updated. So has a default tag of a provider: each resource that takes tags is updated. Components
    themselves do not exist in the account and are left out.
    """
    old, new = _matched(before, after)
    after = with_standing_ids(after, old)
    new = {urn: after.by_urn[urn] for urn in new}
    changes = {change.resource.urn: change for change in _own_changes(before, after, old, new)}
    carry_on(after, new, changes)
    return judged(before, after, changes)


def judged(before: Graph, after: Graph, changes: Mapping[str, ResourceChange]) -> Changes:
    """Return changes by URN as one answer: with their components, losses, refusals by AWS, other effects that a
    reviewer must see, the options and the outputs."""
    old, new = _matched(before, after)
    refused = refusals(before, after, old, changes)
    replaced = {urn for urn, change in changes.items() if change.kind == "replace"}
    found = []
    for urn, change in changes.items():
        graph = before if change.kind == "delete" else after
        finished = _finished(change, old, graph, refused.get(urn, ""))
        if old:
            standing = old[urn].inputs if urn in old else {}
            seen = ChangeContext(finished, standing, graph.by_urn.get(urn, change.resource), graph, replaced)
            effects = seen.effects()
            finished = replace(finished, effects=effects, harmless=seen.is_harmless(effects))
        found.append(finished)
    return Changes(tuple(sorted(found, key=_rank)), _option_changes(old, new), _lost_outputs(before, after))


def _matched(before: Graph, after: Graph) -> tuple[dict[str, Resource], dict[str, Resource]]:
    """Return both programs' resources by their later URN: an alias makes a new name the old resource."""
    new = {resource.urn: resource for resource in after.resources if _counts(after, resource)}
    renamed = {alias: resource.urn for resource in new.values() for alias in former_urns(after, resource)}
    old = {}
    for resource in before.resources:
        if _counts(before, resource):
            urn = resource.urn if resource.urn in new else renamed.get(resource.urn, resource.urn)
            old[urn] = resource
    return old, new


def _counts(graph: Graph, resource: Resource) -> bool:
    """Return whether a resource exists in the account: custom ones, and components recorded without their contents."""
    if resource.custom or resource.type == STACK_TYPE:
        return resource.custom
    unseen = resource.type in graph.unjudged or registry.find(resource.type) is not None
    return unseen and not graph.children(resource.urn)


def _own_changes(
    before: Graph, after: Graph, old: Mapping[str, Resource], new: Mapping[str, Resource]
) -> Iterator[ResourceChange]:
    """Yield the changes that come from a resource's own inputs and from its provider's default tags."""
    for urn, resource in new.items():
        if urn not in old:
            yield ResourceChange("create", resource, "")
            continue
        tags = tags_all(old[urn], _provider(before, old[urn])), tags_all(resource, _provider(after, resource))
        paths = tuple(
            PathChange(each.path, each.before, each.after, each.replaces)
            for each in differences(resource, old[urn].inputs, tags_all=tags)
        )
        if paths:
            kind: ChangeKind = "replace" if any(path.replaces for path in paths) else "update"
            yield ResourceChange(kind, resource, "", paths)
    for urn, resource in old.items():
        if urn not in new:
            yield ResourceChange("delete", resource, "")


def _provider(graph: Graph, resource: Resource) -> Resource | None:
    return graph.by_urn.get(resource.provider.split("::id=", 1)[0])


def _finished(change: ResourceChange, old: Mapping[str, Resource], graph: Graph, refused: str) -> ResourceChange:
    """Return the change with its component, and with the data of today's resource."""
    component = graph.component_of(change.resource)
    standing = old.get(change.resource.urn, change.resource)
    loses = change.kind in ("replace", "delete") or change.rolls_nodes
    holds = registry.of(standing).holds
    lost = holds.what if loses and holds and holds.while_(standing) else ""
    return replace(change, component=component.name if component else graph.stack, lost=lost, refused=refused)


_ORDER: Mapping[ChangeKind, int] = {"replace": 0, "delete": 1, "create": 2, "update": 3}


def _rank(change: ResourceChange) -> tuple[int, int, int, str, int, str]:
    """Return a sort key for refused changes, then losses (replaced before deleted, worst first), then by component."""
    kind = _ORDER[change.kind]
    if change.refused:
        return (0, 0, 0, "", 0, change.resource.urn)
    if change.stateful:
        holds = registry.of(change.resource).holds
        return (1, kind, holds.worth if holds else Worth.COPY, "", 0, change.resource.urn)
    return (2, 0, 0, change.component, kind, change.resource.urn)


_UNSEEN_OPTIONS = frozenset({"aliases", "version", "import_id"})
"""Options whose change has no effect."""


def _option_changes(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> tuple[OptionChange, ...]:
    """Return the options that changed on resources that stay, removed guards first."""
    found = []
    for urn, resource in new.items():
        if urn not in old or old[urn].options == resource.options:
            continue
        for field in fields(resource.options):
            before, after = getattr(old[urn].options, field.name), getattr(resource.options, field.name)
            if before != after and field.name not in _UNSEEN_OPTIONS:
                found.append(OptionChange(urn, resource.name, camel(field.name), before, after))
    return tuple(sorted(found, key=lambda option: (not option.weakens, option.urn, option.option)))


def _lost_outputs(before: Graph, after: Graph) -> tuple[PathChange, ...]:
    """Return the exports that are missing or empty in ``after``; none when the outputs of a program are not known."""
    if not before.outputs or not after.outputs:
        return ()
    return tuple(
        PathChange(name, value, after.outputs.get(name))
        for name, value in sorted(before.outputs.items())
        if value is not None and after.outputs.get(name) is None
    )


def provider_versions(graph: Graph) -> dict[str, str]:
    """Return package (``pulumi-aws``) to the version that the program requests."""
    found: dict[str, set[str]] = {}
    for resource in graph.resources:
        is_provider = resource.type.startswith("pulumi:providers:")
        package = resource.type.rsplit(":", 1)[-1] if is_provider else resource.type.partition(":")[0]
        version = resource.options.version or (resource.inputs.get("version") if is_provider else "")
        if version and isinstance(version, str):
            found.setdefault(f"pulumi-{package}", set()).add(version)
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}
