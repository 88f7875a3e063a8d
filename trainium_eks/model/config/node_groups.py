"""The accelerator node groups, each with one instance type, one zone and one purchase option."""

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import pydantic

from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.model.catalogue.instances import Catalogue, InstanceType, near
from trainium_eks.model.config import capacity as capacities
from trainium_eks.model.config.capacity import Capacity, CapacityBlock, OnDemand, Reservation
from trainium_eks.model.config.cluster import size_problems
from trainium_eks.model.config.network import zone_problems
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, LooseStr, OutputText, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, Severity, join, join_key, under

ROOT_THROUGHPUT_MIBPS = 500
"""Throughput of every node's root volume, MiB/s: at gp3's 125 a 15 GiB Neuron image unpacks for two minutes; the
3000 IOPS that gp3 starts with carry up to 750."""

_RELEASE = re.compile(r"(?P<minor>1\.[0-9]+)\.[0-9]+-(?P<date>[0-9]{8})")

_Count = Annotated[StrictInt | None, Bounds(1, unit="nodes")]
_Percent = Annotated[StrictInt | None, Bounds(1, 100, "%")]


class NodeRepairOverrideConfig(ConfigModel):
    """One fault of a node, and the action that overrides EKS' default. The names of the keys are the EKS API's."""

    node_monitoring_condition: Literal[
        "AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady", "Ready"
    ]
    """Condition of the node (EKS user guide, node repair)."""
    node_unhealthy_reason: str
    """Reason in the node's condition: ``NeuronDMAError``."""
    repair_action: Literal["Replace", "Reboot", "NoAction"]
    """What is done about it."""
    min_repair_wait_time_mins: Annotated[StrictInt, Bounds(1, unit="minutes")] = 10
    """Minutes that the fault lasts before."""


class NodeRepairConfig(ConfigModel):
    """Bounds of the repair of broken nodes, by number or by share. The names of the keys are the EKS API's."""

    max_unhealthy_node_threshold_count: _Count = None
    """With more broken nodes than these EKS repairs none: the fault is elsewhere, as in an image or a switch."""
    max_unhealthy_node_threshold_percentage: _Percent = None
    """The same as a share of the group. Unset: 20 in a group of more than five nodes."""
    max_parallel_nodes_repaired_count: _Count = None
    """Nodes repaired at the same time; unset: all broken ones."""
    max_parallel_nodes_repaired_percentage: _Percent = None
    """The same as a share of the broken nodes."""
    node_repair_config_overrides: tuple[NodeRepairOverrideConfig, ...] = ()
    """Faults about which EKS does something else than by default."""


class NodeGroupConfig(ConfigModel):
    """One accelerator node group. The facts of its type (accelerators, EFA, taint, AMI) come from the catalogue."""

    name: str
    """Name of the group within the stack (``trn1-32xl-ng1``): lower-case letters, digits and dashes."""
    instance_type: str
    """A type of the catalogue (``trn1.32xlarge``) or of ``instance_types`` in the stack's config."""
    min_size: StrictInt = 0
    """Fewest nodes; 0 lets the group rest."""
    max_size: StrictInt = 1
    """Most nodes, 1 to 450."""
    desired_size: StrictInt = 0
    """Number of nodes. With ``ignore_desired_size`` only at first."""
    capacity: Capacity = OnDemand()
    """How EC2 provides the instances: ``{type: on-demand}``, ``{type: spot}``,
    ``{type: reservation, id: cr-…, zoneId: usw2-az4}`` or ``{type: capacity-block, id: cr-…, zoneId: usw2-az4}``, which
    with the block's ``starts``, ``ends`` and ``nodes`` grows by itself when the block starts."""
    zone_id: str | None = None
    """Zone of the nodes. Unset: the capacity's zone, else the network's accelerator zone."""
    interface_layout: Literal["catalogue", "efa-only", "ena", "efa"] = "catalogue"
    """How EFA interfaces are laid out over the network cards. ``efa-only``: card 0 ``efa``, further cards ``efa-only``
    (one address a node, needs vpc-cni 1.18.5). ``ena``: card 0 ``interface``, EFA beside it. ``efa``: every card
    ``efa`` (one address a card)."""
    placement_group: OutputText = "auto"
    """``auto``: a cluster placement group for plain On-Demand, none (or the reservation's own) otherwise.
    ``none``: never. Anything else: the name of an existing group."""
    root_volume_gib: formats.RootVolumeGib | None = None
    """Size of the encrypted gp3 root volume, GiB. Unset: 100 where containers live on local NVMe, 500 otherwise."""
    local_storage: Literal["raid0", "none"] = "raid0"
    """``raid0``: local NVMe disks become one volume that holds containers and images. ``none``: left alone."""
    labels: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Further node labels."""
    max_unavailable: Annotated[StrictInt, Bounds(1, 100, "nodes", "EKS updates no more at a time")] = 1
    """Nodes an update may take down at a time."""
    node_repair: NodeRepairConfig = NodeRepairConfig()
    """Bounds of the repair of broken nodes."""
    ignore_desired_size: StrictBool = False
    """True leaves ``desired_size`` to an autoscaler or to manual scaling: later changes to it here are ignored."""
    all_or_nothing: StrictBool = False
    """True lets ``trn scale`` and ``trn train`` start all missing nodes or none, by a short reservation; On-Demand
    capacity alone (docs/autoscaling.md)."""
    hugepages_2mi: Annotated[StrictInt | None, Bounds(0, unit="pages")] = None
    """2 MiB hugepages that user data reserves on each node. Unset: the catalogue's number (0 on Trainium)."""
    install_lustre_client: StrictBool | None = None
    """Whether the Lustre client is installed at boot: EKS' AMIs have its kernel modules without the tools, and the file
    system's settings never reach a client without them (amazon-eks-ami#2696, aws-fsx-csi-driver#460). Unset: where the
    stack has a file system, as on CPU nodes and Karpenter's."""
    release_version: str | None = None
    """AMI release (``1.35.0-20260723``). Unset: the pinned one for the Kubernetes version and AMI type."""
    kubernetes_version: str | None = None
    """Minor version of the nodes. Unset: the cluster's. The one before, or up to three before, keeps nodes and the jobs
    on them while the control plane is upgraded."""


