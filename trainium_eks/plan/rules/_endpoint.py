"""Ranges and networks that reach the Kubernetes API of a program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import at, items, text
from trainium_eks.plan.subjects import SUBNET, ControlPlane

HTTPS = 443


@dataclass(frozen=True)
class Endpoint:
    """The API endpoint of one cluster."""

    plane: ControlPlane
    public: tuple[str, ...]
    """Ranges that reach the public endpoint; empty when it is off."""
    private: tuple[str, ...]
    """Ranges, beside the cluster's own nodes, that its security group lets reach the private endpoint."""
    own_network: bool
    """Whether the program makes the subnets of the control plane."""

    @property
    def first_up(self) -> str:
        """Place from which the first update reaches the endpoint; empty when no place does."""
        if self.public:
            return "the ranges of the public endpoint"
        if self.own_network or not self.private:
            return ""
        return "a machine in the adopted network, or in a range that is tied to it"

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data."""
        return {
            "cluster": self.plane.resource.name,
            "public": list(self.public),
            "private": list(self.private),
            "ownNetwork": self.own_network,
            "firstUpFrom": self.first_up,
        }


def endpoints(graph: Graph) -> Iterator[Endpoint]:
    """Yield the endpoint of each cluster."""
    for plane in graph.control_planes:
        yield Endpoint(plane, _public(plane), tuple(_private(graph, plane)), _is_own(graph, plane))


def _public(plane: ControlPlane) -> tuple[str, ...]:
    """Return the ranges of the public endpoint: every address by default."""
    _, ranges = plane.read("vpcConfig.publicAccessCidrs", "publicAccessCidrs")
    return (tuple(map(text, items(ranges))) or ("0.0.0.0/0",)) if plane.is_public else ()


def _private(graph: Graph, plane: ControlPlane) -> Iterator[str]:
    group = at(plane.cluster.outputs, "vpcConfig.clusterSecurityGroupId") if plane.cluster else None
    for rule in graph.rules_of(group) if group else ():
        if rule.inbound and rule.covers(HTTPS):
            yield from map(text, rule.cidrs)


def _is_own(graph: Graph, plane: ControlPlane) -> bool:
    path = "vpcConfig.subnetIds" if plane.cluster else "subnetIds"
    return bool(graph.refers(plane.resource, path, SUBNET))
