"""What changes between two recorded programs: created, deleted, replaced and updated resources.

Both programs are whole environments. What the engine would say against a live account can differ where the
account was changed by hand; nothing else does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from trainium_eks.graph.graph import STACK_TYPE, Graph, Resource
from trainium_eks.graph.judging.aliases import former_urns, with_standing_ids
from trainium_eks.graph.judging.changes import Changes, Kind, OptionChange, PathChange, ResourceChange
from trainium_eks.graph.judging.consequences import carry_on
from trainium_eks.graph.judging.refusals import refusals
from trainium_eks.graph.resource_types import registry
from trainium_eks.graph.resource_types.differences import differences, tags_all


def compare(before: Graph, after: Graph) -> Changes:
    """What ``pulumi up`` would change, having built ``before`` and now given ``after``.

    A replacement carries on: a subnet whose VPC is replaced is replaced, and the file system in it; the cluster in it
    is updated. So does a default tag of a provider: each resource that takes tags is updated. Components themselves
    are nothing in the account and are left out.
    """
    old, new = _matched(before, after)
    after = with_standing_ids(after, old)
    new = {urn: after.by_urn[urn] for urn in new}
    changes = {change.resource.urn: change for change in _own_changes(before, after, old, new)}
    carry_on(after, new, changes)
    return judged(before, after, changes)


def judged(before: Graph, after: Graph, changes: Mapping[str, ResourceChange]) -> Changes:
    """Changes by URN as one answer: with their components, what is lost, what AWS refuses, and the options."""
    old, new = _matched(before, after)
    refused = refusals(before, after, old, changes)
    found = [
        _finished(change, old, after if change.kind != "delete" else before, refused.get(urn, ""))
        for urn, change in changes.items()
    ]
    return Changes(tuple(sorted(found, key=_rank)), _option_changes(old, new))


def _matched(before: Graph, after: Graph) -> tuple[dict[str, Resource], dict[str, Resource]]:
    """Both programs' resources by the URN that they have afterwards: an alias makes a new name the old resource."""
    new = {resource.urn: resource for resource in after.resources if _counts(resource)}
    renamed = {alias: resource.urn for resource in new.values() for alias in former_urns(after, resource)}
    old = {}
    for resource in before.resources:
        if _counts(resource):
            urn = resource.urn if resource.urn in new else renamed.get(resource.urn, resource.urn)
            old[urn] = resource
    return old, new


def _counts(resource: Resource) -> bool:
    return resource.custom and resource.type != STACK_TYPE


def _own_changes(
    before: Graph, after: Graph, old: Mapping[str, Resource], new: Mapping[str, Resource]
) -> Iterator[ResourceChange]:
    """The changes that a resource's own inputs and its provider's default tags call for."""
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
            kind: Kind = "replace" if any(path.replaces for path in paths) else "update"
            yield ResourceChange(kind, resource, "", paths)
    for urn, resource in old.items():
        if urn not in new:
            yield ResourceChange("delete", resource, "")


def _provider(graph: Graph, resource: Resource) -> Resource | None:
    return graph.by_urn.get(resource.provider.split("::id=", 1)[0])


def _finished(change: ResourceChange, old: Mapping[str, Resource], graph: Graph, refused: str) -> ResourceChange:
    """With its component, and whether the resource as it stands today holds data."""
    component = graph.component_of(change.resource)
    standing = old.get(change.resource.urn, change.resource)
    loses = change.kind in ("replace", "delete") or change.rolls_nodes
    lost = loses and registry.of(standing).loses_data(standing)
    return replace(change, component=component.name if component else graph.stack, stateful=lost, refused=refused)


_ORDER: Mapping[Kind, int] = {"replace": 0, "delete": 1, "create": 2, "update": 3}


def _rank(change: ResourceChange) -> tuple[int, int, int, str, int, str]:
    """What is refused, then losses (replaced before deleted, and the worst first), then the rest by component."""
    kind = _ORDER[change.kind]
    if change.refused:
        return (0, 0, 0, "", 0, change.resource.urn)
    holds = registry.of(change.resource).holds
    if change.stateful and holds:
        return (1, kind, holds.worth, "", 0, change.resource.urn)
    return (2, 0, 0, change.component, kind, change.resource.urn)


_UNSEEN_OPTIONS = frozenset({"aliases", "version", "import_id"})
"""Options whose change does nothing by itself."""


def _option_changes(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> tuple[OptionChange, ...]:
    """Options that changed on resources that stay, guards that are taken off first."""
    found = []
    for urn, resource in new.items():
        if urn not in old or old[urn].options == resource.options:
            continue
        for field in fields(resource.options):
            before, after = getattr(old[urn].options, field.name), getattr(resource.options, field.name)
            if before != after and field.name not in _UNSEEN_OPTIONS:
                first, *rest = field.name.split("_")
                found.append(OptionChange(urn, resource.name, first + "".join(map(str.title, rest)), before, after))
    return tuple(sorted(found, key=lambda option: (not option.weakens, option.urn, option.option)))
