"""What changes between two recorded programs: created, deleted, replaced and updated resources.

Both programs are whole environments. What the engine would say against a live account can differ where the
account was changed by hand; nothing else does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from trainium_eks.graph.graph import STACK_TYPE, Graph, Resource
from trainium_eks.graph.judging.order import order
from trainium_eks.graph.resource_types import ec2, eks, registry, replacements

Kind = Literal["create", "delete", "replace", "update"]

_TAGS = ("tags", "tagsAll", "defaultTags")
_CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
_NAMESPACE = "kubernetes:core/v1:Namespace"
_OTHER_VPC = "EKS cannot move a cluster to another VPC: make a new environment, or destroy this one first"
_ABSENT = object()


@dataclass(frozen=True)
class PathChange:
    """One changed input."""

    path: str
    """camelCase, with list indices: ``scalingConfig.desiredSize``, ``subnetIds[0]``."""
    before: Any = None
    """None when there was none."""
    after: Any = None
    """None when it is removed."""
    replaces: bool = False
    """Whether this change is why the resource is replaced."""
    cause: str = ""
    """URN of the changed resource that the new value comes from, when only ``pulumi up`` knows it; ``before`` and
    ``after`` are None then."""


@dataclass(frozen=True)
class Change:
    """What happens to one resource."""

    kind: Kind
    resource: Resource
    """As it is afterwards; for a deleted one, as it was."""
    component: str
    """Name of the component it belongs to; the stack's name directly under the stack."""
    paths: tuple[PathChange, ...] = ()
    follows: str = ""
    """URN of the changed resource that causes this, or a part of it; empty when it is its own inputs alone."""
    stateful: bool = False
    """Whether data or running work is lost with it."""
    refused: str = ""
    """Why AWS refuses it, so that ``pulumi up`` stops there although the preview passes."""

    @property
    def tags_only(self) -> bool:
        """Whether nothing but tags change."""
        return (
            self.kind == "update"
            and bool(self.paths)
            and all(any(replacements.covers(tag, change.path) for tag in _TAGS) for change in self.paths)
        )

    @property
    def rolls_nodes(self) -> bool:
        """Whether a node group stays and all its nodes are replaced, at most ``updateConfig`` of them at a time."""
        return (
            self.kind == "update"
            and self.resource.type == eks.NODE_GROUP.token
            and any(replacements.covers(roll, path.path) for roll in eks.ROLLS_NODES for path in self.paths)
        )

    @property
    def blocked(self) -> bool:
        """Whether ``protect`` makes Pulumi refuse it, at preview already."""
        return self.kind in ("delete", "replace") and self.resource.options.protect


@dataclass(frozen=True)
class OptionChange:
    """A resource option that changed; the engine acts on it although no input changed."""

    urn: str
    name: str
    """Name of the resource."""
    option: str
    """camelCase: ``protect``, ``retainOnDelete``."""
    before: Any
    after: Any

    @property
    def weakens(self) -> bool:
        """Whether a guard of the resource's data is taken off."""
        return self.option in ("protect", "retainOnDelete") and bool(self.before) and not self.after


