"""The idle guard section: how long accelerators may be idle."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from trainium_eks.model.config import autoscaling
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.validation.config_model import ConfigModel, LooseFloat
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, Severity

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig

LOOK_MINUTES = 2
"""Minutes between two runs of the guard."""

PAID_BY_THE_HOUR = ("on-demand", "spot")
"""Capacity that is paid only while it is used; a reservation and a Capacity Block are paid in any case."""


class IdleGuardConfig(ConfigModel):
    """A guard that reports and removes idle accelerator nodes: EC2 bills a node that waits for jobs like a node that
    trains.

    Nodes of groups with ``ignoreDesiredSize: true`` are removed, down to the group's ``minSize``. For the other groups
    it only warns, because the next ``up`` would bring the nodes back. It removes no node with pods other than
    DaemonSets', and no node of a group that a pending gang could use.
    """

    warn_after_minutes: Annotated[LooseFloat, Bounds(0, unit="minutes", above=True)] = 3
    """Minutes without work after which it is reported: an event of the node, a line in the guard's log."""
    remove_after_minutes: Annotated[LooseFloat | None, Bounds(0, unit="minutes", above=True)] = 5
    """Minutes without work after which a node goes. Null: never. A node takes about 6 minutes to come back."""


def removes_from(group: NodeGroupConfig) -> bool:
    """Return whether the guard may remove nodes of a group."""
    return group.ignore_desired_size and group.capacity.type in PAID_BY_THE_HOUR


def guarded(config: "StackConfig") -> tuple[NodeGroupConfig, ...]:
    """Return the groups that a guard watches: groups that no autoscaler scales."""
    served = autoscaling.served_groups(config)
    return tuple(group for group in config.node_groups if group not in served)


def validate(guard: IdleGuardConfig) -> list[Problem]:
    """Return the problems between the two times. Paths are relative to the section."""
    warn, remove = guard.warn_after_minutes, guard.remove_after_minutes
    if remove is None or not 0 < remove < warn:
        return []
    reason = f"a node would go before anybody is warned (`warn_after_minutes` is {warn:g})"
    return [Problem("remove_after_minutes", reason, value=remove, good=warn)]


def group_problems(guard: IdleGuardConfig, groups: Sequence[NodeGroupConfig]) -> list[Problem]:
    """Return the problems between the limits and the groups that are guarded. Paths are relative to the section."""
    if guard.remove_after_minutes is None or any(map(removes_from, groups)):
        return []
    reason = "no node is ever taken away: no group that is paid by the hour has `ignore_desired_size`"
    fix = "set `ignore_desired_size: true` on a group, or `remove_after_minutes: null` for warnings alone"
    return [Problem("remove_after_minutes", reason, fix, severity=Severity.WARN)]