def validate(
    group: NodeGroupConfig,
    *,
    region: str,
    catalogue: Catalogue,
    vpc_cni_version: str = addon_records.VPC_CNI.version(versions.KUBERNETES),
    kubernetes_version: str = versions.KUBERNETES,
) -> list[Problem]:
    """Return the problems of one group, by itself. Paths are relative to it. ``vpc_cni_version`` is that of the add-on
    (``v1.22.3-eksbuild.1``), ``kubernetes_version`` the nodes' minor one (``1.35``)."""
    instance = catalogue.get(group.instance_type)
    found = formats.derived_name("name", group.name)
    found += _type_problems(group, instance, catalogue)
    sizes = size_problems(group.min_size, group.max_size, group.desired_size)
    found += sizes or _block_problems(group)
    found += _ultraserver_problems(group, instance)
    found += under("capacity", capacities.validate(group.capacity, region=region, instance=instance))
    found += own_zone_problems(group, instance, region)
    found += _layout_problems(group, instance, vpc_cni_version)
    found += _placement_problems(group)
    found += _whole_problems(group)
    found += formats.labels("labels", group.labels)
    found += _own_label_problems(group, instance, catalogue)
    found += _hugepage_problems(group, instance)
    found += under("node_repair", _repair_problems(group.node_repair))
    found += _release_problems(group, kubernetes_version)
    return found


def _block_problems(group: NodeGroupConfig) -> list[Problem]:
    """Return what keeps a group from growing by itself when its Capacity Block starts."""
    nodes = group.capacity.nodes if isinstance(group.capacity, CapacityBlock) else None
    if nodes is None:
        return []
    reason = "the group has no node before its Capacity Block starts and after it ends"
    sizes = {"min_size": group.min_size, "desired_size": group.desired_size}
    found = [Problem(name, reason, value=size, good=0) for name, size in sizes.items() if size]
    if not group.ignore_desired_size:
        reason = "a scheduled action sets the number of nodes, and the next `pulumi up` would set it back"
        found.append(Problem("ignore_desired_size", reason, value=False, good=True))
    if nodes > group.max_size:
        reason = f"{nodes} nodes start with its Capacity Block"
        found.append(Problem("max_size", reason, value=group.max_size, good=nodes))
    return found


def _repair_problems(repair: NodeRepairConfig) -> list[Problem]:
    """Return the bounds that are given twice, which EKS refuses, and reasons that no condition has."""
    found = []
    for index, each in enumerate(repair.node_repair_config_overrides):
        if not each.node_unhealthy_reason.isalnum():
            path = join("node_repair_config_overrides", index)
            reason = "it is not a reason that stands in a node's condition: one word of letters and digits"
            fix = "write it as NeuronDMAError"
            found.append(Problem(f"{path}.node_unhealthy_reason", reason, fix, value=each.node_unhealthy_reason))
    return found + [
        Problem(f"{bound}_percentage", f"EKS takes it or `{bound}_count`", "remove one of the two", value=share)
        for bound in ("max_unhealthy_node_threshold", "max_parallel_nodes_repaired")
        if (share := getattr(repair, f"{bound}_percentage")) and getattr(repair, f"{bound}_count")
    ]