@dataclass(frozen=True)
class Changes:
    """The difference between two programs."""

    items: tuple[Change, ...]
    """What AWS refuses first, then lost data and work (replaced, deleted, then rolled), the rest by component."""
    options: tuple[OptionChange, ...] = ()

    def of(self, *kinds: Kind) -> tuple[Change, ...]:
        """The changes of these kinds, in order."""
        return tuple(change for change in self.items if change.kind in kinds)

    @cached_property
    def dangerous(self) -> tuple[Change, ...]:
        """What a reviewer must see: what AWS refuses, replaced and deleted resources that hold data or that
        everything stands on, and node groups whose running nodes are replaced."""
        return tuple(change for change in self.items if change.refused or change.stateful)

    @property
    def rolled(self) -> tuple[Change, ...]:
        """Node groups that stay and whose nodes are replaced, those without nodes included."""
        return tuple(change for change in self.items if change.rolls_nodes)

    @property
    def claims(self) -> tuple[Change, ...]:
        """Volume claims that go while their namespace stays. Kubernetes keeps each until the last pod that mounts it, a
        finished one too, is deleted. One that something of the program's own is made from is left out: that goes
        first."""
        going = self.of("replace", "delete")
        own = {urn for change in going for urns in change.resource.property_dependencies.values() for urn in urns}
        gone = {change.resource.urn for change in going if change.resource.type == _NAMESPACE}
        return tuple(
            change
            for change in going
            if change.resource.type == _CLAIM
            and change.resource.urn not in own
            and change.resource.options.deleted_with not in gone
        )

    @property
    def created(self) -> tuple[Change, ...]:
        """New resources."""
        return self.of("create")

    @property
    def deleted(self) -> tuple[Change, ...]:
        """Resources that go away."""
        return self.of("delete")

    @property
    def replaced(self) -> tuple[Change, ...]:
        """Resources made anew under the same name."""
        return self.of("replace")

    @property
    def updated(self) -> tuple[Change, ...]:
        """Resources changed in place."""
        return self.of("update")

    def __bool__(self) -> bool:
        return bool(self.items or self.options)

    def to_json(self) -> dict[str, Any]:
        """camelCase data, in the order shown."""
        return {
            "items": [
                {
                    "kind": change.kind,
                    "urn": change.resource.urn,
                    "type": change.resource.type,
                    "name": change.resource.name,
                    "component": change.component,
                    "stateful": change.stateful,
                    "blockedByProtect": change.blocked,
                    "tagsOnly": change.tags_only,
                    "rollsNodes": change.rolls_nodes,
                    "refused": change.refused,
                    "follows": change.follows,
                    "paths": [asdict(path) for path in change.paths],
                }
                for change in self.items
            ],
            "options": [asdict(option) for option in self.options],
            "claims": [change.resource.urn for change in self.claims],
        }


def compare(before: Graph, after: Graph) -> Changes:
    """What ``pulumi up`` would change, having built ``before`` and now given ``after``.

    A replacement carries on: a subnet whose VPC is replaced is replaced, and the file system in it; the cluster in it
    is updated. Components themselves are nothing in the account and are left out.
    """
    old, new = _matched(before, after)
    changes = _own_changes(old, new)
    _carry_on(after, new, changes)
    moved = _moved_clusters(before, after, old, changes)
    found = [
        _finished(
            change,
            old,
            after if change.kind != "delete" else before,
            _OTHER_VPC if urn in moved else _version_refusal(change),
        )
        for urn, change in changes.items()
    ]
    return Changes(tuple(sorted(found, key=_rank)), tuple(_option_changes(old, new)))


def _matched(before: Graph, after: Graph) -> tuple[dict[str, Resource], dict[str, Resource]]:
    """Both programs' resources by the URN that they have afterwards: an alias makes a new name the old resource."""
    new = {resource.urn: resource for resource in after.resources if _counts(resource)}
    renamed = {alias: resource.urn for resource in new.values() for alias in resource.options.aliases}
    old = {}
    for resource in before.resources:
        if _counts(resource):
            urn = resource.urn if resource.urn in new else renamed.get(resource.urn, resource.urn)
            old[urn] = resource
    return old, new


def _counts(resource: Resource) -> bool:
    return resource.custom and resource.type != STACK_TYPE


