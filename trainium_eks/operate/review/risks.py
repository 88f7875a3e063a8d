"""Risks that a reviewer must see first: lost data and work, removed guards, opened access."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainium_eks.plan import waivers
from trainium_eks.plan.differences.changes import Changes, PathChange, ResourceChange
from trainium_eks.plan.differences.diff import provider_versions
from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource
from trainium_eks.plan.resource_types import concerns
from trainium_eks.plan.resource_types.paths import covers, value_at
from trainium_eks.plan.resource_types.resource_type import Concern
from trainium_eks.plan.resource_types.rows import eks, helm, kubernetes

Weight = Literal["loss", "refused", "review"]
"""``loss`` blocks until a person accepts it; ``refused`` cannot be deployed at all; ``review`` wants a look."""


@dataclass(frozen=True)
class Risk:
    """One line of the first table."""

    weight: Weight
    what: str
    """Risk in our words: ``replaced; lost with it: its files``."""
    resource: Resource
    paths: tuple[PathChange, ...] = ()
    note: str = ""
    """More in words, of a rule or of the values."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON with the resource's URN."""
        paths = [asdict(path) for path in self.paths]
        return {"weight": self.weight, "what": self.what, "urn": self.resource.urn, "paths": paths, "note": self.note}


def risks(before: Graph, after: Graph, changes: Changes, phantom: frozenset[str]) -> tuple[Risk, ...]:
    """Return every risk: changes that cannot be deployed, then losses, then the rest in the order of the changes, but
    for the replacements that will not happen."""
    gone = {change.component for change in changes.deleted if change.resource.type == kubernetes.NAMESPACE.token}
    found = [*_options(after, changes), *_claims(changes, phantom)]
    for change in changes.items:
        if change.resource.urn in phantom:
            continue
        found += _standing_or_falling(change)
        guarded = change.resource.type not in (kubernetes.NAMESPACE.token, helm.RELEASE.token)
        # The guards of a namespace are deleted with it.
        if not change.refused and not (change.kind == "delete" and change.component in gone and guarded):
            found += (
                Risk("loss" if effect.loses else "review", effect.words, change.resource, effect.paths, effect.note)
                for effect in change.effects
            )
    if any(resource.custom for resource in before.resources):
        found += _of_stack(before, after, changes)
    order: Mapping[Weight, int] = {"refused": 0, "loss": 1, "review": 2}
    return tuple(sorted(found, key=lambda risk: order[risk.weight]))


def _standing_or_falling(change: ResourceChange) -> Iterator[Risk]:
    """Yield refusals of AWS or Pulumi, and losses with a deleted resource."""
    why = tuple(path for path in change.paths if path.replaces)
    if change.refused:
        done = "updated" if change.kind == "update" else "made"
        yield Risk("refused", f"cannot be {done}: `up` stops there", change.resource, change.paths, change.refused)
    elif change.lost and change.rolls_nodes:
        rolled = "its nodes are replaced; what runs on them ends"
        rolling = tuple(path for path in change.paths if any(covers(each, path.path) for each in eks.ROLLS_NODES))
        yield Risk("review", rolled, change.resource, rolling)
    elif change.lost and change.blocked:
        word = "replaced" if change.kind == "replace" else "deleted"
        refused = f"to be {word}, but protected: Pulumi refuses; it holds {change.lost}"
        yield Risk("refused", refused, change.resource, why, _cause(change))
    elif change.lost:
        word = "REPLACED" if change.kind == "replace" else "DELETED"
        stays = "; the old one stays in the account" if change.resource.options.retain_on_delete else ""
        yield Risk("loss", f"{word}; lost with it: {change.lost}{stays}", change.resource, why, _cause(change))
    elif change.blocked:
        yield Risk("refused", f"to be {change.kind}d, but protected: Pulumi refuses", change.resource, why)


def _cause(change: ResourceChange) -> str:
    if change.follows:
        return f"follows from {change.follows.rsplit('::', 1)[-1]}"
    return ""


_OPTIONS: Mapping[str, str] = {
    "protect": "no longer protected",
    "retainOnDelete": "no longer retained when it is deleted",
    "ignoreChanges": "what of it later changes are ignored in is another: who sets it then must know",
    "deleteBeforeReplace": "a replacement takes the old one away first, or no longer does",
    "deletedWith": "it is no longer deleted by itself, or is again",
    "replaceOnChanges": "other changes replace it from now on",
    "additionalSecretOutputs": "outputs that were secret are shown",
}


def _options(after: Graph, changes: Changes) -> Iterator[Risk]:
    for option in changes.options:
        if not option.harmless:
            path = PathChange(option.option, option.before, option.after)
            words = _OPTIONS.get(option.option, "not understood: an option of the resource changes")
            yield Risk("review", words, after.by_urn[option.urn], (path,))


def _claims(changes: Changes, phantom: frozenset[str]) -> Iterator[Risk]:
    for change in changes.claims:
        if change.resource.urn not in phantom:
            held = "pods that mount it must be deleted first, finished ones too"
            inputs = change.resource.inputs
            namespace, name = (value_at(inputs, f"metadata.{field}") for field in ("namespace", "name"))
            name = f"{namespace or 'default'}/{name or change.resource.name}"
            yield Risk("review", held, change.resource, note=f"{name}; `trn deploy up` names them and does not start")


# --- risks of the whole stack ------------------------------------------------------------------------------------

CONFIG = (
    Concern("budget.hourlyUsd", concerns.more, "the bound of the cost is raised or taken off"),
    Concern("budget.nodes", concerns.more, "the bound of the nodes is raised or taken off"),
)
"""Keys of the config that guard something and that no resource shows."""


def _of_stack(before: Graph, after: Graph, changes: Changes) -> Iterator[Risk]:
    stack = next((each for each in after.resources if each.type == STACK_TYPE), None)
    if stack is None:
        return
    for output in changes.outputs:
        gone = PathChange(f"outputs.{output.path}", output.before, output.after)
        yield Risk("review", "an output is removed: its readers fail", stack, (gone,))
    old, new = provider_versions(before), provider_versions(after)
    for package in sorted(old.keys() & new.keys()):
        if old[package] != new[package]:
            version = PathChange(package, old[package], new[package])
            yield Risk(
                "review", "another version of a provider: only a preview shows what it changes", stack, (version,)
            )
    earlier = waivers.of(before)
    for rule, waiver in waivers.of(after).items():
        if rule not in earlier or _later(waiver.last_day, earlier[rule].last_day):
            note = f"{rule} until {waiver.last_day}: {waiver.reason}"
            yield Risk("review", "a rule is waived, or for longer", stack, note=note)
    for concern in CONFIG:
        values: list[Any] = [value_at(graph.config, concern.path) for graph in (before, after)]
        if concern.when(*values):
            yield Risk("review", concern.words, stack, (PathChange(concern.path, *values),))


def _later(day: datetime.date | None, than: datetime.date | None) -> bool:
    return day is not None and (than is None or day > than)