OWN_GROUPS = ("cpu", "system")
"""Names of the stack's own node groups."""


def of_one_cluster(groups: Sequence[NodeGroupConfig]) -> list[Problem]:
    """Return the problems between the groups of a cluster. Paths are relative to their list (``[0].name``)."""
    found = []
    for index, group in enumerate(groups):
        if group.name in OWN_GROUPS:
            reason = "the stack's own CPU nodes have a group of this name"
            found.append(Problem(f"[{index}].name", reason, "choose another name", value=group.name))
    return found + reservation_problems(reservation_uses(groups)) + _overlap_problems(groups)


def _overlap_problems(groups: Sequence[NodeGroupConfig]) -> list[Problem]:
    """Return the blocks of which two groups give other times."""
    first: dict[str, tuple[str | None, str | None]] = {}
    found = []
    for index, group in enumerate(groups):
        block = group.capacity
        if not isinstance(block, CapacityBlock) or not isinstance(block.id, str) or not block.nodes:
            continue
        times = first.setdefault(block.id, (block.starts, block.ends))
        for name, own, other in (("starts", block.starts, times[0]), ("ends", block.ends, times[1])):
            if own != other:
                reason = f"another group gives {other} for the same block, {block.id}"
                fix = "or name the other block's reservation in `capacity.id`"
                found.append(Problem(f"[{index}].capacity.{name}", reason, fix, value=own, good=other))
    return found


Use = tuple[str, OutputText, str]
"""Path, reservation's id and instance type of each group or pool that starts nodes in a reservation."""


def reservation_uses(groups: Sequence[NodeGroupConfig]) -> list[Use]:
    """Return the groups' uses of reservations. Paths are relative to their list."""
    return [
        (f"[{index}].capacity.id", group.capacity.id, group.instance_type)
        for index, group in enumerate(groups)
        if isinstance(group.capacity, Reservation | CapacityBlock)
    ]


def reservation_problems(uses: Iterable[Use]) -> list[Problem]:
    """Return the problems of reservations used by two instance types; ids that are known later are skipped."""
    types: dict[str, str] = {}
    found = []
    for path, id_, instance_type in uses:
        if isinstance(id_, str) and types.setdefault(id_, instance_type) != instance_type:
            reason = f"{types[id_]} is taken from it too, and a reservation is of one instance type"
            found.append(Problem(path, reason, f"name the reservation of {instance_type}", value=id_))
    return found


def version_of(group: NodeGroupConfig, cluster_version: str) -> str:
    """Return the minor version of the group's nodes, or the cluster's version."""
    return cluster_version if group.kubernetes_version is None else group.kubernetes_version


def version_problems(group: NodeGroupConfig, cluster_version: str) -> list[Problem]:
    """Return the problem of a node version that the cluster does not take: newer than its own, or too old."""
    version = group.kubernetes_version
    if version is None or cluster_version not in versions.KUBERNETES_STANDARD_SUPPORT:
        return []
    newest, behind = versions.minor(cluster_version), versions.OLDEST_NODES_BEHIND
    allowed = tuple(f"1.{minor}" for minor in range(newest, newest - behind - 1, -1))
    if version in allowed:
        return []
    reason = f"nodes run the cluster's version, {cluster_version}, or one at most {behind} minor versions before it"
    fix = "or leave it out: the nodes then follow the cluster"
    return [Problem("kubernetes_version", reason, fix, value=version, allowed=allowed, good=cluster_version)]


def uses_local_disks(group: NodeGroupConfig, instance: InstanceType) -> bool:
    """Return whether containers and images live on the nodes' local NVMe."""
    return group.local_storage == "raid0" and instance.local_disks > 0


def root_volume_gib(group: NodeGroupConfig, instance: InstanceType) -> int:
    """Return the size of the nodes' root volume, GiB; by default 100 with local disks for images, otherwise 500."""
    if group.root_volume_gib is not None:
        return group.root_volume_gib
    return 100 if uses_local_disks(group, instance) else 500


def zone_of(group: NodeGroupConfig) -> str | None:
    """Return the zone that the group or its capacity names; None for the accelerator zone."""
    if group.zone_id is not None:
        return group.zone_id
    return group.capacity.zone_id if isinstance(group.capacity, Reservation | CapacityBlock) else None


