"""Karpenter: nodes of the size that waiting pods need, without node groups."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from trainium_eks.model.catalogue import instance_data
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, InstanceType, near
from trainium_eks.model.config.node_groups import (
    OWN_GROUPS,
    NodeGroupConfig,
    Use,
    offer_problems,
    reservation_problems,
    reservation_uses,
)
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictInt
from trainium_eks.model.validation.limits import Bounds, Entries
from trainium_eks.model.validation.problems import Problem, Severity, join

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig

CPU_POOL = "karpenter"
"""Name of the NodePool of CPU nodes, and of its EC2NodeClass."""

EBS_CLUSTER_TAG = "ebs.csi.aws.com/cluster-name"
"""Tag of an instance by which the EBS driver may attach volumes to it: its value is the cluster
(AmazonEBSCSIDriverEKSClusterScopedPolicy). EKS tags the nodes of managed groups with ``eks:cluster-name`` instead."""

Minutes = Annotated[StrictInt, Bounds(1, 24 * 60, "minutes")]
Replicas = Annotated[StrictInt, Bounds(1, 3, "copies", "only one is active, the others stand by")]
_SOME_TYPES = Entries(1, 100, "a NodePool with no type starts no node", "leave it out for the default")
_SELECTED = Entries(0, 30, "an EC2NodeClass selects no more (Karpenter's CRD)", "give the others to another pool")


class KarpenterPoolConfig(ConfigModel):
    """Accelerator nodes of one type in one zone, that Karpenter starts one by one. It knows no gangs."""

    name: str
    """Name of the NodePool: lower-case letters, digits and dashes."""
    instance_type: str
    """A type of the catalogue (``trn1.32xlarge``) that no node group has."""
    max_nodes: Annotated[StrictInt, Bounds(1, formats.LARGEST_NODE_GROUP, "nodes")] = 1
    """Most nodes: the largest gang."""
    zone_id: str | None = None
    """Zone of the nodes. Unset: the accelerator zone."""
    capacity_reservation_ids: Annotated[tuple[str, ...], _SELECTED] = ()
    """Capacity Reservations or Blocks (``cr-…``) to start in, and nowhere else. Empty: On-Demand."""


class KarpenterConfig(ConfigModel):
    """Karpenter. By default it starts CPU nodes for pods that fit nowhere; not together with Cluster Autoscaler."""

    cpu_limit: Annotated[StrictInt, Bounds(0, 10_000, "vCPUs")] = 64
    """Most vCPUs of its CPU nodes together; 0 for accelerator pools alone."""
    instance_types: Annotated[tuple[str, ...], _SOME_TYPES] = (
        "m6i.xlarge",
        "m6i.2xlarge",
        "m6i.4xlarge",
        "m7i.xlarge",
        "m7i.2xlarge",
    )
    """Types of the CPU nodes; it takes the cheapest that fits and that EC2 has."""
    root_volume_gib: formats.RootVolumeGib = 100
    """Size of a CPU node's encrypted gp3 root volume, GiB."""
    consolidate_minutes: Minutes = 5
    """Minutes without a change after which it may move pods to fewer or cheaper CPU nodes."""
    expire_after_hours: Annotated[StrictInt, Bounds(1, 24 * 90, "hours")] = 720
    """Hours after which a CPU node is replaced. Accelerator nodes never are for their age."""
    accelerator_pools: tuple[KarpenterPoolConfig, ...] = ()
    """Accelerator nodes that it starts too. It knows no gangs: read docs/autoscaling.md first."""
    accelerator_empty_minutes: Minutes = 20
    """Minutes that an accelerator node is empty before it goes. A node in use never goes."""
    replicas: Replicas = 2
    """Copies; one is active."""


LAYOUT: Literal["ena"] = "ena"
"""Karpenter's interfaces are plain or ``efa-only``, the first one plain (EC2NodeClass, networkInterfaces)."""


