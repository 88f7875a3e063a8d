"""Karpenter: nodes of the size that waiting pods need, without node groups."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

from trainium_eks.model import formats
from trainium_eks.model.instances import Catalogue
from trainium_eks.model.node_groups import NodeGroupConfig
from trainium_eks.model.problems import Problem, join, nearest
from trainium_eks.model.shape import Shape, Whole

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config import StackConfig

CPU_POOL = "karpenter"
"""Name of the NodePool of CPU nodes, and of its EC2NodeClass."""

EBS_CLUSTER_TAG = "ebs.csi.aws.com/cluster-name"
"""Tag of an instance by which the EBS driver may attach volumes to it: its value is the cluster
(AmazonEBSCSIDriverEKSClusterScopedPolicy). EKS tags the nodes of managed groups with ``eks:cluster-name`` instead."""

LONGEST_MINUTES = 24 * 60
LONGEST_HOURS = 24 * 90
LARGEST_CPU_LIMIT = 10_000


class KarpenterPoolConfig(Shape):
    """Accelerator nodes of one type in one zone, that Karpenter starts one by one. It knows no gangs."""

    name: str
    """Name of the NodePool: lower-case letters, digits and dashes."""
    instance_type: str
    """A type of the catalogue (``trn1.32xlarge``) that no node group has."""
    max_nodes: Whole = 1
    """Most nodes: the largest gang, 1 to 450."""
    zone_id: str | None = None
    """Zone of the nodes. Unset: the accelerator zone."""
    capacity_reservation_ids: tuple[str, ...] = ()
    """Capacity Reservations or Blocks (``cr-…``) to start in, and nowhere else. Empty: On-Demand."""


class KarpenterConfig(Shape):
    """Karpenter. By default it starts CPU nodes for pods that fit nowhere; not together with Cluster Autoscaler."""

    not_here: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "limits": "`cpu_limit` bounds the CPU nodes, `max_nodes` each accelerator pool",
            "ami": "the AMI is the release that managed groups have, too",
        }
    )

    cpu_limit: Whole = 64
    """Most vCPUs of its CPU nodes together, 0 to 10000; 0 for accelerator pools alone."""
    instance_types: tuple[str, ...] = ("m6i.xlarge", "m6i.2xlarge", "m6i.4xlarge", "m7i.xlarge", "m7i.2xlarge")
    """Types of the CPU nodes; it takes the cheapest that fits and that EC2 has."""
    root_volume_gib: Whole = 100
    """Size of a CPU node's encrypted gp3 root volume, GiB."""
    consolidate_minutes: Whole = 5
    """Minutes without a change after which it may move pods to fewer or cheaper CPU nodes, 1 to 1440."""
    expire_after_hours: Whole = 720
    """Hours after which a CPU node is replaced, 1 to 2160. Accelerator nodes never are for their age."""
    accelerator_pools: tuple[KarpenterPoolConfig, ...] = ()
    """Accelerator nodes that it starts too. It knows no gangs: read docs/autoscaling.md first."""
    accelerator_empty_minutes: Whole = 20
    """Minutes that an accelerator node is empty before it goes, 1 to 1440. A node in use never goes."""
    replicas: Whole = 2
    """Copies; one is active."""


LAYOUT: Literal["ena"] = "ena"
"""Karpenter's interfaces are plain or ``efa-only``, the first one plain (EC2NodeClass, networkInterfaces)."""


def own_problems(karpenter: KarpenterConfig, catalogue: Catalogue) -> list[Problem]:
    """What is wrong with the section by itself. Paths are relative to it."""
    bounds = (
        ("cpu_limit", 0, LARGEST_CPU_LIMIT, "vCPUs"),
        ("root_volume_gib", formats.SMALLEST_ROOT_GIB, formats.LARGEST_ROOT_GIB, "not a root volume's size, GiB"),
        ("consolidate_minutes", 1, LONGEST_MINUTES, "minutes"),
        ("accelerator_empty_minutes", 1, LONGEST_MINUTES, "minutes"),
        ("expire_after_hours", 1, LONGEST_HOURS, "hours"),
        ("replicas", 1, 3, "only one is active, the others stand by"),
    )
    found = [
        problem
        for field, low, high, what in bounds
        for problem in formats.between(field, getattr(karpenter, field), low, high, what)
    ]
    if not karpenter.cpu_limit and not karpenter.accelerator_pools:
        found.append(
            Problem("cpu_limit", "Karpenter has nothing to start", "name `accelerator_pools`", value=0, good=64)
        )
    cpu = tuple(name for name, kind in catalogue.items() if kind.family == "cpu")
    for index, name in enumerate(karpenter.instance_types):
        if name not in cpu:
            good = nearest(name, cpu)
            path = join("instance_types", index)
            found.append(Problem(path, "not a CPU type of the catalogue", value=name, allowed=cpu, good=good))
    found += _pool_problems(karpenter, catalogue)
    return found


