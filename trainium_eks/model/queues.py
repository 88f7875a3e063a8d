"""Volcano queues, measured in accelerator devices."""

from typing import Literal

from trainium_eks.model.shape import Flag, Shape, Whole


class QueueConfig(Shape):
    """One Volcano queue. Amounts are Kubernetes resources: ``{aws.amazon.com/neuron: 32}``."""

    name: str
    """Name of the queue; ``default`` and ``root`` belong to Volcano."""
    weight: Whole = 1
    """Share against the other queues when the pool is full, 1 to 65535."""
    capability: dict[str, Whole] | None = None
    """The most the queue may use. Unset: the whole pool (devices and EFA of every group at its maximum)."""
    deserved: dict[str, Whole] | None = None
    """What it may take back from others (switches Volcano to the ``capacity`` plugin). Unset: not limited."""
    guarantee: dict[str, Whole] | None = None
    """What is kept free for it (switches Volcano to the ``capacity`` plugin). Unset: nothing."""
    reclaimable: Flag = True
    """Whether others may take back what it borrowed, when reclaim is on."""
    parent: str | None = None
    """Name of the parent queue; only leaf queues take jobs."""


class VolcanoConfig(Shape):
    """The gang scheduler and its queues."""

    replicas: Whole = 2
    """Copies of scheduler, controller and admission; more than one switches leader election on."""
    scale_from_zero: Flag | None = None
    """Leaves the ``enqueue`` action out, without which no pod is created while a pool has no node
    (volcano#3910). Unset: on when some group may rest at zero nodes."""
    reclaim: Flag = False
    """Lets queues take back what others borrowed. Not gang-aware: it kills one pod of several gangs."""
    rendezvous: Literal["c10d", "etcd"] = "c10d"
    """How workers find each other. ``c10d`` needs nothing; ``etcd`` adds a single etcd 3.5 in the cluster."""