def own_problems(karpenter: KarpenterConfig, catalogue: Catalogue) -> list[Problem]:
    """Return the problems of the section by itself. Paths are relative to it."""
    found = []
    if not karpenter.cpu_limit and not karpenter.accelerator_pools:
        found.append(
            Problem("cpu_limit", "Karpenter has nothing to start", "name `accelerator_pools`", value=0, good=64)
        )
    cpu = tuple(name for name, kind in catalogue.items() if kind.family == "cpu")
    for index, name in enumerate(karpenter.instance_types):
        if name not in cpu:
            good = near(name, cpu)
            path = join("instance_types", index)
            fix = "" if good else "describe it in the stack's `instance_types`"
            reason = "it is not a CPU type of the catalogue"
            found.append(Problem(path, reason, fix, value=name, allowed=cpu, good=good))
    smallest = min((catalogue[name].vcpus for name in karpenter.instance_types if name in cpu), default=0)
    if 0 < karpenter.cpu_limit < smallest:
        reason = f"the smallest of `instance_types` has {smallest} vCPUs, so no node would ever fit under the limit"
        found.append(Problem("cpu_limit", reason, value=karpenter.cpu_limit, good=smallest))
    found += _pool_problems(karpenter, catalogue)
    return found


def _pool_problems(karpenter: KarpenterConfig, catalogue: Catalogue) -> Iterator[Problem]:
    accelerated = tuple(name for name, kind in catalogue.items() if kind.family != "cpu")
    pools = karpenter.accelerator_pools
    yield from formats.duplicates("accelerator_pools", [pool.name for pool in pools], "name")
    yield from formats.duplicates("accelerator_pools", [pool.instance_type for pool in pools], "instance_type")
    for index, pool in enumerate(pools):
        path = join("accelerator_pools", index)
        yield from formats.derived_name(join(path, "name"), pool.name)
        if pool.name == CPU_POOL:
            yield Problem(
                join(path, "name"), "Karpenter's CPU pool has this name", "choose another name", value=pool.name
            )
        if pool.instance_type not in accelerated:
            good = near(pool.instance_type, accelerated)
            fix = "" if good else "describe it in the stack's `instance_types`"
            reason = "it is not an accelerator type of the catalogue"
            place = join(path, "instance_type")
            yield Problem(place, reason, fix, value=pool.instance_type, allowed=accelerated, good=good)
        if pool.instance_type in accelerated:
            yield from _device_problems(join(path, "instance_type"), catalogue[pool.instance_type])
        if pool.instance_type in catalogue and catalogue[pool.instance_type].hugepages_2mi:
            reason = (
                "Karpenter knows no huge pages, so its nodes have none and pods that ask for `hugepages-2Mi` wait for "
                "ever, as do jobs of `trn train` for this type (karpenter-provider-aws#3315, karpenter#751)"
            )
            fix = "leave the request out, which EFA does without, or take a node group"
            place = join(path, "instance_type")
            yield Problem(place, reason, fix, severity=Severity.WARN, value=pool.instance_type)
        for number, id_ in enumerate(pool.capacity_reservation_ids):
            yield from formats.reservation_id(join(join(path, "capacity_reservation_ids"), number), id_)


def _device_problems(path: str, instance: InstanceType) -> Iterator[Problem]:
    """Yield the problems of a type of which Karpenter counts other devices than its nodes have. It reads NeuronInfo and
    GpuInfo of EC2's DescribeInstanceTypes (karpenter-provider-aws 1.15, pkg/providers/instancetype)."""
    name = instance.name
    if name in instance_data.NO_DEVICES_IN_EC2:
        reason = "EC2 reports no devices of it, from which Karpenter computes them: it would start no node for any pod"
        yield Problem(path, reason, "give the type to one of `node_groups`", value=name)
    elif name not in CATALOGUE:
        reason = "Karpenter starts its nodes only if EC2 reports its devices, which this release does not know"
        fix = f"aws ec2 describe-instance-types --instance-types {name} must show NeuronInfo or GpuInfo"
        yield Problem(path, reason, fix, severity=Severity.WARN, value=name)
    if instance.neuron_cores != instance.logical_neuron_cores:
        reason = (
            f"Karpenter counts its {instance.neuron_cores} physical Neuron cores, and its device plugin offers "
            f"{instance.logical_neuron_cores}: for pods that ask for cores it starts too few nodes"
        )
        fix = f"let pods ask for devices, `{instance.device_resource}`"
        yield Problem(path, reason, fix, severity=Severity.WARN, value=name)


