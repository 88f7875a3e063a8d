"""Problems between the sections of a stack's config: zones, addresses, one set of production rules.

Paths start at the stack's root. ``zones`` are the zones of the private subnets, the accelerator zone first; ``subnets``
is zone id to the range of its private subnet, empty when it cannot be planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainium_eks.model.catalogue import lustre, regions, versions
from trainium_eks.model.catalogue.instances import Catalogue, InstanceType
from trainium_eks.model.config import addons, cluster, karpenter, network, node_groups
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.sizing import addresses
from trainium_eks.model.validation import formats, ranges
from trainium_eks.model.validation.problems import Problem, Severity, join, under

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig

MOST_NODE_GROUPS = 30
"""Managed node groups in one cluster (EKS quota L-6D54EA21)."""

MOST_INTERFACES = 5_000
"""Network interfaces in one region by default (VPC quota L-DF5E4CA3)."""

FILE_SYSTEM_GIB_PER_ADDRESS = 1200
"""A Lustre file system has an interface for each of its servers: at most one for each 1200 GiB, one for metadata."""


def _zone_path(group: NodeGroupConfig, index: int) -> str:
    """Return the path of a group's zone in the config, set or to be set."""
    in_capacity = group.zone_id is None and node_groups.zone_of(group) is not None
    return f"node_groups[{index}].{'capacity.zone_id' if in_capacity else 'zone_id'}"


def group_zone_problems(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str]) -> list[Problem]:
    """Return the problems of zones that the network lacks; a group without a zone goes to the accelerator zone."""
    found: list[Problem] = []
    for index, group in enumerate(config.node_groups):
        path, own = _zone_path(group, index), node_groups.zone_of(group)
        instance = catalogue.get(group.instance_type)
        if own is None:
            if instance is not None and instance.family != "cpu":
                found += _accelerator_zone_problems(path, instance, zones, config)
        elif own not in zones and not _refused_zone(config, catalogue, group):
            home = "existing_network.private_subnets" if config.existing_network else "network.zone_ids"
            reason = "the network has no private subnet in this zone"
            good = zones[0] if path.endswith("].zone_id") else None
            fix = f"add the zone to `{home}`"
            found.append(Problem(path, reason, fix, value=own, allowed=tuple(zones), good=good))
    return found


def _refused_zone(config: "StackConfig", catalogue: Catalogue, group: NodeGroupConfig) -> bool:
    """Return whether the zone of a group is refused by itself, and so will be another one."""
    found = node_groups.own_zone_problems(group, catalogue.get(group.instance_type), config.region)
    return any(problem.severity is Severity.REFUSE for problem in found)


def _accelerator_zone_problems(
    path: str, instance: InstanceType, zones: Sequence[str], config: "StackConfig"
) -> list[Problem]:
    """Return the problem of an accelerator zone that lacks the type; the fix is another zone, or another network."""
    found = node_groups.offer_problems(path, instance, zones[0], config.region)
    if not found or found[0].severity is Severity.WARN:
        return found
    offered = found[0].allowed
    within = next((zone for zone in zones if zone in offered), None)
    reason = f"the catalogue does not have {instance.name} in {zones[0]}, the accelerator zone"
    if within or config.existing_network is not None:
        fix = "" if within else "put a subnet of one of these zones first in `existing_network.private_subnets`"
        return [Problem(path, reason, fix, value=zones[0], allowed=offered, good=within)]
    others = [zone for zone in (*zones, *regions.default_zones(config.region)) if zone != offered[0]]
    good = (offered[0], others[0]) if others else None
    where = "network.zone_ids[0]" if config.network.zone_ids else "network.zone_ids"
    first = good[0] if good and config.network.zone_ids else good
    return [Problem(where, reason, value=zones[0], allowed=offered, good=first)]