def _own_changes(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> dict[str, Change]:
    """The changes that a resource's own inputs call for."""
    changes: dict[str, Change] = {}
    for urn, resource in new.items():
        if urn not in old:
            changes[urn] = Change("create", resource, "")
            continue
        paths = tuple(_path_changes(old[urn], resource))
        if paths:
            kind: Kind = "replace" if any(change.replaces for change in paths) else "update"
            changes[urn] = Change(kind, resource, "", paths)
    for urn, resource in old.items():
        if urn not in new:
            changes[urn] = Change("delete", resource, "")
    return changes


def _path_changes(old: Resource, new: Resource) -> Iterator[PathChange]:
    for path, before, after in _differences("", old.inputs, new.inputs):
        if any(replacements.covers(ignored, path) for ignored in new.options.ignore_changes):
            continue
        yield PathChange(path, before, after, replacements.replaces(new, path, before, after))


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts in which two values differ. Lists of another length differ as a whole."""
    if before == after and type(before) is type(after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else key
            yield from _differences(inner, before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif before != after:
        yield path, None if before is _ABSENT else before, None if after is _ABSENT else after


def _carry_on(after: Graph, new: Mapping[str, Resource], changes: dict[str, Change]) -> None:
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
            changes[urn] = Change("replace", resource, "", own, follows=cause)
            continue
        more = [
            path
            for path in (*_taken_anew(resource, changes), *_new_version(resource, changes))
            if not any(replacements.covers(path.path, each.path) for each in own)
        ]
        if more:
            changes[urn] = Change("update", resource, "", (*own, *more), follows=more[0].cause)


def _replaced_cause(resource: Resource, changes: Mapping[str, Change]) -> str:
    provider = resource.provider.split("::id=", 1)[0]
    if provider in changes and changes[provider].kind == "replace":
        return provider
    paths = replacements.replacing_paths(resource)
    for name, urns in sorted(resource.property_dependencies.items()):
        if any(replacements.covers(path, name) for path in paths):
            for urn in urns:
                if urn in changes and changes[urn].kind == "replace":
                    return urn
    return ""


def _taken_anew(resource: Resource, changes: Mapping[str, Change]) -> Iterator[PathChange]:
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


def _new_version(resource: Resource, changes: Mapping[str, Change]) -> Iterator[PathChange]:
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


def _moved_clusters(
    before: Graph, after: Graph, old: Mapping[str, Resource], changes: Mapping[str, Change]
) -> frozenset[str]:
    """Clusters that would stay while the VPC of their subnets goes. Subnets of the same VPC can be exchanged
    (``UpdateClusterConfig`` takes ``subnetIds``), another VPC's cannot."""
    gone = {urn for urn, change in changes.items() if change.kind in ("replace", "delete")}
    made = {urn for urn, change in changes.items() if change.kind in ("replace", "create")}
    return frozenset(
        urn
        for urn, change in changes.items()
        if change.kind == "update"
        and change.resource.type == eks.CLUSTER.token
        and any(replacements.covers("vpcConfig.subnetIds", path.path) for path in change.paths)
        and (_vpcs(before, old[urn]) & gone or _vpcs(after, change.resource) & made)
    )


def _version_refusal(change: Change) -> str:
    """Why EKS refuses a change of the Kubernetes version in place (UpdateClusterVersion, UpdateNodegroupVersion): a
    control plane goes up one minor version at a time, and neither it nor its nodes ever go down."""
    if change.kind != "update" or change.resource.type not in (eks.CLUSTER.token, eks.NODE_GROUP.token):
        return ""
    found = next((path for path in change.paths if path.path == "version"), None)
    before, after = (_minor(found.before), _minor(found.after)) if found else (None, None)
    if found is None or before is None or after is None:
        return ""
    if after < before:
        return f"EKS never goes back from Kubernetes {found.before} to {found.after}: keep {found.before}"
    major, minor = before
    if change.resource.type == eks.CLUSTER.token and after > (major, minor + 1):
        step = f"{major}.{minor + 1}"
        return (
            f"EKS goes from Kubernetes {found.before} to {found.after} one minor version at a time: {step} comes next"
        )
    return ""


def _minor(version: object) -> tuple[int, int] | None:
    """``1.35`` as (1, 35); None for what is no version that can be seen."""
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", version) if isinstance(version, str) else None
    return (int(match[1]), int(match[2])) if match else None


def _vpcs(graph: Graph, cluster: Resource) -> set[str]:
    """URNs of the VPCs that a cluster's subnets are made in."""
    subnets = (graph.by_urn.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ()))
    return {vpc for subnet in subnets if subnet for vpc in subnet.property_dependencies.get("vpcId", ())}


def _finished(change: Change, old: Mapping[str, Resource], graph: Graph, refused: str) -> Change:
    """With its component, and whether the resource as it stands today holds data."""
    component = graph.component_of(change.resource)
    standing = old.get(change.resource.urn, change.resource)
    loses = change.kind in ("replace", "delete") or change.rolls_nodes
    lost = loses and registry.of(standing).loses_data(standing)
    return replace(change, component=component.name if component else graph.stack, stateful=lost, refused=refused)


_ORDER: Mapping[Kind, int] = {"replace": 0, "delete": 1, "create": 2, "update": 3}


def _rank(change: Change) -> tuple[int, int, int, str, int, str]:
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


def _option_changes(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> Iterable[OptionChange]:
    found = []
    for urn, resource in new.items():
        if urn not in old or old[urn].options == resource.options:
            continue
        for field in fields(resource.options):
            before, after = getattr(old[urn].options, field.name), getattr(resource.options, field.name)
            if before != after and field.name not in _UNSEEN_OPTIONS:
                first, *rest = field.name.split("_")
                found.append(OptionChange(urn, resource.name, first + "".join(map(str.title, rest)), before, after))
    return sorted(found, key=lambda option: (not option.weakens, option.urn, option.option))
