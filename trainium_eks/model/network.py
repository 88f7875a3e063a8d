"""The network section: a new VPC, or an existing one adopted by ids."""

from typing import Literal

from trainium_eks.model.shape import Shape, Whole


class NetworkConfig(Shape):
    """A new VPC: one public and one private subnet in each zone, NAT, gateway endpoint, flow logs."""

    cidr_block: str = "10.0.0.0/16"
    """Address range of the VPC, /16 to /28. Private subnets take its larger part: EFA nodes use many addresses."""
    zone_ids: tuple[str, ...] = ()
    """Zones by id (``usw2-az4``), at least two; the first is the accelerator zone. Empty: the region's default
    pair from the catalogue, where trn1.32xlarge and trn1n.32xlarge are offered."""
    nat_gateways: Literal["single", "per-zone"] = "single"
    """``single``: one, in the accelerator zone (a zone's failure cuts the others off). ``per-zone``: one each."""
    interface_endpoints: tuple[str, ...] = ()
    """Interface endpoints by service name without prefix (``ecr.api``, ``sts``); each costs money per zone and hour."""
    flow_log_retention_days: Whole = 365
    """Days that flow logs are kept in CloudWatch (an allowed CloudWatch retention)."""
    peer_cidr_blocks: tuple[str, ...] = ()
    """Ranges reached by peering or a transit gateway; the VPC must not overlap them."""


class ExistingSubnet(Shape):
    """One subnet of a VPC that is already there."""

    id: str
    """``subnet-`` and 8 or 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the subnet (``usw2-az4``), not its name: names differ between accounts."""
    cidr_block: str
    """The subnet's address range; the address budget is counted against it."""


class ExistingNetworkConfig(Shape):
    """A VPC that is already there. Private subnets need a NAT or endpoints of their own."""

    vpc_id: str
    """``vpc-`` and 8 or 17 hexadecimal digits."""
    cidr_block: str
    """Primary address range of the VPC."""
    private_subnets: tuple[ExistingSubnet, ...]
    """Private subnets in at least two zones; the first one's zone is the accelerator zone."""
    public_subnets: tuple[ExistingSubnet, ...] = ()
    """Public subnets, for load balancers; may be empty."""
    peer_cidr_blocks: tuple[str, ...] = ()
    """As in a new network."""
