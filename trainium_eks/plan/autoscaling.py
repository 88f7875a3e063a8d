"""Pools of a recorded program that an autoscaler sizes, and the limits of autoscalers today."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import at, mapping, number, text
from trainium_eks.plan.rules._autoscaled import node_pools, served_groups
from trainium_eks.plan.rules._objects import object_name
from trainium_eks.plan.subjects import NodeGroup

Scaler = Literal["Cluster Autoscaler", "Karpenter"]

NO_GANGS = (
    "No autoscaler knows gangs: it may buy a part of one's nodes, of which none can be used, and gives them back only "
    "when they have been empty for a while (karpenter#3138; Auto Scaling has no launch of all or nothing)."
)
OVER_BUYS = (
    "A Neuron node is Ready before its devices are: for pods that still wait for them Cluster Autoscaler may buy again,"
    " up to the group's maximum (autoscaler#597, #2947, #7780)."
)
PARTIAL = (
    "Where nodes for a part of a gang are there already, an autoscaler may see nothing to buy: trn scale and trn train "
    "size a group exactly."
)


@dataclass(frozen=True)
class ScaledPool:
    """One pool of nodes that an autoscaler scales."""

    pool: str
    """Name of the pool in the config: ``cpu``, ``trn1-base``."""
    by: Scaler
    minimum: int
    maximum: int
    instance_type: str
    family: str
    """Family of its accelerators: ``neuron``, ``nvidia``; ``cpu`` for none."""

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        return {
            "pool": self.pool,
            "by": self.by,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "instanceType": self.instance_type,
        }


@dataclass(frozen=True)
class Autoscaling:
    """The pools that are scaled."""

    pools: tuple[ScaledPool, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the limits of today's autoscalers for gangs on these pools, a sentence each."""
        accelerated = [each for each in self.pools if each.family != "cpu"]
        if not accelerated:
            return ()
        neuron = any(each.by == "Cluster Autoscaler" and each.family == "neuron" for each in accelerated)
        return (NO_GANGS, *((OVER_BUYS,) if neuron else ()), PARTIAL)

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        return {"pools": [each.to_json() for each in self.pools], "limits": list(self.limits)}


def read(graph: Graph) -> Autoscaling | None:
    """Return the scaled pools of a recorded program; None without any."""
    pools = tuple(_pools(graph))
    return Autoscaling(pools) if pools else None


def _pools(graph: Graph) -> Iterator[ScaledPool]:
    for group in served_groups(graph):
        yield ScaledPool(
            pool=text(mapping(group.resource.inputs.get("labels")).get(POOL_LABEL)) or group.resource.name,
            by="Cluster Autoscaler",
            minimum=_size(group, "minSize"),
            maximum=_size(group, "maxSize"),
            instance_type=group.type_name,
            family=group.instance.family if group.instance else "cpu",
        )
    for pool in node_pools(graph):
        families = [graph.catalogue[name].family for name in pool.types if name in graph.catalogue]
        yield ScaledPool(
            pool=object_name(pool.resource),
            by="Karpenter",
            minimum=0,
            maximum=pool.maximum,
            instance_type=", ".join(pool.types) or "any type",
            family=next((family for family in families if family != "cpu"), "cpu"),
        )


def _size(group: NodeGroup, which: str) -> int:
    return int(number(at(group.resource.inputs, f"scalingConfig.{which}")) or 0)
