"""What of a change a reviewer must see before anything else: lost data and work, guards taken off, doors opened."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.judging.aliases import former_urns
from trainium_eks.graph.judging.changes import Changes, PathChange, ResourceChange
from trainium_eks.graph.resource_types import ec2, eks, kubernetes, registry
from trainium_eks.graph.resource_types.replacements import covers, value_at
from trainium_eks.graph.resource_types.resource_type import whole
from trainium_eks.review.access import opened, widened
from trainium_eks.review.guards import GUARDING_TYPES, loosened

Weight = Literal["loss", "refused", "review"]
"""``loss`` blocks until somebody accepts it; ``refused`` cannot be deployed at all; ``review`` wants a look."""

JUMP = 2
"""A group that may grow to this many times its size, or that at once runs this many times its nodes, is a jump."""


@dataclass(frozen=True)
class Risk:
    """One line of the first table."""

    weight: Weight
    what: str
    """In our words: ``replaced; lost with it: its files``."""
    resource: Resource
    paths: tuple[PathChange, ...] = ()
    """The inputs that are why."""
    note: str = ""
    """More in words, of a rule or of the values."""


@dataclass(frozen=True)
class Pair:
    """A changed resource as it is and as it is to be."""

    change: ResourceChange
    before: Resource | None
    """None for a new one."""
    after: Resource
    """Of a deleted one, as it was."""

    def values(self, path: str) -> tuple[Any, Any]:
        """The input at a path, before and after."""
        return value_at(self.before.inputs if self.before else {}, path), value_at(self.after.inputs, path)


def risks(before: Graph, after: Graph, changes: Changes, phantom: frozenset[str]) -> tuple[Risk, ...]:
    """Every risk: what cannot be deployed, then what is lost, then the rest as the changes stand.

    Args:
        before: the program that is built; without resources when the environment is new.
        after: the program that is to be.
        changes: between the two.
        phantom: URNs of replacements that only follow from a provider whose inputs ``pulumi up`` will know.
    """
    is_new = not any(resource.custom for resource in before.resources)
    gone = {change.component for change in changes.deleted if change.resource.type == kubernetes.NAMESPACE.token}
    pairs = tuple(
        pair
        for pair in pairs_of(before, after, changes, phantom)
        # What guarded a namespace goes with it.
        if pair.change.kind != "delete" or pair.change.component not in gone
    )
    found = [*_losses(changes, phantom), *_options(after, changes), *_claims(changes, phantom)]
    if not is_new:
        for pair in pairs:
            for judge in _JUDGES:
                found += judge(pair)
    order: Mapping[Weight, int] = {"refused": 0, "loss": 1, "review": 2}
    return tuple(sorted(found, key=lambda risk: order[risk.weight]))


def pairs_of(before: Graph, after: Graph, changes: Changes, phantom: frozenset[str]) -> Iterator[Pair]:
    """The changes with both versions of their resources, those that only seem to change left out."""
    for change in changes.items:
        if change.resource.urn in phantom:
            continue
        names = (change.resource.urn, *former_urns(after, change.resource))
        earlier = next((before.by_urn[urn] for urn in names if urn in before.by_urn), None)
        yield Pair(change, earlier, after.by_urn.get(change.resource.urn, change.resource))


def _losses(changes: Changes, phantom: frozenset[str]) -> Iterator[Risk]:
    for change in changes.dangerous:
        if change.resource.urn in phantom:
            continue
        holds = registry.of(change.resource).holds
        lost = holds.what if holds else "what it holds"
        why = tuple(path for path in change.paths if path.replaces)
        if change.refused:
            yield Risk("refused", "cannot be updated: `up` stops there", change.resource, change.paths, change.refused)
        elif change.rolls_nodes:
            rolled = "its nodes are replaced; what runs on them ends"
            rolling = tuple(path for path in change.paths if any(covers(each, path.path) for each in eks.ROLLS_NODES))
            yield Risk("review", rolled, change.resource, rolling)
        elif change.blocked:
            word = "replaced" if change.kind == "replace" else "deleted"
            refused = f"to be {word}, but protected: Pulumi refuses; it holds {lost}"
            yield Risk("refused", refused, change.resource, why, _cause(change))
        else:
            word = "REPLACED" if change.kind == "replace" else "DELETED"
            stays = "; the old one stays in the account" if change.resource.options.retain_on_delete else ""
            yield Risk("loss", f"{word}; lost with it: {lost}{stays}", change.resource, why, _cause(change))


def _cause(change: ResourceChange) -> str:
    if change.follows:
        return f"follows from {change.follows.rsplit('::', 1)[-1]}"
    return ""


def _options(after: Graph, changes: Changes) -> Iterator[Risk]:
    words = {"protect": "no longer protected", "retainOnDelete": "no longer retained when it is deleted"}
    for option in changes.weakened:
        path = PathChange(option.option, option.before, option.after)
        yield Risk("review", words[option.option], after.by_urn[option.urn], (path,))


def _claims(changes: Changes, phantom: frozenset[str]) -> Iterator[Risk]:
    for change in changes.claims:
        if change.resource.urn not in phantom:
            held = "pods that mount it must be deleted first, finished ones too"
            yield Risk("review", held, change.resource)


def _capacity(pair: Pair) -> Iterator[Risk]:
    if pair.before is None or pair.change.kind == "delete":
        return
    paths = {
        eks.NODE_GROUP.token: ("capacityType",),
        ec2.LAUNCH_TEMPLATE.token: ("capacityReservationSpecification", "instanceMarketOptions"),
    }
    for path in paths.get(pair.after.type, ()):
        old, new = pair.values(path)
        if old != new:
            yield Risk("review", "another kind of capacity", pair.after, (PathChange(path, old, new),))


def _sizes(pair: Pair) -> Iterator[Risk]:
    if pair.after.type != eks.NODE_GROUP.token or pair.change.kind == "delete":
        return
    sizes = {name: pair.values(f"scalingConfig.{name}") for name in ("minSize", "desiredSize", "maxSize")}
    ignored = "scalingConfig.desiredSize" in pair.after.options.ignore_changes
    for name, (old, new) in sizes.items():
        if pair.before is None or (name == "desiredSize" and ignored) or old == new:
            continue
        path = (PathChange(f"scalingConfig.{name}", old, new),)
        if whole(new) >= max(JUMP * whole(old), whole(old) + JUMP):
            yield Risk("review", _GROWS[name], pair.after, path)
        elif whole(new) < whole(old) and name != "minSize":
            yield Risk("review", "fewer nodes; what runs on the others ends", pair.after, path)


_GROWS = {
    "minSize": "never runs less than many more nodes",
    "desiredSize": "runs many more nodes at once",
    "maxSize": "may grow to many more nodes",
}


def _kubernetes(pair: Pair) -> Iterator[Risk]:
    if pair.after.type != eks.CLUSTER.token or pair.before is None or pair.change.refused:
        return
    old, new = pair.values("version")
    if old != new and pair.change.kind == "update":
        minor = "another minor version of Kubernetes; EKS never goes back"
        yield Risk("review", minor, pair.after, (PathChange("version", old, new),))


def _guards(pair: Pair) -> Iterator[Risk]:
    if pair.change.kind == "delete":
        if words := GUARDING_TYPES.get(pair.after.type):
            yield Risk("review", f"deleted: {words}", pair.after)
        return
    for path, old, new, words in loosened(pair.before, pair.after):
        yield Risk("review", words, pair.after, (PathChange(path, old, new),))


def _access(pair: Pair) -> Iterator[Risk]:
    if pair.change.kind == "delete":
        return
    for path, words, note in (*widened(pair.before, pair.after), *opened(pair.before, pair.after)):
        yield Risk("review", words, pair.after, (PathChange(path, *pair.values(path)),) if path else (), note)


def _unjudged(pair: Pair) -> Iterator[Risk]:
    if pair.change.unjudged:
        yield Risk("review", "may be a replacement: nothing is known of its type", pair.after, pair.change.paths)


_JUDGES: tuple[Callable[[Pair], Iterator[Risk]], ...] = (
    _guards,
    _access,
    _capacity,
    _sizes,
    _kubernetes,
    _unjudged,
)