ZONES_FIX = "where EC2 offers it there by now, add the zone to the `zones` of its `instance_types` entry"


def offer_problems(path: str, instance: InstanceType, zone_id: str, region: str) -> list[Problem]:
    """Return the problem of a type that the catalogue does not have in the zone. EC2 adds zones: a fix names the key
    that adds one to the catalogue."""
    offered = instance.zones.get(region, ())
    if zone_id in offered:
        return []
    if offered:
        reason = f"the catalogue does not have {instance.name} in {zone_id}"
        return [Problem(path, reason, ZONES_FIX, value=zone_id, allowed=offered, good=offered[0])]
    elsewhere = formats.listed(sorted(instance.zones), "or") if instance.zones else "no known region"
    reason = f"the catalogue has no zone in {region} that offers {instance.name}"
    fix = f"it is offered in {elsewhere}; or give its `instance_types` entry the `zones` of {region}, if AWS now has it"
    return [formats.warn(path, reason, fix)]


def _type_problems(group: NodeGroupConfig, instance: InstanceType | None, catalogue: Catalogue) -> list[Problem]:
    accelerated = tuple(name for name, kind in catalogue.items() if kind.family != "cpu")
    if instance is None:
        reason = "it is not in the catalogue"
        fix = "describe it in the stack's `instance_types`: {<name>: {like: trn1.32xlarge, …}}"
        good = near(group.instance_type, accelerated)
        return [Problem("instance_type", reason, fix, value=group.instance_type, allowed=accelerated, good=good)]
    if instance.family == "cpu":
        reason = "it has no accelerator, and CPU nodes belong to the cluster's `cpu_nodes`"
        fix = "name an accelerator's type"
        return [Problem("instance_type", reason, fix, value=group.instance_type, allowed=accelerated)]
    return []