def cpu_type_problems(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str]) -> list[Problem]:
    """Return the problems of CPU types that a zone lacks. System nodes are in every zone, the CPU pool is in the
    first."""
    found = []
    uses = (("system_nodes", config.cluster.system_nodes, zones), ("cpu_nodes", config.cluster.cpu_nodes, zones[:1]))
    for field, nodes, needed in uses:
        kind = catalogue.get(nodes.instance_type)
        offered = kind.zones.get(config.region, ()) if kind else ()
        missing = [zone for zone in needed if offered and zone not in offered]
        if missing:
            path = f"cluster.{field}.instance_type"
            reason = f"the catalogue does not have it in {formats.listed(missing)}"
            cpu = (name for name, each in catalogue.items() if each.family == "cpu")
            others = tuple(name for name in cpu if set(needed) <= set(catalogue[name].zones.get(config.region, ())))
            good = others[0] if others else None
            fix = "" if good else "name another type"
            found.append(Problem(path, reason, fix, value=nodes.instance_type, allowed=others, good=good))
    return found


def file_system_zone_problems(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str]) -> list[Problem]:
    """Return the problem of a file system outside the nodes' zone, where it is slow and traffic costs."""
    if config.file_system is None:
        return []
    zone = config.file_system.zone_id or zones[0]
    if zone not in zones:
        reason = "the network has no private subnet in this zone"
        return [Problem("file_system.zone_id", reason, value=zone, allowed=tuple(zones), good=zones[0])]
    settled = [group for group in config.node_groups if not _refused_zone(config, catalogue, group)]
    of_groups = {index: node_groups.zone_of(group) or zones[0] for index, group in enumerate(settled)}
    apart = {index: other for index, other in of_groups.items() if other != zone and other in zones}
    nodes = formats.listed(dict.fromkeys(apart.values() or of_groups.values() or zones[:1]))
    if not apart and (config.node_groups or zone == zones[0]):
        return []
    reason = (
        f"the file system is in {zone} and nodes that mount it are in {nodes}: slow, and traffic between zones costs"
    )
    everywhere = set(of_groups.values()) or {zones[0]}
    good = next(iter(everywhere)) if len(everywhere) == 1 else None
    fix = "" if good else "put the groups and the file system in one zone"
    return [Problem("file_system.zone_id", reason, fix, rule="R41", value=config.file_system.zone_id, good=good)]


def lustre_efa_problems(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """Return the problem of a file system that no team mounts, or of its EFA, which costs larger size steps, where
    nodes cannot use it."""
    if config.file_system is not None and not config.namespaces:
        reason = "no namespace mounts it, and its size is paid for"
        return [formats.warn("file_system", reason, "name the teams in `namespaces`, or set `file_system` to null")]
    if config.file_system is None or not config.file_system.efa_enabled:
        return []
    uses = {
        each.name: each.install_lustre_client is not False
        and bool(lustre.efa_client_interfaces(each.instance_type, catalogue[each.instance_type].efa_interfaces))
        for each in (*config.node_groups, *karpenter.as_groups(config))
        if each.instance_type in catalogue
    }
    over_tcp = [name for name, used in uses.items() if not used]
    nodes = f"the nodes of {formats.listed(over_tcp)} reach Lustre over TCP alone" if over_tcp else "there are no nodes"
    if len(over_tcp) == len(uses):
        severity, rule, fix = Severity.ACKNOWLEDGE, "R43", ""
        nodes += ", and EFA is paid for by larger size steps"
    else:
        severity, rule, fix = Severity.WARN, "", "or leave it: the other nodes use it"
    path = "file_system.efa_enabled"
    wrong = Problem(path, nodes, fix, severity=severity, rule=rule, value=True, good=False)
    return [wrong] if over_tcp or not uses else []


def lustre_client_problems(config: "StackConfig") -> list[Problem]:
    """Return a warning if nodes of this Kubernetes version are not known to mount the file system."""
    version, known = config.cluster.kubernetes_version, versions.NEWEST_KUBERNETES_WITH_LUSTRE
    if config.file_system is None or version not in versions.KUBERNETES_STANDARD_SUPPORT:
        return []
    if versions.minor(version) <= versions.minor(known):
        return []
    reason = f"nodes of {version} run a kernel on which the Lustre client has not been tested"
    fix = f"use {known}, or mount it on one node of each group before you move the others"
    return [formats.warn("cluster.kubernetes_version", reason, fix)]


def address_problems(
    config: "StackConfig", catalogue: Catalogue, zones: Sequence[str], subnets: Mapping[str, str]
) -> list[Problem]:
    """Return a problem for each private subnet with too few addresses for its zone, every group at its largest."""
    found = []
    for zone, subnet in subnets.items():
        if ranges.read(subnet) is None:
            continue
        demand = address_demand(config, catalogue, zones, zone)
        total, have = sum(demand.values()), addresses.usable(subnet)
        if total <= have:
            continue
        parts = ", ".join(f"{count} {what}" for what, count in demand.items() if count)
        reason = f"the private subnet of {zone} ({subnet}) has {have} addresses and {total} are needed: {parts}"
        if config.existing_network is not None:
            at = [each.zone_id for each in config.existing_network.private_subnets].index(zone)
            path = join("existing_network.private_subnets", at)
            fix = "use a larger subnet, or smaller groups"
            found.append(Problem(f"{path}.cidr_block", reason, fix, value=subnet))
            continue
        good = _larger_vpc(config.network.cidr_block, zones, zone, total)
        fix = "use smaller groups, or `interface_layout` efa-only" if good is None else "or use smaller groups"
        found.append(Problem("network.cidr_block", reason, fix, value=config.network.cidr_block, good=good))
    return found


def address_demand(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str], zone: str) -> dict[str, int]:
    """Return the addresses needed in one zone by each user of addresses, every group at its largest. ``zones`` are
    the zones of the private subnets, the accelerator zone first."""
    return dict(_demand(config, catalogue, zones, zone))


