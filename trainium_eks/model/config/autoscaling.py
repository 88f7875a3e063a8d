"""The autoscaling section: Cluster Autoscaler and Karpenter, with their validators."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import karpenter
from trainium_eks.model.config.capacity import CapacityBlock
from trainium_eks.model.config.karpenter import KarpenterConfig, Minutes, Replicas
from trainium_eks.model.config.node_groups import OWN_GROUPS, NodeGroupConfig
from trainium_eks.model.sizing import queues
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, join, nearest

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig


class ClusterAutoscalerConfig(ConfigModel):
    """Cluster Autoscaler. It serves the CPU pool, and the accelerator groups that are named here."""

    accelerator_groups: tuple[str, ...] = ()
    """Names of accelerator groups that it scales too, from zero where their `minSize` is 0. It knows no gangs: read
    docs/autoscaling.md first. Each needs ``ignoreDesiredSize: true``."""
    expander: Literal["least-waste", "most-pods", "least-nodes", "random"] = "least-waste"
    """Choice of the group that grows when several would do. ``least-waste``: the group that leaves least CPU idle."""
    scale_down_minutes: Minutes = 10
    """Minutes that a CPU node is hardly used before it goes."""
    accelerator_scale_down_minutes: Minutes = 20
    """Minutes that an accelerator node is empty before it goes: a gang that starts again finds its nodes still there. A
    node with any pod that is not a DaemonSet's is never removed."""
    max_node_provision_minutes: Annotated[StrictInt, Bounds(5, 24 * 60, "minutes")] = 15
    """Minutes that a node may take to join before its group is given up for a while."""
    evict_local_storage: StrictBool = False
    """True lets CPU nodes go although pods keep files in an ``emptyDir``; the files are lost."""
    replicas: Replicas = 2
    """Copies; one is active."""


class AutoscalingConfig(ConfigModel):
    """Controllers that add and remove nodes. None is installed unless the config names it."""

    cluster_autoscaler: ClusterAutoscalerConfig | None = None
    """Cluster Autoscaler; null for none, ``{}`` for the CPU pool alone."""
    karpenter: KarpenterConfig | None = None
    """Karpenter; null for none, ``{}`` for CPU nodes alone."""


def served_groups(config: "StackConfig") -> tuple[NodeGroupConfig, ...]:
    """Return the accelerator groups that Cluster Autoscaler serves; none without it."""
    autoscaler = config.autoscaling.cluster_autoscaler
    named = autoscaler.accelerator_groups if autoscaler else ()
    return tuple(group for group in config.node_groups if group.name in named)


def version_problems(path: str, kubernetes_version: str) -> list[Problem]:
    """Return the problem of a Kubernetes version without a pinned Cluster Autoscaler; a release serves one minor
    version (its README, releases)."""
    known = tuple(versions.CLUSTER_AUTOSCALER)
    if kubernetes_version in known:
        return []
    reason = "no Cluster Autoscaler of this version is pinned"
    return [Problem(path, reason, value=kubernetes_version, allowed=known, good=versions.KUBERNETES)]


def validate(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """Return the problems of the section, and between it and the scaled groups. Paths start at the stack's root."""
    found = karpenter.validate(config, catalogue)
    autoscaler = config.autoscaling.cluster_autoscaler
    if autoscaler is None:
        return found
    path = "autoscaling.cluster_autoscaler"
    found += _unknown_groups(config, f"{path}.accelerator_groups", autoscaler)
    found += version_problems("cluster.kubernetes_version", config.cluster.kubernetes_version)
    found += _cpu_pool_problems(config)
    for index, group in enumerate(config.node_groups):
        if group.name in autoscaler.accelerator_groups:
            found += _served_problems(group, join("node_groups", index))
            found += _size_problems(config, group, join("node_groups", index), catalogue)
    return found


def _unknown_groups(config: "StackConfig", path: str, autoscaler: ClusterAutoscalerConfig) -> Iterator[Problem]:
    known = tuple(group.name for group in config.node_groups)
    for index, name in enumerate(autoscaler.accelerator_groups):
        if name in OWN_GROUPS:
            reason = "the CPU pool is always served, the system nodes never are: they hold the autoscaler itself"
            yield Problem(join(path, index), reason, "leave it out", value=name)
        elif name not in known:
            good = nearest(name, known)
            fix = "" if good else "add the group, or leave it out"
            yield Problem(join(path, index), "no node group has this name", fix, value=name, allowed=known, good=good)


def _cpu_pool_problems(config: "StackConfig") -> Iterator[Problem]:
    pool = config.cluster.cpu_nodes
    if not pool.ignore_desired_size:
        yield _managed_elsewhere("cluster.cpu_nodes")
    if pool.min_size == pool.max_size:
        reason = f"the smallest and the largest size are the same ({pool.max_size}): there is nothing to scale"
        yield formats.warn("cluster.cpu_nodes.max_size", reason, "raise `max_size`")


def _served_problems(group: NodeGroupConfig, path: str) -> Iterator[Problem]:
    if not group.ignore_desired_size:
        yield _managed_elsewhere(path)
    if isinstance(group.capacity, CapacityBlock):
        reason = (
            "outside its Capacity Block's time the group can have no node, and each try makes Cluster Autoscaler leave "
            "it alone for up to half an hour"
        )
        yield formats.warn(f"{path}.capacity", reason, "scale it by `trn scale` when the block starts")


def _managed_elsewhere(path: str) -> Problem:
    reason = "Cluster Autoscaler sets the number of nodes, and the next `pulumi up` would set it back (R21)"
    return Problem(f"{path}.ignore_desired_size", reason, value=False, good=True)


def _size_problems(config: "StackConfig", group: NodeGroupConfig, path: str, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the problem of a group larger than any gang. Cluster Autoscaler also buys nodes for pods that no queue can
    run, up to the group's size."""
    nodes = largest_gang(config, group, catalogue)
    if nodes is None or group.max_size <= nodes:
        return
    reason = (
        f"no queue may use more than {nodes} of these nodes, and Cluster Autoscaler buys for pods that wait for their "
        "queue, too"
    )
    yield Problem(
        f"{path}.max_size", reason, rule="R80", value=group.max_size, allowed=(f"at most {nodes}",), good=nodes or None
    )


def largest_gang(config: "StackConfig", group: NodeGroupConfig, catalogue: Catalogue) -> int | None:
    """Return the group's nodes that the largest queue may use: no gang can be larger. None where some queue is not
    bounded in the group's devices."""
    if group.instance_type not in catalogue:
        return None
    device, count = next(iter(catalogue.device_resources(group.instance_type).items()), ("", 0))
    leaves = queues.leaves(config.queues)
    resolved = queues.resolve(config.queues, queues.pool(config.node_groups, catalogue))
    bounds = [(queue.capability or {}).get(device) for queue in resolved if queue.name in leaves]
    known = [bound for bound in bounds if bound is not None]
    return max(known) // count if count and len(known) == len(bounds) and known else None
