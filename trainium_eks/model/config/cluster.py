"""The cluster section: control plane, its endpoint and administrators, and CPU nodes."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from trainium_eks.model.catalogue import prices, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, near
from trainium_eks.model.config import addons
from trainium_eks.model.config.addons import AddonConfig
from trainium_eks.model.validation import formats, ranges
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Entries
from trainium_eks.model.validation.problems import Problem, Severity, join, under

_RANGES = Entries(0, 40, "EKS takes no more (EKS quotas)", "join neighbouring ranges")

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""Every kind of log that a control plane writes (EKS LogType); all are kept."""


class EndpointConfig(ConfigModel):
    """Access to the Kubernetes API. The private endpoint is always on."""

    public_access_cidrs: Annotated[tuple[str, ...], _RANGES] = ()
    """Ranges that reach the public endpoint. Empty turns it off: the private endpoint alone remains.
    ``0.0.0.0/0`` needs a waiver of R02 (and of R03 in production)."""
    private_access_via: Literal["vpc", "peers"] | None = None
    """Location of the machine that runs ``pulumi up``, when the public endpoint does not admit it: ``vpc``, in the VPC
    (a runner, CodeBuild), or ``peers``, in a range of the network's ``peer_cidr_blocks`` (VPN, transit gateway,
    peering). Opens port 443 of the private endpoint to the VPC and to those ranges, as does an empty
    ``public_access_cidrs``."""


class CpuNodesConfig(ConfigModel):
    """A CPU node group. Its sizes are per zone for system nodes, in total for the CPU pool."""

    instance_type: str = "m6i.xlarge"
    """EC2 type; 4 vCPU and 16 GiB hold the control components of one zone."""
    min_size: StrictInt = 1
    """Fewest nodes."""
    max_size: StrictInt = 3
    """Most nodes."""
    desired_size: StrictInt = 1
    """Number of nodes."""
    root_volume_gib: formats.RootVolumeGib = 100
    """Size of the encrypted gp3 root volume, GiB."""


class CpuPoolConfig(CpuNodesConfig):
    """The CPU pool: like system nodes, but it may have no node."""

    min_size: StrictInt = 0
    """Fewest nodes."""
    max_size: StrictInt = 4
    """Most nodes."""
    ignore_desired_size: StrictBool = False
    """True leaves ``desired_size`` to an autoscaler or to manual scaling: later changes to it here are ignored."""


class ClusterConfig(ConfigModel):
    """The EKS control plane and its CPU nodes."""

    kubernetes_version: str = versions.KUBERNETES
    """Minor version; ``1.35`` is the highest that Volcano 1.15 certifies."""
    endpoint: EndpointConfig = EndpointConfig()
    """Access to the Kubernetes API."""
    admin_principals: tuple[str, ...] = ()
    """IAM **role** or user ARNs that administer the cluster. The deployer is an administrator already and must not
    be listed: EKS refuses the second entry (pulumi-eks#2373)."""
    service_cidr_block: str = "172.20.0.0/16"
    """Range of Kubernetes service addresses; must not overlap the VPC or its peers."""
    logs: StrictBool = True
    """Keep all five types of control-plane logs in CloudWatch, for 0.50 USD a GB."""
    log_retention_days: formats.RetentionDays = 365
    """Days that control-plane logs are kept."""
    support_type: Literal["STANDARD", "EXTENDED"] = "STANDARD"
    """What happens when a version's standard support ends: STANDARD upgrades by itself, EXTENDED costs
    0.60 USD an hour instead of 0.10."""
    control_plane_tier: Literal["standard", "tier-xl", "tier-2xl", "tier-4xl", "tier-8xl"] | None = None
    """Provisioned control plane: capacity that is there before the load is (1,700, 3,400, 6,800 or 13,600 requests at
    the same time), for 1.65 to 13.90 USD an hour beside the cluster's price. Every Kubernetes version here has it (EKS
    asks for 1.28). Unset: EKS scales the control plane after the load. To go back, write ``standard``: leaving the key
    out changes nothing."""
    deletion_protection: StrictBool | None = None
    """EKS refuses to delete the cluster while true. Unset: on in production, off otherwise."""
    system_nodes: CpuNodesConfig = CpuNodesConfig()
    """Node group for control components, one in each zone."""
    cpu_nodes: CpuPoolConfig = CpuPoolConfig()
    """Small pool in the accelerator zone for staging, TensorBoard and monitoring."""
    addons: dict[str, AddonConfig] = pydantic.Field(default_factory=dict)
    """EKS add-ons by name. For the stack's own: another version or further settings. Others are installed after the
    nodes: ``{snapshot-controller: {version: v8.3.0-eksbuild.1}}``."""