def _demand(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str], zone: str) -> Iterator[tuple[str, int]]:
    """Yield each user of addresses in one zone, with its number of addresses."""
    yield "for the control plane", addresses.CONTROL_PLANE_ADDRESSES
    held = addons.pod_addresses(config.cluster.addons)
    for group in (*config.node_groups, *karpenter.as_groups(config)):
        instance = catalogue.get(group.instance_type)
        if instance is not None and (node_groups.zone_of(group) or zones[0]) == zone:
            each = addresses.needed(instance, 1, group.interface_layout, held)
            yield f"for {group.name} ({group.max_size} x {each})", each * max(group.max_size, 0)
    pools = [("system nodes", config.cluster.system_nodes)]
    if zone == zones[0]:
        pools.append(("CPU nodes", config.cluster.cpu_nodes))
    for what, nodes in pools:
        instance = catalogue.get(nodes.instance_type)
        if instance is not None:
            yield f"for {what}", addresses.needed(instance, max(nodes.max_size, 0), "none", held)
    started = config.autoscaling.karpenter
    if started is not None and zone == zones[0]:
        types = [catalogue[name] for name in started.instance_types if name in catalogue]
        most = (addresses.needed(each, max(started.cpu_limit, 0) // each.vcpus, "none", held) for each in types)
        yield "for Karpenter's CPU nodes", max(most, default=0)
    yield "for interface endpoints", 0 if config.existing_network else len(config.network.interface_endpoints)
    if config.file_system is not None and (config.file_system.zone_id or zones[0]) == zone:
        yield "for the file system", 1 + max(config.file_system.storage_capacity_gib, 0) // FILE_SYSTEM_GIB_PER_ADDRESS


def _larger_vpc(vpc_range: str, zones: Sequence[str], zone: str, total: int) -> str | None:
    """Return the smallest range around the VPC's range that gives the private subnet in ``zone`` ``total``
    addresses."""
    vpc = ranges.read(vpc_range)
    for prefix in range(vpc.prefixlen - 1 if vpc else 0, addresses.SHORTEST_PREFIX - 1, -1):
        larger = str(vpc.supernet(new_prefix=prefix)) if vpc else ""
        if addresses.usable(addresses.plan(larger, zones).private[zone]) >= total:
            return larger
    return None


def range_problems(config: "StackConfig", vpc_range: str) -> list[Problem]:
    """Return the problem of service addresses that overlap the VPC or a peer."""
    service = config.cluster.service_cidr_block
    peers = (config.existing_network or config.network).peer_cidr_blocks
    section = "existing_network" if config.existing_network else "network"
    # Subnets in the VPC's further ranges matter; the others lie in its first range.
    subnets = network.subnets(config.existing_network) if config.existing_network else {}
    used = {
        vpc_range: "the VPC's range",
        **{subnet.cidr_block: f"the range of subnet {subnet.id}" for subnet in subnets.values()},
        **dict.fromkeys(peers, "a peer's range"),
    }
    for other, what in used.items():
        if ranges.overlap(service, other):
            reason = f"it overlaps {what} {other} (`{section}`): traffic to those addresses would go to services"
            taken = tuple(used)
            candidates = ("172.20.0.0/16", "10.100.0.0/16", "172.24.0.0/16", "192.168.0.0/17", "10.200.0.0/16")
            good = next((text for text in candidates if not any(ranges.overlap(text, each) for each in taken)), None)
            fix = "" if good else "take a private range that nothing else has"
            return [Problem("cluster.service_cidr_block", reason, fix, value=service, good=good)]
    return []


def first_up_problems(config: "StackConfig") -> list[Problem]:
    """Return the problem of a first `up` that cannot reach the Kubernetes API: a VPC that the stack makes itself then
    holds no machine and has no peer."""
    endpoint, used = config.cluster.endpoint, config.existing_network or config.network
    found = under("cluster.endpoint", cluster.peer_problems(endpoint, used.peer_cidr_blocks))
    if endpoint.public_access_cidrs or endpoint.private_access_via is None or config.existing_network is not None:
        return found
    reason = (
        "the public endpoint is off and this stack makes the VPC itself: on the first `up` nothing is in the VPC or "
        "tied to it, and the first Kubernetes object waits for an API that nobody reaches"
    )
    fix = (
        "make the network before, with a machine in it, and adopt it in `existing_network` (docs/deploying.md, "
        "Production from nothing); or name your own address here for the first `up` (203.0.113.7/32), and empty the "
        "list when a machine is in the VPC"
    )
    path = "cluster.endpoint.public_access_cidrs"
    return [*found, Problem(path, reason, fix, rule="R91")]


def monitoring_problems(config: "StackConfig") -> list[Problem]:
    """Return the problem of a CPU pool without a node for Prometheus and Grafana, which need the zone of their volumes
    (R92)."""
    cpu, scaling = config.cluster.cpu_nodes, config.autoscaling
    grown = scaling.cluster_autoscaler is not None or bool(scaling.karpenter and scaling.karpenter.cpu_limit)
    if config.observability.metrics is None or cpu.desired_size > 0 or cpu.ignore_desired_size or grown:
        return []
    reason = "Prometheus and Grafana run on the CPU pool, in the zone of their volumes, and it has no node"
    return [Problem("cluster.cpu_nodes.desired_size", reason, value=0, good=1)]


def production_problems(config: "StackConfig", zones: Sequence[str]) -> list[Problem]:
    """Return the problems of a network under the production rules; cluster and file system validate their own part."""
    if not config.production or config.existing_network is not None or len(zones) < 2:
        return []
    missing = network.lacks_endpoints(config.network)
    if config.network.nat_gateways == "per-zone" or not missing:
        return []
    reason = "one NAT gateway in production: if its zone fails, every node is cut off"
    fix = f"or add the `network.interface_endpoints` {formats.listed(missing)}"
    return [Problem("network.nat_gateways", reason, fix, rule="R34", value="single", good="per-zone")]


def quota_problems(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """Return warnings for sizes above AWS' default quotas, which AWS raises on request."""
    found = []
    groups = len(config.node_groups) + 2
    if groups > MOST_NODE_GROUPS:
        reason = f"{groups} node groups, system and CPU nodes included; EKS allows {MOST_NODE_GROUPS} in a cluster"
        found.append(formats.warn("node_groups", reason, "ask for more (quota L-6D54EA21), or join groups"))
    interfaces = {
        group.name: max(catalogue[group.instance_type].efa_interfaces, 1) * max(group.max_size, 0)
        for group in config.node_groups
        if group.instance_type in catalogue
    }
    total = sum(interfaces.values())
    if total > MOST_INTERFACES:
        reason = f"{total} network interfaces at `max_size`; a region has {MOST_INTERFACES} by default"
        found.append(formats.warn("node_groups", reason, "ask for more (quota L-DF5E4CA3) first"))
    return found


def principal_problems(config: "StackConfig") -> list[Problem]:
    """Return the principals that would get two access entries."""
    admins = config.cluster.admin_principals
    found = []
    for index, namespace in enumerate(config.namespaces):
        for at, arn in enumerate(namespace.principals):
            path = f"namespaces[{index}].principals[{at}]"
            if arn in admins:
                reason = "it is an administrator of the cluster already, and EKS takes one access entry for a principal"
                found.append(Problem(path, reason, "remove it from one of the two", value=arn))
    return found
