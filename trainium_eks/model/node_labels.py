"""Labels of nodes that the stack sets, or reads to place gangs."""

from collections.abc import Iterable, Mapping

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.topology.tree import DOMAINS

POOL_LABEL = "trainium-eks/pool"
"""Node label with the group's name in the stack: EKS' own label carries the generated name, which changes."""

EC2_TOPOLOGY_LABELS = (
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
)
"""Labels of a node that name its switches in EC2's network, the widest layer first. The last label, shared by the nodes
under one switch, becomes tier 1 of Volcano's HyperNodes, in a stack without UltraServers."""

ULTRASERVER_LABELS = DOMAINS
"""Labels of a node that name its UltraServer and its half of it, from Neuron's device plugin 2.26.26.0 on."""

WITHIN_ULTRASERVER: Mapping[str, int] = {"half": 2, "ultraserver": 4}
"""Part of an UltraServer, as ``trn train --tier`` names it, to its nodes: Volcano's tiers 1 and 2 where a stack has
UltraServers, whose switches then begin with tier 3."""


def topology_labels(types: Iterable[str], catalogue: Catalogue) -> tuple[str, ...]:
    """Return the node labels that become HyperNodes, the widest first, in a stack with these instance types.

    They follow from the config and not from the nodes that are there, so that a tier has one number while nodes come
    and go: Volcano compares numbers.
    """
    found = (catalogue.get(name) for name in types)
    has_ultraservers = any(each is not None and each.ultraserver_nodes for each in found)
    return (*EC2_TOPOLOGY_LABELS, *(ULTRASERVER_LABELS if has_ultraservers else ()))