def _pool_problems(karpenter: KarpenterConfig, catalogue: Catalogue) -> Iterator[Problem]:
    accelerated = tuple(name for name, kind in catalogue.items() if kind.family != "cpu")
    pools = karpenter.accelerator_pools
    yield from formats.duplicates("accelerator_pools", [pool.name for pool in pools], "name", "name")
    yield from formats.duplicates("accelerator_pools", [pool.instance_type for pool in pools], "type", "instance_type")
    for index, pool in enumerate(pools):
        path = join("accelerator_pools", index)
        yield from formats.derived_name(join(path, "name"), pool.name)
        if pool.name == CPU_POOL:
            yield Problem(
                join(path, "name"), "the name of Karpenter's CPU pool", "choose another name", value=pool.name
            )
        if pool.instance_type not in accelerated:
            good = nearest(pool.instance_type, accelerated)
            reason = "not an accelerator type of the catalogue"
            place = join(path, "instance_type")
            yield Problem(place, reason, value=pool.instance_type, allowed=accelerated, good=good)
        if pool.instance_type in catalogue and catalogue[pool.instance_type].hugepages_2mi:
            reason = (
                "Karpenter knows no huge pages, so its nodes have none and pods that ask for `hugepages-2Mi` wait for "
                "ever, as do jobs of `trn train` for this type (karpenter-provider-aws#3315, karpenter#751)"
            )
            fix = "leave the request out, which EFA does without, or take a node group"
            yield formats.warn(join(path, "instance_type"), reason, fix)
        most = formats.LARGEST_NODE_GROUP
        yield from formats.between(join(path, "max_nodes"), pool.max_nodes, 1, most, "nodes")
        for number, id_ in enumerate(pool.capacity_reservation_ids):
            yield from formats.reservation_id(join(join(path, "capacity_reservation_ids"), number), id_)


def problems(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """What is wrong with the section, and between it and what else starts nodes. Paths start at the stack's root."""
    karpenter = config.autoscaling.karpenter
    if karpenter is None:
        return []
    path = "autoscaling.karpenter"
    found = [problem.under(path) for problem in own_problems(karpenter, catalogue)]
    if karpenter.cpu_limit and config.autoscaling.cluster_autoscaler is not None:
        reason = "Cluster Autoscaler serves the CPU pool: both would start nodes for the same pods"
        fix = "or leave `cluster_autoscaler` out"
        found.append(Problem(f"{path}.cpu_limit", reason, fix, value=karpenter.cpu_limit, good=0))
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
        if pool.name in {group.name for group in config.node_groups} | {"cpu", "system"}:
            found.append(Problem(f"{here}.name", "a node group has this name", "choose another name", value=pool.name))
    return found


def zone_problems(config: "StackConfig", zones: Sequence[str]) -> Iterator[Problem]:
    """A pool's zone must be one of the network's. Paths start at the stack's root."""
    karpenter = config.autoscaling.karpenter
    for index, pool in enumerate(karpenter.accelerator_pools if karpenter else ()):
        if pool.zone_id is not None and pool.zone_id not in zones:
            path = f"autoscaling.karpenter.accelerator_pools[{index}].zone_id"
            reason = "the network has no private subnet in this zone"
            yield Problem(path, reason, value=pool.zone_id, allowed=tuple(zones), good=zones[0])


def as_groups(config: "StackConfig") -> tuple[NodeGroupConfig, ...]:
    """The accelerator pools as groups that rest at zero, for all that counts what there is at most."""
    karpenter = config.autoscaling.karpenter
    return tuple(
        NodeGroupConfig(
            name=pool.name,
            instance_type=pool.instance_type,
            max_size=pool.max_nodes,
            size_managed_elsewhere=True,
            zone_id=pool.zone_id,
            interface_layout=LAYOUT,
        )
        for pool in (karpenter.accelerator_pools if karpenter else ())
    )