def validate(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """Return the problems of the section, also with other starters of nodes. Paths start at the stack's root."""
    karpenter = config.autoscaling.karpenter
    if karpenter is None:
        return []
    path = "autoscaling.karpenter"
    found = [problem.under(path) for problem in own_problems(karpenter, catalogue)]
    if karpenter.cpu_limit and config.autoscaling.cluster_autoscaler is not None:
        reason = "Cluster Autoscaler serves the CPU pool: both would start nodes for the same pods"
        good, fix = (0 if karpenter.accelerator_pools else None), "or leave one of the two out"
        found.append(Problem(f"{path}.cpu_limit", reason, fix, value=karpenter.cpu_limit, good=good))
    of_pools: list[Use] = [
        (f"{path}.accelerator_pools[{index}].capacity_reservation_ids[{number}]", id_, pool.instance_type)
        for index, pool in enumerate(karpenter.accelerator_pools)
        for number, id_ in enumerate(pool.capacity_reservation_ids)
    ]
    # `of_one_cluster` reports those between two groups.
    uses = [*reservation_uses(config.node_groups), *of_pools]
    found += [each for each in reservation_problems(uses) if each.path.startswith(path)]
    types = {group.instance_type: group.name for group in config.node_groups}
    for index, pool in enumerate(karpenter.accelerator_pools):
        here = f"{path}.accelerator_pools[{index}]"
        if pool.instance_type in types:
            reason = (
                f"the node group {types[pool.instance_type]} has this type: for a gang that waits for its nodes "
                "Karpenter would buy as many again"
            )
            fix = "give the type to one of the two"
            found.append(Problem(f"{here}.instance_type", reason, fix, value=pool.instance_type))
        if pool.name in {*OWN_GROUPS, *(group.name for group in config.node_groups)}:
            found.append(Problem(f"{here}.name", "a node group has this name", "choose another name", value=pool.name))
    return found


def zone_problems(config: "StackConfig", catalogue: Catalogue, zones: Sequence[str]) -> Iterator[Problem]:
    """Yield the zones that the network lacks, and the types that the catalogue lacks in a pool's zone.

    Paths start at the stack's root.
    """
    karpenter = config.autoscaling.karpenter
    if karpenter is None:
        return
    for index, pool in enumerate(karpenter.accelerator_pools):
        path = f"autoscaling.karpenter.accelerator_pools[{index}].zone_id"
        instance = catalogue.get(pool.instance_type)
        if pool.zone_id is not None and pool.zone_id not in zones:
            reason = "the network has no private subnet in this zone"
            good = next((zone for zone in zones if instance and zone in instance.zones.get(config.region, ())), None)
            yield Problem(path, reason, value=pool.zone_id, allowed=tuple(zones), good=good)
        elif instance is not None:
            yield from offer_problems(path, instance, pool.zone_id or zones[0], config.region)
    yield from _cpu_type_problems(karpenter, catalogue, zones[0], config.region)


def _cpu_type_problems(karpenter: KarpenterConfig, catalogue: Catalogue, zone: str, region: str) -> Iterator[Problem]:
    """Yield a problem if the catalogue has no CPU type of the section in the zone: a warning if it has none in the
    region: the catalogue may know too little of the region."""
    offered = {name: kind.zones.get(region, ()) for name, kind in catalogue.items() if kind.family == "cpu"}
    here = [offered[name] for name in karpenter.instance_types if name in offered]
    others = tuple(name for name, zones in offered.items() if zone in zones)
    if karpenter.cpu_limit and here and others and not any(zone in zones for zones in here):
        reason = f"the catalogue has none of these types in {zone}, where Karpenter's CPU nodes start"
        severity = Severity.REFUSE if any(here) else Severity.WARN
        path = "autoscaling.karpenter.instance_types"
        yield Problem(path, reason, severity=severity, allowed=others, good=others[:1])


def as_groups(config: "StackConfig") -> tuple[NodeGroupConfig, ...]:
    """Return the accelerator pools as node groups that may have no node, to count the most nodes and addresses."""
    karpenter = config.autoscaling.karpenter
    return tuple(
        NodeGroupConfig(
            name=pool.name,
            instance_type=pool.instance_type,
            max_size=pool.max_nodes,
            ignore_desired_size=True,
            zone_id=pool.zone_id,
            interface_layout=LAYOUT,
        )
        for pool in (karpenter.accelerator_pools if karpenter else ())
    )