def _ultraserver_problems(group: NodeGroupConfig, instance: InstanceType | None) -> list[Problem]:
    """Return warnings of sizes with a part of an UltraServer."""
    size = instance.ultraserver_nodes if instance else 0
    sizes = {"max_size": group.max_size, "desired_size": group.desired_size}
    reason = f"EC2 sells {group.instance_type} by the UltraServer, and a part of one is paid like the whole"
    return [
        Problem(name, reason, severity=Severity.WARN, value=value, good=-(-value // size) * size)
        for name, value in sizes.items()
        if size and value % size
    ]


def own_zone_problems(group: NodeGroupConfig, instance: InstanceType | None, region: str) -> list[Problem]:
    """Return the problems of the zone that a group or its capacity names."""
    capacity = group.capacity
    reserved = isinstance(capacity, Reservation | CapacityBlock)
    found = []
    if group.zone_id is not None:
        found += zone_problems("zone_id", group.zone_id, region)
        if isinstance(capacity, Reservation | CapacityBlock) and group.zone_id != capacity.zone_id:
            reason = f"the group's {capacity.type} is in {capacity.zone_id}"
            found.append(Problem("zone_id", reason, value=group.zone_id, good=capacity.zone_id))
    named = zone_of(group)
    sold = instance is not None and instance.family != "cpu" and capacities.sells(instance, capacity)
    if not found and named is not None and instance is not None and sold:
        path = "capacity.zone_id" if reserved else "zone_id"
        found += offer_problems(path, instance, named, region)
    return found


def _layout_problems(group: NodeGroupConfig, instance: InstanceType | None, vpc_cni_version: str) -> list[Problem]:
    if instance is None:
        return []
    layout, path = group.interface_layout, "interface_layout"
    if layout in ("efa-only", "ena", "efa") and not instance.has_efa:
        reason = f"{instance.name} has no EFA interface"
        return [Problem(path, reason, value=layout, allowed=("catalogue",), good="catalogue")]
    if layout in ("efa-only", "efa") and instance.first_efa_card > 0:
        reason = (
            f"card 0 of {instance.name} has no EFA: it carries the node's address as a plain interface, and EFA starts "
            f"at card {instance.first_efa_card}"
        )
        return [Problem(path, reason, value=layout, allowed=("catalogue", "ena"), good="ena")]
    least = versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY
    uses_efa_only = instance.has_efa and layout != "efa"
    if uses_efa_only and versions.numbers(vpc_cni_version) < versions.numbers(least):
        reason = (
            f"the layout has efa-only interfaces, which the VPC CNI supports from {least} on; the cluster's is "
            f"{vpc_cni_version}, and its nodes would stay NotReady"
        )
        fix = f"raise the cluster's `addons` vpc-cni `version` to {least} or later, or choose efa here"
        return [Problem(path, reason, fix, value=layout, allowed=("efa",))]
    return []


def _placement_problems(group: NodeGroupConfig) -> list[Problem]:
    """Return the problems of the placement group; a name that is known later is only checked for whether a group is
    allowed."""
    placement, capacity = group.placement_group, group.capacity
    name = placement if isinstance(placement, str) else None
    path, words = "placement_group", ("auto", "none")
    if name in words:
        return []
    if name is not None and not re.fullmatch(r"[!-~]([ -~]{0,253}[!-~])?", name):
        return [Problem(path, "it is not the name of a placement group", value=name, allowed=words, good="auto")]
    if isinstance(capacity, CapacityBlock):
        reason = (
            "a Capacity Block is placed by EC2; in a placement group its nodes fail with InsufficientInstanceCapacity"
        )
        return [Problem(path, reason, value=name, allowed=words, good="auto")]
    if isinstance(capacity, Reservation) and _made_elsewhere(capacity, name):
        made_in = capacity.placement_group
        where = f"in placement group {made_in}" if made_in is not None else "without a placement group"
        which = capacity.id if isinstance(capacity.id, str) else "the reservation"
        reason = f"{which} was made {where}; in {name or 'another one'} EC2 answers InsufficientInstanceCapacity"
        fix = "if it was made in this one, name it in `capacity.placement_group` instead"
        return [Problem(path, reason, fix, value=name, allowed=words, good="auto")]
    return []


def _whole_problems(group: NodeGroupConfig) -> list[Problem]:
    """Return the problem of a group whose nodes no short reservation can hold."""
    if not group.all_or_nothing or isinstance(group.capacity, OnDemand):
        return []
    reason = f"a command reserves On-Demand capacity alone, and the group's is {group.capacity.type}"
    return [Problem("all_or_nothing", reason, value=True, good=False)]


def _made_elsewhere(reservation: Reservation, name: str | None) -> bool:
    """Return whether a reservation was certainly made outside the placement group of this name; None is a name that is
    not known yet."""
    made_in = reservation.placement_group
    return made_in is None or (isinstance(made_in, str) and name is not None and made_in != name)


def _own_label_problems(group: NodeGroupConfig, instance: InstanceType | None, catalogue: Catalogue) -> list[Problem]:
    """Return the problems of labels that the stack itself sets and selects nodes by."""
    own = {POOL_LABEL, *(catalogue.node_labels(instance.name) if instance else ())}
    return [
        Problem(join_key("labels", key), "the stack sets this label itself", "use another key")
        for key in group.labels
        if key in own
    ]


def _hugepage_problems(group: NodeGroupConfig, instance: InstanceType | None) -> list[Problem]:
    """Return the problem of hugepages that leave the pods no memory."""
    pages, path = group.hugepages_2mi, "hugepages_2mi"
    if pages is None or instance is None:
        return []
    most = (instance.allocatable_memory_mib - 1) // 2
    why = f"pages of 2 MiB come out of the {instance.allocatable_memory_mib} MiB that pods have on {instance.name}"
    found = Bounds(0, most, "pages", why).problem(path, pages) if pages > most else None
    return [found] if found else []


def _release_problems(group: NodeGroupConfig, kubernetes_version: str) -> list[Problem]:
    """Return the problem of an AMI release that is malformed or for another Kubernetes version than the nodes'."""
    release, path = group.release_version, "release_version"
    if release is None:
        return []
    found = _RELEASE.fullmatch(release)
    if found is None or not _is_day(found["date"]):
        allowed = ("<kubernetes version>-<yyyymmdd>, as 1.35.8-20260930",)
        fix = "take one of the EKS user guide's list, or leave it out for the pinned one"
        return [Problem(path, "it is not an AMI release", fix, value=release, allowed=allowed)]
    if found["minor"] != kubernetes_version and kubernetes_version in versions.KUBERNETES_STANDARD_SUPPORT:
        reason = f"it is a release for Kubernetes {found['minor']}, and the nodes run {kubernetes_version}"
        good = versions.AMI_RELEASES.get(kubernetes_version)
        return [Problem(path, reason, "" if good else "name one of that version", value=release, good=good)]
    if (age := versions.ami_age_days(release)) > versions.AMI_DAYS:
        good = versions.AMI_RELEASES.get(kubernetes_version)
        reason = f"it was made {age} days ago, and later ones have security fixes"
        return [Problem(path, reason, severity=Severity.WARN, value=release, good=good)]
    return []


def _is_day(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, "%Y%m%d")
    except ValueError:
        return False
    return True
