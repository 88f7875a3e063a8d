"""Effects of an upgrade on a running environment: steps in the engine's order, their durations, their disturbances.

Times come from the plan (medians of published logs) and are no promise. A node to be replaced is drained first, for
which EKS waits 15 minutes at most (EKS user guide, phases of managed node updates); pods that end at once cost nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainium_eks.model.validation.problems import plural
from trainium_eks.plan.differences.changes import Changes, ResourceChange
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.order import order
from trainium_eks.plan.resource_types.resource_type import whole
from trainium_eks.plan.resource_types.rows import eks
from trainium_eks.plan.timeline import step_seconds

DRAIN_SECONDS = 15 * 60
"""The longest that EKS waits for the pods of one node, before the update fails with PodEvictionFailure."""

Phase = Literal["control plane", "add-on", "node group", "other"]

_PHASES: Mapping[str, Phase] = {
    eks.CLUSTER.token: "control plane",
    eks.ADDON.token: "add-on",
    eks.NODE_GROUP.token: "node group",
}


@dataclass(frozen=True)
class UpgradeStep:
    """One resource that changes."""

    phase: Phase
    change: ResourceChange
    start: float
    """Seconds after the beginning, when every drain is quick."""
    seconds: float
    """Duration when every drain is quick."""
    most_seconds: float
    """Duration when each drain takes all the time that EKS gives it."""
    nodes: int = 0
    batches: int = 0
    """Turns of replacement: each restarts a gang on these nodes once, at most."""

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        resource = self.change.resource
        return {
            "phase": self.phase,
            "kind": self.change.kind,
            "urn": resource.urn,
            "name": resource.name,
            "startSeconds": self.start,
            "seconds": self.seconds,
            "mostSeconds": self.most_seconds,
            "nodes": self.nodes,
            "batches": self.batches,
            "refused": self.change.refused,
        }


def steps(before: Graph, after: Graph, changes: Changes) -> tuple[UpgradeStep, ...]:
    """Return the changed resources in the engine's order, each after all it waits for."""
    by_urn = {change.resource.urn: change for change in changes.items if change.kind != "delete"}
    finish: dict[str, float] = {}
    found = []
    ordered = order(after)
    for node in ordered.nodes:
        start = max((finish[earlier] for earlier in ordered.before[node]), default=0.0)
        finish[node] = start
        change = by_urn.get(node)
        if change is not None:
            step = _step(change, before, start)
            finish[node] = start + step.seconds
            found.append(step)
    found += [_step(change, before, 0.0) for change in changes.items if change.kind == "delete"]
    return tuple(sorted(found, key=lambda step: (step.start, _rank(step.phase))))


def total_seconds(found: tuple[UpgradeStep, ...]) -> tuple[float, float]:
    """Return the duration of the whole: with quick drains, and the longest that drains can add on top."""
    quick = max((step.start + step.seconds for step in found), default=0.0)
    return quick, quick + max((step.most_seconds - step.seconds for step in found), default=0.0)


def _rank(phase: Phase) -> int:
    return [*_PHASES.values(), "other"].index(phase)


def _step(change: ResourceChange, before: Graph, start: float) -> UpgradeStep:
    phase = _PHASES.get(change.resource.type, "other")
    if not change.rolls_nodes:
        seconds = step_seconds(change.resource)
        return UpgradeStep(phase, change, start, seconds, seconds)
    standing = before.by_urn.get(change.resource.urn, change.resource)
    nodes = whole((standing.inputs.get("scalingConfig") or {}).get("desiredSize"))
    batches = -(-nodes // _at_a_time(change.resource, nodes)) if nodes else 0
    quick = batches * step_seconds(standing) or eks.EMPTY_GROUP_SECONDS
    return UpgradeStep(phase, change, start, quick, quick + batches * DRAIN_SECONDS, nodes, batches)


def _at_a_time(group: Resource, nodes: int) -> int:
    """Return the nodes that an update takes down together; one where the group does not say (EKS API, updateConfig)."""
    update = group.inputs.get("updateConfig") or {}
    percentage = whole(update.get("maxUnavailablePercentage"))
    return max(nodes * percentage // 100 if percentage else whole(update.get("maxUnavailable"), 1), 1)


def disturbance(step: UpgradeStep) -> Iterator[str]:
    """Yield the effects of a step that users of the environment notice."""
    if step.change.refused:
        return
    if step.change.kind == "replace":
        yield "it is replaced: `trn plan --against` says what is lost"
    elif step.phase == "control plane":
        yield "jobs run on; the API server goes away for moments, and commands may have to be repeated"
    elif step.nodes:
        nodes = plural(step.nodes, "node")
        turns = "in one turn" if step.batches == 1 else f"in {step.batches} turns"
        if eks.is_accelerator_group(step.change.resource):
            yield f"{nodes} replaced {turns}; a gang on them starts again from its last checkpoint, at worst each turn"
        else:
            yield f"{nodes} replaced {turns}; the pods there start again elsewhere"
    elif step.change.rolls_nodes:
        yield "no nodes now: the next ones are new"