def validate(
    cluster: ClusterConfig, *, production: bool, catalogue: Catalogue = CATALOGUE, zones: int = 1
) -> list[Problem]:
    """Return the problems of the cluster section. Paths are relative to it. System nodes are spread over ``zones``;
    their sizes are for each zone."""
    found = under("endpoint", _endpoint_problems(cluster.endpoint, production))
    found += [*_version_problems(cluster), *_age_problems(cluster)]
    for index, arn in enumerate(cluster.admin_principals):
        found += formats.principal(join("admin_principals", index), arn)
    found += _service_range_problems(cluster.service_cidr_block)
    if production and cluster.deletion_protection is False:
        reason = "it is off in production: one call deletes the cluster"
        found.append(Problem("deletion_protection", reason, rule="R06", value=False, good=True))
    found += under("system_nodes", _cpu_nodes_problems(cluster.system_nodes, catalogue, least=1))
    found += under("system_nodes", _total_size_problems(cluster.system_nodes, zones))
    found += under("cpu_nodes", _cpu_nodes_problems(cluster.cpu_nodes, catalogue, least=0))
    if cluster.kubernetes_version in versions.KUBERNETES_STANDARD_SUPPORT:
        found += under("addons", addons.validate(cluster.addons, cluster.kubernetes_version))
    return found


