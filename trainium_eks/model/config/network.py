"""The network section: a new VPC, or an existing one adopted by ids."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from trainium_eks.model.catalogue import regions
from trainium_eks.model.sizing import addresses
from trainium_eks.model.validation import formats, ranges
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool
from trainium_eks.model.validation.problems import Problem, join, nearest, under

COMPLETE_ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "fsx", "logs", "ssm", "sts")
"""Interface endpoints that together replace a NAT in every zone for nodes (rule R34); S3 has its gateway."""

KNOWN_ENDPOINTS = (
    *COMPLETE_ENDPOINTS, "aps-workspaces", "autoscaling", "ec2messages", "elasticfilesystem", "elasticloadbalancing",
    "kms", "monitoring", "s3", "secretsmanager", "sqs", "ssmmessages", "xray",
)  # fmt: skip
"""Services that clusters of this kind use; others are taken with a warning."""


class NetworkConfig(ConfigModel):
    """A new VPC: one public and one private subnet in each zone, NAT, gateway endpoint, flow logs."""

    cidr_block: str = "10.0.0.0/16"
    """Address range of the VPC, /16 to /28. Private subnets take its larger part: EFA nodes use many addresses."""
    zone_ids: tuple[str, ...] = ()
    """Zones by id (``usw2-az4``), at least two; the first is the accelerator zone. Empty: the region's default
    pair from the catalogue, where trn1.32xlarge and trn1n.32xlarge are offered."""
    nat_gateways: Literal["single", "per-zone"] = "single"
    """``single``: one, in the accelerator zone (if that zone fails, the others are cut off). ``per-zone``: one each."""
    interface_endpoints: tuple[str, ...] = ()
    """Interface endpoints by service name without prefix (``ecr.api``, ``sts``); each costs money per zone and hour."""
    flow_logs: StrictBool = True
    """Log every connection in CloudWatch, by a role and a log group of the VPC's own, for 0.50 USD a GB."""
    flow_log_retention_days: formats.RetentionDays = 365
    """Days that flow logs are kept in CloudWatch."""
    peer_cidr_blocks: tuple[str, ...] = ()
    """Ranges reached by peering, a VPN or a transit gateway; the VPC must not overlap them. They may reach the private
    endpoint of the Kubernetes API."""


class ExistingSubnet(ConfigModel):
    """One subnet of an existing VPC."""

    id: formats.SubnetId
    """Id of the subnet."""
    zone_id: str
    """Zone id of the subnet (``usw2-az4``), not its name: names differ between accounts."""
    cidr_block: str
    """The subnet's address range; the address budget is counted against it."""


class ExistingNetworkConfig(ConfigModel):
    """An existing VPC. Private subnets need a NAT or endpoints."""

    vpc_id: formats.VpcId
    """Id of the VPC."""
    cidr_block: str
    """Primary address range of the VPC."""
    private_subnets: tuple[ExistingSubnet, ...]
    """Private subnets in at least two zones; the first one's zone is the accelerator zone."""
    public_subnets: tuple[ExistingSubnet, ...] = ()
    """Public subnets, for load balancers; may be empty."""
    peer_cidr_blocks: tuple[str, ...] = ()
    """As in a new network."""


def validate(network: NetworkConfig, *, region: str) -> list[Problem]:
    """Return the problems of a new network in ``region``. Paths are relative to the section."""
    found = formats.usable_cidr("cidr_block", network.cidr_block, shortest=16, longest=28, what="a VPC's range")
    found += _zone_list_problems(network, region)
    if not found:
        found += _plan_problems(network, region)
    free = _free_range(network.cidr_block, network.peer_cidr_blocks)
    fix = "take a range for the VPC that no peer uses"
    found += _peer_problems(network.cidr_block, network.peer_cidr_blocks, fix, good=free)
    found += _endpoint_problems(network.interface_endpoints)
    return found


def existing_problems(network: ExistingNetworkConfig, *, region: str) -> list[Problem]:
    """Return the problems of an adopted network in ``region``. Paths are relative to the section."""
    found = formats.usable_cidr("cidr_block", network.cidr_block, shortest=16, longest=28, what="a VPC's range")
    every = subnets(network)
    for path, subnet in every.items():
        found += under(path, _subnet_problems(subnet, network, region))
    for field, of_kind in (("private_subnets", network.private_subnets), ("public_subnets", network.public_subnets)):
        found += formats.duplicates(field, [subnet.zone_id for subnet in of_kind], "zone_id")
    zones = [subnet.zone_id for subnet in network.private_subnets]
    if len(set(zones)) < 2:
        found.append(_too_few_zones("private_subnets", zones))
    found += _clashes(tuple(every.items()))
    found += _peer_problems(network.cidr_block, network.peer_cidr_blocks, "adopt a VPC that no peer overlaps")
    return found


