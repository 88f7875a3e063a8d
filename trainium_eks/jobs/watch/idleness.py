"""Present cost of an environment's accelerators, and their idle times. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainium_eks.jobs.observed.free_capacity import amounts_in_queue
from trainium_eks.kube import pod_text
from trainium_eks.kube.cluster import GROUP_LABEL, Object, condition, is_over, labels_of, moment, name_of
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.observe.idle import guard

ROOT_QUEUE = "root"
"""Volcano's own queue; its allocation is the sum of the others."""


@dataclass(frozen=True)
class GroupUse:
    """A node group at one moment."""

    group: NodeGroupOutput
    nodes: int
    node_hourly_usd: float | None
    """List price of one node; None where it is not known."""
    idle: int | None
    """Nodes on which nothing runs but DaemonSets; None where that may not be read."""
    since: datetime | None
    """Start of the longest present idle time of a node; None where no node is idle, or that is not known."""

    @property
    def hourly_usd(self) -> float | None:
        """Return the price of all its nodes."""
        return self._of(self.nodes)

    @property
    def idle_hourly_usd(self) -> float | None:
        """Return the price of the idle nodes."""
        return None if self.idle is None else self._of(self.idle)

    def _of(self, nodes: int) -> float | None:
        """Return the price of a number of nodes, which for no nodes is 0 even where the price is not known."""
        if not nodes:
            return 0.0
        return None if self.node_hourly_usd is None else nodes * self.node_hourly_usd

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "name": self.group.name,
            "instanceType": self.group.instance_type,
            "nodes": self.nodes,
            "maxSize": self.group.max_size,
            "hourlyUsd": self.hourly_usd,
            "idle": self.idle,
            "idleHourlyUsd": self.idle_hourly_usd,
            "idleSince": self.since.isoformat() if self.since else None,
        }


def uses(
    groups: Iterable[NodeGroupOutput],
    nodes: Sequence[Object],
    *,
    pods: Iterable[Object] | None,
    queues: Iterable[Object] | None,
    catalogue: Catalogue,
) -> list[GroupUse]:
    """Return the use of each group, as far as it could be read. Pods and queues: None without the right to read them,
    which researchers lack."""
    running = None if pods is None else list(pods)
    allocated = None if queues is None else _allocated(queues)
    found = []
    for group in groups:
        members = [node for node in nodes if labels_of(node).get(GROUP_LABEL) == group.eks_name]
        idle = _idle(group, members, running, allocated)
        known = [since for node in idle or () if (since := _since(node, running)) is not None]
        price = catalogue.price(group.instance_type, group.capacity)
        found.append(
            GroupUse(
                group,
                len(members),
                price.hourly_usd if price else None,
                None if idle is None else len(idle),
                min(known, default=None),
            )
        )
    return found


def _idle(
    group: NodeGroupOutput,
    members: Sequence[Object],
    pods: Sequence[Object] | None,
    allocated: frozenset[str] | None,
) -> list[Object] | None:
    """Return the idle members: by their pods; else by the guard's notes; else all of them where no queue has a
    device."""
    if pods is not None:
        working = {read.name for read in guard.read(members, [pod for pod in pods if not is_over(pod)]) if read.busy}
        return [node for node in members if name_of(node) not in working]
    noted = [node for node in members if _note(node)]
    if noted or not members:
        return noted
    if allocated is not None and allocated.isdisjoint(group.resources):
        return list(members)
    return None


def _since(node: Object, pods: Sequence[Object] | None) -> datetime | None:
    """Return the start of a node's idle time by the guard's note; else the end of its last listed pod, or the time when
    it became Ready."""
    if _note(node):
        return pod_text.time(_note(node))
    if pods is None:
        return None
    ends = [
        moment(ended["finishedAt"])
        for pod in pods
        if pod["spec"].get("nodeName") == name_of(node)
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if (ended := (status.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    ready = condition(node, "Ready").get("lastTransitionTime")
    return max([*ends, *([moment(ready)] if ready else [])], default=None)


def _note(node: Object) -> str:
    return str((node["metadata"].get("annotations") or {}).get(guard.SINCE, ""))


def _allocated(queues: Iterable[Object]) -> frozenset[str]:
    """Return the resources of which any queue has some."""
    own = (amounts_in_queue(queue, "allocated") for queue in queues if name_of(queue) != ROOT_QUEUE)
    return frozenset(resource for amounts in own for resource, amount in amounts.items() if amount)