def size_problems(minimum: int, maximum: int, desired: int) -> list[Problem]:
    """Return the problems of a node group's ``min_size``, ``max_size`` and ``desired_size``."""
    if maximum < 1:
        return [Problem("max_size", "EKS refuses a group that can never have a node", value=maximum, good=1)]
    found = []
    if maximum > formats.LARGEST_NODE_GROUP:
        groups = -(-maximum // formats.LARGEST_NODE_GROUP)
        reason = f"EKS allows {formats.LARGEST_NODE_GROUP} nodes in a group; make {groups} groups of them"
        allowed = (f"1 to {formats.LARGEST_NODE_GROUP}",)
        good = formats.LARGEST_NODE_GROUP
        found.append(Problem("max_size", reason, value=maximum, allowed=allowed, good=good))
        maximum = formats.LARGEST_NODE_GROUP
    if minimum < 0:
        found.append(Problem("min_size", "it must be 0 or more", value=minimum, good=0))
    if minimum > maximum:
        reason = f"it is more than `max_size` ({maximum})"
        found.append(Problem("min_size", reason, value=minimum, good=maximum))
        minimum = maximum
    if not minimum <= desired <= maximum:
        side = (
            f"it is more than `max_size` ({maximum})"
            if desired > maximum
            else f"it is less than `min_size` ({minimum})"
        )
        allowed = (f"{max(minimum, 0)} to {maximum}",)
        good = max(min(desired, maximum), minimum, 0)
        found.append(Problem("desired_size", side, value=desired, allowed=allowed, good=good))
    return found


def _endpoint_problems(endpoint: EndpointConfig, production: bool) -> list[Problem]:
    public = endpoint.public_access_cidrs
    if not public and endpoint.private_access_via is None:
        reason = (
            "the public endpoint is off and nothing says from where `pulumi up` reaches the private one: it would stop "
            "at the first Kubernetes object"
        )
        fix = "name the ranges that may reach a public endpoint in `public_access_cidrs` (203.0.113.7/32)"
        return [Problem("private_access_via", reason, fix, allowed=("vpc", "peers"), good="vpc")]
    found: list[Problem] = []
    for index, text in enumerate(public):
        path = join("public_access_cidrs", index)
        if text == ranges.EVERYWHERE:
            reason = "the whole internet reaches the Kubernetes API"
            found += _open_endpoint_problems(path, reason, text, production)
            continue
        found += formats.cidr(path, text, what="a range that reaches the endpoint")
        if ranges.never_public(text):
            reason = (
                "it contains no public address, and EKS refuses such a range for the public endpoint; inside the VPC "
                "the private endpoint is always on"
            )
            found.append(Problem(path, reason, "give the public addresses of your office or VPN", value=text))
    opened = ranges.public_addresses(text for text in public if text != ranges.EVERYWHERE)
    if opened > ranges.MOST_PUBLIC_ADDRESSES:
        reason = f"{opened:,} addresses reach the Kubernetes API, more than a /8 ({ranges.MOST_PUBLIC_ADDRESSES:,})"
        found += _open_endpoint_problems("public_access_cidrs", reason, "", production)
    return found


def peer_problems(endpoint: EndpointConfig, peers: Sequence[str]) -> list[Problem]:
    """Return the problems between an endpoint and the ranges of a network's peers. Paths start at the endpoint."""
    if endpoint.private_access_via != "peers" or peers:
        return []
    reason = "the network names no range of peers, so that the private endpoint lets in the VPC alone"
    fix = "name the range of the machine that runs `pulumi up` in the network's `peer_cidr_blocks` (10.200.0.0/16)"
    return [Problem("private_access_via", reason, fix, value="peers", allowed=("vpc", "peers"))]


def _open_endpoint_problems(path: str, reason: str, text: str, production: bool) -> list[Problem]:
    fix = "name your own ranges, or leave the list empty and set `private_access_via`"
    value = text or None
    found = [Problem(path, reason, fix, rule="R02", value=value)]
    if production:
        in_production = f"{reason}, and this is production"
        found.append(Problem(path, in_production, fix, rule="R03", value=value))
    return found


def _version_problems(cluster: ClusterConfig) -> list[Problem]:
    version = cluster.kubernetes_version
    known = versions.KUBERNETES_STANDARD_SUPPORT
    path = "kubernetes_version"
    supported = tuple(each for each, support in known.items() if support.is_standard)
    support = known.get(version)
    if support is None or support.is_over:
        reason = "this release has no pins for it" if support is None else "its extended support is over"
        fix = "a newer release of this library may have them" if support is None else ""
        return [Problem(path, reason, fix, value=version, allowed=supported, good=versions.KUBERNETES)]
    if not support.is_standard:
        reason = (
            f"standard support ended on {support.standard_end} and extended support ends on {support.extended_end}; "
            f"until then the cluster costs {prices.EKS_EXTENDED_HOURLY:.2f} USD an hour instead of "
            f"{prices.EKS_CLUSTER_HOURLY:.2f}"
        )
        return [Problem(path, reason, rule="R05", value=version, allowed=supported, good=versions.KUBERNETES)]
    if versions.minor(version) > versions.minor(versions.KUBERNETES):
        reason = f"it is newer than {versions.KUBERNETES}, the last one that the pinned Volcano certifies"
        return [Problem(path, reason, severity=Severity.WARN, value=version, good=versions.KUBERNETES)]
    if version not in versions.AMI_RELEASES:
        reason = f"no node image release is pinned for {version}: groups made on different days get different drivers"
        return [
            Problem(path, reason, "set `release_version` of each node group", severity=Severity.WARN, value=version)
        ]
    return []


def _age_problems(cluster: ClusterConfig) -> list[Problem]:
    """Return the problems of a version that is near the end of its standard support, and of an old AMI release."""
    version, path = cluster.kubernetes_version, "kubernetes_version"
    support, found = versions.KUBERNETES_STANDARD_SUPPORT.get(version), []
    if support is not None and 0 <= support.days_left < versions.SUPPORT_DAYS:
        upgrades = cluster.support_type == "STANDARD"
        then = "EKS then upgrades it by itself, under running jobs" if upgrades else "it then costs six times as much"
        reason = f"its standard support ends on {support.standard_end}, in {support.days_left} days: {then}"
        near = support.days_left < versions.SUPPORT_DAYS_WITHOUT_WAIVER
        severity, rule = (Severity.ACKNOWLEDGE, "R05") if near else (Severity.WARN, "")
        good = versions.successor(version) or None
        fix = "" if good else "take a newer release of this library: this one certifies no later version"
        # Without a version to go to, the price's line says when support ends, and nothing warns before it is near.
        if good or near:
            found.append(Problem(path, reason, fix, severity=severity, rule=rule, value=version, good=good))
    release = versions.AMI_RELEASES.get(version)
    if release is not None and (age := versions.ami_age_days(release)) > versions.AMI_DAYS:
        fix = "take a newer release of this library, or set `release_version` of each node group"
        found.append(formats.warn(path, f"nodes start from the pinned AMI release {release}, {age} days old", fix))
    return found


def _service_range_problems(text: str) -> list[Problem]:
    path = "service_cidr_block"
    found = formats.cidr(path, text, shortest=12, longest=24, what="the range of service addresses")
    network = ranges.read(text)
    if not found and network and not any(network.subnet_of(private) for private in ranges.PRIVATE):
        allowed = tuple(map(str, ranges.PRIVATE))
        reason = "service addresses must be in a private range"
        found.append(Problem(path, reason, value=text, allowed=allowed, good="172.20.0.0/16"))
    return found


def _cpu_nodes_problems(nodes: CpuNodesConfig, catalogue: Catalogue, *, least: int) -> list[Problem]:
    found = size_problems(nodes.min_size, nodes.max_size, nodes.desired_size)
    if not found and nodes.desired_size < least:
        reason = "DNS, the scheduler and the controllers need a node in each zone"
        found.append(Problem("desired_size", reason, value=nodes.desired_size, good=least))
    cpu_types = tuple(name for name, kind in catalogue.items() if kind.family == "cpu")
    if nodes.instance_type not in cpu_types:
        known = nodes.instance_type in catalogue
        reason = (
            "it is an accelerator's type: its taint keeps other pods away" if known else "it is not in the catalogue"
        )
        fix = "take m6i.xlarge, or describe the type in the stack's `instance_types`: {<name>: {like: m6i.xlarge}}"
        good = near(nodes.instance_type, cpu_types)
        found.append(Problem("instance_type", reason, fix, value=nodes.instance_type, allowed=cpu_types, good=good))
    elif least and (catalogue[nodes.instance_type].vcpus < 4 or catalogue[nodes.instance_type].memory_gib < 16):
        reason = f"{nodes.instance_type} has less than the 4 vCPU and 16 GiB that one zone's control components take"
        found.append(formats.warn("instance_type", reason, "take m6i.xlarge or larger"))
    return found


def _total_size_problems(nodes: CpuNodesConfig, zones: int) -> list[Problem]:
    """Return the problem of too many system nodes: they are one group over all zones, and EKS bounds a group's size."""
    total, most = nodes.max_size * zones, formats.LARGEST_NODE_GROUP
    if nodes.max_size > most or total <= most:
        return []
    reason = f"{nodes.max_size} in each of {zones} zones make a group of {total} nodes; EKS allows {most}"
    good = most // zones
    return [Problem("max_size", reason, value=nodes.max_size, allowed=(f"1 to {good}",), good=good)]