def additional_ranges(network: NetworkConfig | ExistingNetworkConfig) -> tuple[str, ...]:
    """Return the ranges outside the VPC's primary range that reach its private addresses: the ranges of subnets in the
    VPC's further ranges, and the peers' ranges."""
    own = subnets(network).values() if isinstance(network, ExistingNetworkConfig) else ()
    further = (each.cidr_block for each in own if not ranges.overlap(each.cidr_block, network.cidr_block))
    return tuple(dict.fromkeys((*further, *network.peer_cidr_blocks)))


def zones_are_sound(zones: Sequence[str], region: str) -> bool:
    """Return whether a cluster can be in these zones of the region, as far as their ids tell."""
    return len(set(zones)) > 1 and not any(zone_problems("", zone, region) for zone in zones)


def subnets(network: ExistingNetworkConfig) -> dict[str, ExistingSubnet]:
    """Return every subnet of an adopted network by its path in the section (``public_subnets[0]``), private ones
    first."""
    kinds = (("private_subnets", network.private_subnets), ("public_subnets", network.public_subnets))
    return {join(field, index): subnet for field, of_kind in kinds for index, subnet in enumerate(of_kind)}


def zone_problems(path: str, zone_id: str, region: str) -> list[Problem]:
    """Return the problems of one zone id of ``region``; used wherever a zone is named."""
    prefix = regions.region_zone_prefix(region)
    example = f"{prefix or 'usw2'}-az1"
    if re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]", zone_id):
        reason = "it is a zone's name, which means another place in each account; give the zone's id"
        fix = "aws ec2 describe-availability-zones shows the ids beside the names"
        return [Problem(path, reason, fix, value=zone_id, allowed=(f"ids such as {example}",))]
    if regions.EDGE_ZONE_ID.fullmatch(zone_id):
        reason = "it is the id of a local or Wavelength zone, where EKS puts no control plane"
        fix = f"give a zone of the region itself: {example} and the like"
        return [Problem(path, reason, fix, value=zone_id, allowed=(f"ids such as {example}",))]
    if not regions.ZONE_ID.fullmatch(zone_id):
        fix = f"give the id: {example} and the like"
        return [Problem(path, "it is not a zone id", fix, value=zone_id, allowed=(f"ids such as {example}",))]
    if regions.zone_belongs(zone_id, region) is False:
        good = re.sub(r"^[a-z]+\d", prefix, zone_id)
        allowed = (f"{prefix}-az<number>",)
        fix = f"zones of {region} are {good} and the like"
        return [Problem(path, f"it is not a zone of {region}", fix, value=zone_id, allowed=allowed)]
    return []


def lacks_endpoints(network: NetworkConfig) -> tuple[str, ...]:
    """Return the interface endpoints that are missing for one NAT gateway to be no single point of failure."""
    return tuple(name for name in COMPLETE_ENDPOINTS if name not in network.interface_endpoints)


def _zone_list_problems(network: NetworkConfig, region: str) -> list[Problem]:
    zones = network.zone_ids
    if not zones:
        if regions.default_zones(region) or region not in regions.REGIONS:
            return []
        reason = f"{region} has no default zones: name two, the one that offers the accelerators first"
        prefix = regions.region_zone_prefix(region)
        return [Problem("zone_ids", reason, good=(f"<{prefix}-az…>", f"<{prefix}-az…>"))]
    found = [
        problem
        for index, zone in enumerate(zones)
        for problem in (
            *zone_problems(join("zone_ids", index), zone, region),
            *_control_plane_problems(join("zone_ids", index), zone, region, zones),
        )
    ]
    if len(set(zones)) < 2:
        found.append(_too_few_zones("zone_ids", zones, region))
    return found


def _control_plane_problems(path: str, zone_id: str, region: str, named: Sequence[str]) -> list[Problem]:
    if zone_id not in regions.CONTROL_PLANE_REFUSED_ZONES:
        return []
    # Subnets of every zone listed here are given to the control plane too.
    others = [zone for zone in regions.default_zones(region) if zone != zone_id and zone not in named]
    reason = "it is among the zones in which EKS places no control plane, as far as this release knows"
    allowed = (f"zones of {region} other than {formats.listed(sorted(regions.CONTROL_PLANE_REFUSED_ZONES))}",)
    fix = "" if others else "take another zone"
    return [Problem(path, reason, fix, value=zone_id, allowed=allowed, good=others[0] if others else None)]


def _too_few_zones(path: str, zones: Sequence[str], region: str = "") -> Problem:
    named = formats.listed(dict.fromkeys(zones))
    reason = (
        f"EKS needs subnets in at least two zones, got {len(set(zones))} ({named}); accelerators may stay in the first"
    )
    defaults = regions.default_zones(region)
    first = zones[0] if zones and regions.zone_belongs(zones[0], region) else next(iter(defaults), "")
    second = next((zone for zone in defaults if zone != first), "")
    good = (first, second) if first and second else None
    return Problem(path, reason, "" if good else "add a second zone", good=good)


