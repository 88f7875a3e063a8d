"""The address plan of a VPC, and the number of addresses that a node group takes from its subnet."""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from trainium_eks.model.catalogue.instances import InstanceType, address_pods


@dataclass(frozen=True)
class PodAddresses:
    """Addresses for pods that the VPC CNI holds on a node (amazon-vpc-cni-k8s, docs/eni-and-ip-target.md)."""

    warm: int = 2
    """WARM_IP_TARGET: free addresses beside the addresses in use. The CNI's default, a whole spare interface, takes 50
    on trn1."""
    minimum: int = 12
    """MINIMUM_IP_TARGET: addresses that it takes when a node starts, in one call: just above the pods expected on an
    accelerator node, so that none of them waits for EC2."""

    def of(self, pods: int) -> int:
        """Return the addresses that it takes for a node's pods outside the host network, free addresses included."""
        return max(self.minimum, pods + self.warm)


PODS = PodAddresses()
"""The stack's default."""

EXPECTED_PODS = 10
"""Pods with an address on an accelerator node: storage drivers, device plugin, metrics, GPU health, and a few pods of a
job. Agents on the host network take none."""

EXPECTED_CPU_PODS = 20
"""Pods with an address on a CPU node: DNS, drivers' controllers, the scheduler, monitoring, staging."""

RESERVED_BY_AWS = 5
"""Addresses of every subnet that AWS keeps: the first four and the last."""

CONTROL_PLANE_ADDRESSES = 16
"""Addresses that each control-plane subnet should have free: 6 to work, 16 so that version upgrades work too."""

LONGEST_PREFIX = 28
"""AWS' smallest VPC and subnet."""

SHORTEST_PREFIX = 16
"""AWS' largest VPC and subnet."""


@dataclass(frozen=True)
class SubnetPlan:
    """One public and one private subnet for each zone; zone id to CIDR block, in the order of the zones."""

    public: Mapping[str, str]
    private: Mapping[str, str]


def plan(cidr_block: str, zone_ids: Sequence[str]) -> SubnetPlan:
    """Divide a VPC, /16 to /28: private subnets, which hold the nodes, get half or more, and public subnets the rest.

    The range is cut into equal slots, one a zone and at least one more. Each zone's private subnet is a slot; the last
    slot holds the public subnets. A /16 and two zones give two private /18 and two public /20. A zone added at the end
    may move the others, as a VPC's size is fixed. ValueError: the range is malformed, out of AWS' bounds, or too small
    for subnets of /28 in every zone.
    """
    network = ipaddress.IPv4Network(cidr_block)
    if not SHORTEST_PREFIX <= network.prefixlen <= LONGEST_PREFIX:
        raise ValueError(f"a VPC is /{SHORTEST_PREFIX} to /{LONGEST_PREFIX}, not /{network.prefixlen}")
    if not zone_ids or len(set(zone_ids)) != len(zone_ids):
        raise ValueError("zone ids must be distinct, and at least one")
    slot_bits = max(1, math.ceil(math.log2(len(zone_ids) + 1)))
    # Twice as many public slots as zones need at two zones: a quarter of a private subnet each, so that a
    # network never spends on load balancers what nodes need.
    public_bits = max(2, math.ceil(math.log2(len(zone_ids))))
    if network.prefixlen + slot_bits + public_bits > LONGEST_PREFIX:
        largest = LONGEST_PREFIX - slot_bits - public_bits
        raise ValueError(f"{cidr_block} is too small for {len(zone_ids)} zones: it must be /{largest} or larger")
    slots = list(network.subnets(prefixlen_diff=slot_bits))
    public = list(slots[-1].subnets(prefixlen_diff=public_bits))
    return SubnetPlan(
        public=MappingProxyType({zone: str(public[index]) for index, zone in enumerate(zone_ids)}),
        private=MappingProxyType({zone: str(slots[index]) for index, zone in enumerate(zone_ids)}),
    )


def usable(cidr_block: str) -> int:
    """Return the number of assignable addresses of a subnet; ValueError: the text is no IPv4 range."""
    return max(0, ipaddress.IPv4Network(cidr_block).num_addresses - RESERVED_BY_AWS)


def address_interfaces(instance: InstanceType, interface_layout: str) -> int:
    """Return the number of a node's network interfaces with an address, in layout ``catalogue`` (the type's),
    ``efa-only``, ``ena`` or ``efa``; ValueError for another one."""
    layout = instance.interface_layout if interface_layout == "catalogue" else interface_layout
    if layout not in ("efa-only", "ena", "efa", "none"):
        raise ValueError(f"unknown interface layout {interface_layout!r}")
    if layout != "efa" or not instance.has_efa:
        return 1
    # Cards before the first with EFA carry a plain interface with its own address.
    return instance.first_efa_card + instance.efa_interfaces


def needed(instance: InstanceType, nodes: int, interface_layout: str = "catalogue", held: PodAddresses = PODS) -> int:
    """Return the addresses that ``nodes`` nodes take from their subnet before training pods need more: one for each
    interface with an address, and the addresses that the VPC CNI keeps for its expected pods (the same numbers
    configure the add-on)."""
    pods = EXPECTED_CPU_PODS if instance.family == "cpu" else EXPECTED_PODS
    return nodes * (address_interfaces(instance, interface_layout) + held.of(pods))


def max_pods(instance: InstanceType, interface_layout: str = "catalogue") -> int:
    """Return the most pods of a node, limited by its addresses in the interface layout.

    The VPC CNI adds interfaces to card 0 alone. In layout ``ena`` an ``efa-only`` interface takes one of the card's
    places: types with two places (trn2, p5, p5e) have only the addresses of the first interface.
    """
    layout = instance.interface_layout if interface_layout == "catalogue" else interface_layout
    taken = int(layout == "ena" and instance.has_efa and not instance.first_efa_card)
    held = address_pods(instance.interfaces_per_card - taken, instance.ipv4_per_interface)
    return min(instance.max_pods, held)
