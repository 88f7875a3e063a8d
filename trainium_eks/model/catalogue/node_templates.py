"""Tags by which Cluster Autoscaler learns the nodes of an empty group.

It knows CPU, memory and NVIDIA GPUs of an instance type; it learns Neuron devices, EFA, huge pages, disks, labels and
taints from tags of the Auto Scaling group, and of the EKS node group that the Auto Scaling group belongs to
(kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws/README.md and aws_manager.go, 1.35). EKS does not copy tags
between the two.
"""

from collections.abc import Mapping

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import node_groups
from trainium_eks.model.config.cluster import CpuNodesConfig
from trainium_eks.model.config.node_groups import NodeGroupConfig

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
"""Prefix of the tags' keys."""

KNOWN_RESOURCES = ("cpu", "memory", "pods")
"""Resources of a type that Cluster Autoscaler knows without a tag; it assumes 110 pods for every type."""

OPTIONS = f"{TEMPLATE}/autoscaling-options"


def of_type(instance_type: str, catalogue: Catalogue) -> dict[str, str]:
    """Return the resources that device plugins advertise on a node of the type, and huge pages; none for CPU types."""
    amounts = catalogue.allocatable(instance_type)
    return {name: amount for name, amount in amounts.items() if name not in KNOWN_RESOURCES}


def of_group(group: NodeGroupConfig, catalogue: Catalogue) -> dict[str, str]:
    """Return the same resources for a node group, with its setting of huge pages and its disks."""
    instance = catalogue.find(group.instance_type)
    pages = instance.hugepages_2mi if group.hugepages_2mi is None else group.hugepages_2mi
    disk_gib = (
        instance.local_disks * instance.local_disk_gb * 10**9 // 2**30
        if node_groups.uses_local_disks(group, instance)
        else node_groups.root_volume_gib(group, instance)
    )
    return {
        **of_type(group.instance_type, catalogue),
        **({"hugepages-2Mi": f"{2 * pages}Mi"} if pages or instance.hugepages_2mi else {}),
        "ephemeral-storage": ephemeral_storage(disk_gib),
    }


def of_cpu_nodes(nodes: CpuNodesConfig) -> dict[str, str]:
    """Return the ephemeral storage of a CPU group's nodes."""
    return {"ephemeral-storage": ephemeral_storage(nodes.root_volume_gib)}


def ephemeral_storage(disk_gib: int) -> str:
    """Return the part of a disk that pods can request, 85 %. The kubelet keeps a tenth free, and the system's files
    take some more."""
    return f"{disk_gib * 85 // 100}Gi"


def resource_tags(amounts: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of resources: ``{…/resources/aws.amazon.com/neuron: "16"}``."""
    return {f"{TEMPLATE}/resources/{name}": amount for name, amount in amounts.items()}


def label_tags(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of labels: ``{…/label/trainium-eks/pool: trn1}``."""
    return {f"{TEMPLATE}/label/{key}": value for key, value in labels.items()}


def taint_tags(instance_type: str, catalogue: Catalogue) -> dict[str, str]:
    """Return the tags of a type's taints: ``{…/taint/aws.amazon.com/neuron: true:NoSchedule}``."""
    return {f"{TEMPLATE}/taint/{each.key}": f"{each.value}:{each.effect}" for each in catalogue.taints(instance_type)}


def empty_nodes_only(minutes: int) -> dict[str, str]:
    """Return the options that allow removing a node only after it has run nothing but DaemonSets for some minutes.

    Cluster Autoscaler counts a Neuron node's CPU and memory and not its devices, so a gang that requests little CPU and
    memory looks idle and, where its pods fit elsewhere, movable. A node is a candidate when its share is at most the
    threshold (core/scaledown/eligibility, 1.35), which is set to 0.
    """
    return {
        f"{OPTIONS}/scaledownutilizationthreshold": "0",
        f"{OPTIONS}/scaledowngpuutilizationthreshold": "0",
        f"{OPTIONS}/ignoredaemonsetsutilization": "true",
        f"{OPTIONS}/scaledownunneededtime": f"{minutes}m0s",
    }