def _plan_problems(network: NetworkConfig, region: str) -> list[Problem]:
    zones = network.zone_ids or regions.default_zones(region)
    try:
        addresses.plan(network.cidr_block, zones)
    except ValueError as error:
        good = str(ipaddress.ip_network(network.cidr_block).supernet(new_prefix=addresses.SHORTEST_PREFIX))
        return [Problem("cidr_block", str(error), value=network.cidr_block, good=good)] if zones else []
    return []


def _subnet_problems(subnet: ExistingSubnet, network: ExistingNetworkConfig, region: str) -> list[Problem]:
    found = zone_problems("zone_id", subnet.zone_id, region)
    found += _control_plane_problems("zone_id", subnet.zone_id, region, ())
    faults = formats.usable_cidr("cidr_block", subnet.cidr_block, shortest=16, longest=28, what="a subnet's range")
    inner, outer = ranges.read(subnet.cidr_block), ranges.read(network.cidr_block)
    if not faults and inner and outer and not inner.subnet_of(outer):
        # Right when the VPC has further ranges, as in the Trainium blueprints.
        reason = f"{subnet.cidr_block} lies outside the VPC's primary range {network.cidr_block}"
        outside = formats.warn("cidr_block", reason, "see that it lies in a further range of the VPC")
        faults += _further_range_problems(subnet.cidr_block, network.peer_cidr_blocks) or [outside]
    return found + faults


def _further_range_problems(subnet_range: str, peers: Iterable[str]) -> list[Problem]:
    """Return the peers that overlap a subnet in a further range; peers that overlap the primary range are reported at
    the VPC."""
    return [
        Problem(
            "cidr_block",
            f"it overlaps the peer's range {peer}: traffic to it would stay in the VPC",
            "adopt a subnet that no peer overlaps",
            value=subnet_range,
        )
        for peer in peers
        if ranges.overlap(subnet_range, peer)
    ]


def _clashes(subnets: Sequence[tuple[str, ExistingSubnet]]) -> list[Problem]:
    """Return the subnets that are named twice, and subnets with overlapping ranges."""
    found = []
    for index, (path, subnet) in enumerate(subnets):
        for there, other in subnets[:index]:
            if subnet.id == other.id:
                reason = f"it is the same subnet as `{there}.id`"
                found.append(Problem(f"{path}.id", reason, "name each once", value=subnet.id))
            elif ranges.overlap(subnet.cidr_block, other.cidr_block):
                reason = f"it overlaps `{there}.cidr_block` ({other.cidr_block})"
                fix = "give the range that the subnet really has"
                found.append(Problem(f"{path}.cidr_block", reason, fix, value=subnet.cidr_block))
    return found


def _peer_problems(vpc_range: str, peers: Iterable[str], fix: str, good: str | None = None) -> list[Problem]:
    found = []
    for index, peer in enumerate(peers):
        path = join("peer_cidr_blocks", index)
        found += formats.usable_cidr(path, peer, what="a peer's range")
        if ranges.overlap(peer, vpc_range):
            reason = f"the VPC's range {vpc_range} overlaps the peer's {peer}: traffic to it would stay in the VPC"
            found.append(Problem("cidr_block", reason, fix, value=vpc_range, good=good))
    return found


def _free_range(vpc_range: str, peers: Iterable[str]) -> str | None:
    """Return a private range of the VPC's size that no peer overlaps; None without one."""
    vpc = ranges.read(vpc_range)
    if vpc is None or not 16 <= vpc.prefixlen <= 28:
        return None
    candidates = (f"10.{second}.0.0/{vpc.prefixlen}" for second in range(256))
    taken = list(peers)
    return next((text for text in candidates if not any(ranges.overlap(text, peer) for peer in taken)), None)


def _endpoint_problems(names: Sequence[str]) -> list[Problem]:
    found = []
    for index, name in enumerate(names):
        path = join("interface_endpoints", index)
        bare = re.sub(r"^(cn\.)?com\.amazonaws\.[a-z0-9-]+\.", "", name)
        if bare != name:
            reason = "it is the service's whole name, where the part after its prefix is wanted"
            found.append(Problem(path, reason, value=name, good=bare))
        elif not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*", name):
            reason = "it is not the name of an endpoint service"
            found.append(Problem(path, reason, value=name, allowed=KNOWN_ENDPOINTS))
        elif name == "s3":
            found.append(formats.warn(path, "the gateway endpoint of S3, which is free, is always there", "remove it"))
        elif name not in KNOWN_ENDPOINTS:
            guess = nearest(name, KNOWN_ENDPOINTS)
            hint = f"did you mean {guess}?" if guess else f"known: {', '.join(KNOWN_ENDPOINTS)}"
            found.append(formats.warn(path, f"{name} is not a known endpoint", hint))
    return found
