"""The priorities that jobs may have among each other."""

from dataclasses import dataclass

RESERVED_PREFIX = "system-"
"""Prefix of Kubernetes' own priority classes; the API server refuses others with it."""


@dataclass(frozen=True)
class PriorityLevel:
    """One PriorityClass of the stack. None of them preempts: a job of a higher class is the next to start in its queue,
    and never ends a running job of any team. Kubernetes refuses a change of a class's value."""

    name: str
    value: int
    description: str


# None is below 0, the priority of a pod without a class, which may preempt pods below it. And a value
# below -10 would keep Cluster Autoscaler from adding nodes (`expendable-pods-priority-cutoff`).
LEVELS = (
    PriorityLevel("training-low", 0, "Starts when nothing more urgent is waiting, like a job that names no priority"),
    PriorityLevel("training-normal", 1000, "Starts before jobs that name no priority"),
    PriorityLevel("training-high", 2000, "Starts before all other jobs of its queue"),
)
"""From the lowest to the highest."""

NAMES = tuple(level.name for level in LEVELS)
