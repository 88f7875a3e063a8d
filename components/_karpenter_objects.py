"""Karpenter's objects EC2NodeClass and NodePool, version 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, Catalogue, InstanceType, Taint
from trainium_eks.model.config import node_groups
from trainium_eks.model.config.karpenter import CPU_POOL, EBS_CLUSTER_TAG, LAYOUT, KarpenterConfig, KarpenterPoolConfig
from trainium_eks.model.config.node_groups import ROOT_THROUGHPUT_MIBPS, NodeGroupConfig
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.sizing import addresses

from . import _launch_template as template
from . import _user_data as boot
from ._args import LustreNetwork, Text

NODE_CLASS_API = "karpenter.k8s.aws/v1"
NODE_POOL_API = "karpenter.sh/v1"
CAPACITY_LABEL = "karpenter.sh/capacity-type"
ARCHITECTURE_LABEL = "kubernetes.io/arch"

CPU_POOL_LABEL = "cpu"
"""The pool label of Karpenter's CPU nodes: the CPU pool's label, by which staging and image builds select a node."""


@dataclass(frozen=True)
class NodeSetting:
    """Settings shared by all nodes that Karpenter starts."""

    cluster_name: Text
    kubernetes_version: str
    instance_profile: Text
    kms_key_arn: Text | None
    lustre_network: LustreNetwork
    tags: Mapping[str, Text]


def cpu_node_class(karpenter: KarpenterConfig, setting: NodeSetting, subnet: Text, group: Text) -> dict[str, Any]:
    """Return the ``spec`` of the CPU nodes' EC2NodeClass."""
    spec = _node_class(setting, CPU_POOL, subnet, [group], karpenter.root_volume_gib)
    user_data = boot.user_data_text(boot.Boot(lustre_client=setting.lustre_network != "none"))
    return spec if user_data is None else {**spec, "userData": user_data}


def cpu_node_pool(karpenter: KarpenterConfig) -> dict[str, Any]:
    """Return the ``spec`` of the CPU nodes' NodePool: cheap and short-lived."""
    return _node_pool(
        CPU_POOL,
        labels={POOL_LABEL: CPU_POOL_LABEL},
        types=karpenter.instance_types,
        capacity="on-demand",
        cpus=karpenter.cpu_limit,
        expire_after=f"{karpenter.expire_after_hours}h",
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": f"{karpenter.consolidate_minutes}m",
            "budgets": [{"nodes": "10%"}],
        },
    )


def accelerator_node_class(
    pool: KarpenterPoolConfig, instance: InstanceType, setting: NodeSetting, subnet: Text, groups: Sequence[Text]
) -> dict[str, Any]:
    """Return the ``spec`` of an accelerator pool's EC2NodeClass, with the interfaces, disks and limits of a node group.

    No huge pages: Karpenter's table of capacities lacks them, so that it starts no node for a pod that requests them,
    and counts their memory as available to pods (karpenter-provider-aws#3315, karpenter#751).
    """
    as_group = NodeGroupConfig(name=pool.name, instance_type=pool.instance_type)
    spec = _node_class(setting, pool.name, subnet, groups, node_groups.root_volume_gib(as_group, instance))
    spec["kubelet"] = {"maxPods": addresses.max_pods(instance, LAYOUT)}
    interfaces = template.interfaces(instance, LAYOUT)
    if interfaces:
        spec["networkInterfaces"] = [
            {"networkCardIndex": each.card, "deviceIndex": each.device, "interfaceType": each.type}
            for each in interfaces
        ]
    if instance.local_disks:
        spec["instanceStorePolicy"] = "RAID0"
    if pool.capacity_reservation_ids:
        spec["capacityReservationSelectorTerms"] = [{"id": id_} for id_ in pool.capacity_reservation_ids]
    user_data = boot.user_data_text(
        boot.Boot(
            lockable_memory=instance.has_efa,
            nvidia_devices_by_mount=instance.family == "nvidia",
            cores_per_logical_core=boot.logical_core_setting(instance),
            lustre_client=setting.lustre_network != "none",
            large_lustre_client=boot.is_large_lustre_client(instance),
            lustre_efa_step=boot.lustre_efa_step(instance, setting.lustre_network),
        )
    )
    if user_data is not None:
        spec["userData"] = user_data
    return spec


def accelerator_node_pool(pool: KarpenterPoolConfig, catalogue: Catalogue, minutes: int) -> dict[str, Any]:
    """Return the ``spec`` of an accelerator NodePool: an empty node is removed, and no node for its age or its
    price."""
    return _node_pool(
        pool.name,
        labels={**catalogue.node_labels(pool.instance_type), POOL_LABEL: pool.name},
        taints=catalogue.taints(pool.instance_type),
        startup_taints=catalogue.startup_taints(pool.instance_type),
        types=(pool.instance_type,),
        capacity="reserved" if pool.capacity_reservation_ids else "on-demand",
        cpus=catalogue.find(pool.instance_type).vcpus * pool.max_nodes,
        expire_after="Never",
        disruption={
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": f"{minutes}m",
            "budgets": [{"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "1", "reasons": ["Drifted"]}],
        },
    )


def _node_class(setting: NodeSetting, name: str, subnet: Text, groups: Sequence[Text], root_gib: int) -> dict[str, Any]:
    key = {} if setting.kms_key_arn is None else {"kmsKeyID": setting.kms_key_arn}
    release = versions.AMI_RELEASES[setting.kubernetes_version].rpartition("-")[2]
    return {
        # The family of images for which Karpenter finds the Neuron and NVIDIA variants by itself, at one release.
        "amiSelectorTerms": [{"alias": f"al2023@v{release}"}],
        "instanceProfile": setting.instance_profile,
        "subnetSelectorTerms": [{"id": subnet}],
        "securityGroupSelectorTerms": [{"id": group} for group in groups],
        "associatePublicIPAddress": False,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        },
        "blockDeviceMappings": [
            {
                "deviceName": template.ROOT_DEVICE,
                "rootVolume": True,
                "ebs": {
                    "volumeType": "gp3",
                    "volumeSize": f"{root_gib}Gi",
                    "iops": template.ROOT_IOPS,
                    "throughput": ROOT_THROUGHPUT_MIBPS,
                    "encrypted": True,
                    "deleteOnTermination": True,
                    **key,
                },
            }
        ],
        "tags": {**setting.tags, "Name": name, EBS_CLUSTER_TAG: setting.cluster_name},
    }


def _node_pool(
    name: str,
    *,
    labels: Mapping[str, str],
    taints: Sequence[Taint] = (),
    startup_taints: Sequence[Taint] = (),
    types: Sequence[str],
    capacity: str,
    cpus: int,
    expire_after: str,
    disruption: Mapping[str, Any],
) -> dict[str, Any]:
    requirements = {INSTANCE_TYPE_LABEL: list(types), CAPACITY_LABEL: [capacity], ARCHITECTURE_LABEL: ["amd64"]}
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": NODE_CLASS_API.partition("/")[0], "kind": "EC2NodeClass", "name": name},
        "requirements": [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()],
        "expireAfter": expire_after,
    }
    for key, found in (("taints", taints), ("startupTaints", startup_taints)):
        if found:
            spec[key] = [{"key": each.key, "value": each.value, "effect": each.effect} for each in found]
    return {
        "template": {"metadata": {"labels": dict(labels)}, "spec": spec},
        "limits": {"cpu": str(cpus)},
        "disruption": dict(disruption),
    }
