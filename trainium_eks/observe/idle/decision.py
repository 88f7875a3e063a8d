"""Decisions about idle nodes. Pure functions; they need Python alone, for the guard's pod has nothing else.

A node is idle when nothing but DaemonSets runs on it. Its group waits when a gang is pending that could use it; then no
node of the group is removed, however long it has been idle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Action = Literal["mark", "clear", "warn", "hold", "release", "remove"]
"""``mark``: note since when it is idle. ``clear``: it works again. ``warn``: warn, once. ``hold``: let no pod onto it
any more. ``release``: let pods onto it again. ``remove``: end its instance."""


@dataclass(frozen=True)
class Node:
    """A node of a guarded group."""

    name: str
    group: str
    """Its group's name in EKS."""
    busy: bool
    """Whether a pod that is no DaemonSet's runs on it."""
    idle_since: float | None = None
    """Seconds since the epoch, as the guard noted it; None before that."""
    warned: bool = False
    held: bool = False
    """Whether the guard lets no pod onto it."""
    instance: str = ""
    """Its EC2 instance, ``i-…``."""


@dataclass(frozen=True)
class Limits:
    """Limits of a node's idle time."""

    warn_seconds: float
    """Seconds until the warning."""
    remove_seconds: float | None
    """Seconds until its instance ends; None for never."""


@dataclass(frozen=True)
class IdleStep:
    """One action on one node."""

    action: Action
    node: Node
    idle_seconds: float = 0.0


def steps(
    now: float,
    nodes: Iterable[Node],
    *,
    waiting: frozenset[str] | set[str],
    minimum: Mapping[str, int],
    limits: Limits,
) -> list[IdleStep]:
    """Return the actions that are due now.

    A node is removed in two looks: the first holds it, the next removes it if it is still idle, so that no pod placed
    between them is lost. ``waiting`` are the groups that a pending gang could use. ``minimum`` has each group's fewest
    nodes, below which EC2 Auto Scaling replaces removed nodes.
    """
    known = list(nodes)
    found: list[IdleStep] = []
    for group in dict.fromkeys(node.group for node in known):
        members = [node for node in known if node.group == group]
        spare = len(members) - minimum.get(group, 0)
        # Held nodes go first: the pods that were kept off them wait for nothing else.
        for node in sorted(members, key=lambda each: (not each.held, each.idle_since or now, each.name)):
            todo = _of_node(now, node, may_go=spare > 0 and group not in waiting, limits=limits)
            spare -= any(step.action in ("hold", "remove") for step in todo)
            found += todo
    return found


def _of_node(now: float, node: Node, *, may_go: bool, limits: Limits) -> list[IdleStep]:
    if node.busy:
        free = [IdleStep("release", node)] if node.held else []
        return [*free, IdleStep("clear", node)] if node.idle_since is not None else free
    if node.idle_since is None:
        return [IdleStep("mark", node)]
    idle = now - node.idle_since
    found = [IdleStep("warn", node, idle)] if idle >= limits.warn_seconds and not node.warned else []
    due = may_go and limits.remove_seconds is not None and idle >= limits.remove_seconds
    if due:
        return [*found, IdleStep("remove" if node.held else "hold", node, idle)]
    return [*found, IdleStep("release", node, idle)] if node.held else found
