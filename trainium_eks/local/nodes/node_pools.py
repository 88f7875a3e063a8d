"""The nodes of a managed node group, made from its inputs and the catalogue.

A node has a name like EC2 instances with resource-based names, ``i-sim5cbdba0f000003.us-west-2.compute.internal``:
``i-`` and 17 characters, of which eight stand for the group and its launch settings, and the last six are the node's
number in the group. The same group has the same names each time. A group with other launch settings (type, zones, AMI
release, launch template) has new names, so that its nodes are replaced as EKS does.
"""

import base64
import hashlib
import ipaddress
import json
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import kubelet
from trainium_eks.model.catalogue.instances import (
    EKS_EFFECTS,
    INSTANCE_TYPE_LABEL,
    ULTRASERVER,
    Catalogue,
    InstanceType,
    Taint,
    UnknownInstanceTypeError,
)
from trainium_eks.model.catalogue.regions import ZONE_ID, default_zones

SIMULATED_POOL_LABEL = "trainium-eks.local/pool"
"""Label with the name of a node's group in EKS."""
SIMULATED = "trainium-eks/simulated"
"""Label of all stand-ins."""
MANIFEST_ANNOTATION = "trainium-eks.local/manifest"
"""Annotation with the digest of the manifest that the node was last made from."""

KWOK_ANNOTATION = "kwok.x-k8s.io/node"

DEFAULT_ROOT_GIB = 20
"""Root volume where the launch template names none (EKS API, ``diskSize``)."""

NODES_A_LEAF = 8
NODES_A_SPINE = 32
"""Number of nodes that share layer 3 and layer 2 of the network.

Both numbers are invented: EC2 reports the layers only of running instances. All nodes of a zone share layer 1.
"""

_EFFECTS = {eks: kubernetes for kubernetes, eks in EKS_EFFECTS.items()}
_LABEL_LENGTH = 63


@dataclass(frozen=True)
class NodePool:
    """A node group, with all properties that its nodes follow from."""

    key: str
    """The group's name in EKS, at most 63 characters."""
    region: str
    instance: InstanceType
    """The nodes' type, with the hugepages and the number of pods that the launch template sets."""
    zone_ids: tuple[str, ...]
    """Zones of the nodes, in turn; at least one."""
    size: int
    min_size: int
    max_size: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity_type: str
    """``ON_DEMAND``, ``SPOT`` or ``CAPACITY_BLOCK``."""
    release: str
    """AMI release, ``1.35.8-20260930``; empty for the newest."""
    kubernetes_version: str
    template_id: str
    template_version: str
    """Launch template; empty where there is none."""
    storage_gib: int
    """Disk for containers: the root volume, or the local disks where they are joined to one."""
    keep_size: bool = False
    """Whether the present number of nodes stays, within the limits, because the program does not manage the size
    (``ignoreChanges`` of ``scalingConfig.desiredSize``).
    """

    @property
    def stem(self) -> str:
        """Return the common beginning of the nodes' names."""
        launched_from = (
            self.key,
            self.instance.name,
            self.release,
            self.kubernetes_version,
            self.template_id,
            self.template_version,
            *self.zone_ids,
        )
        return f"i-sim{_digest(launched_from)}"


def pool_key(computed: Mapping[str, Any]) -> str:
    """Return the key of a group's pool: its name in EKS, shortened where the simulation's is longer than EKS takes."""
    name = str(computed["nodeGroupName"])
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 9]}-{_digest([name])}"


def pool_of(
    inputs: Mapping[str, Any],
    computed: Mapping[str, Any],
    *,
    zones: Mapping[str, str],
    region: str,
    catalogue: Catalogue,
    template: Mapping[str, Any] | None = None,
    keep_size: bool = False,
) -> NodePool:
    """Return the pool of an ``aws:eks/nodeGroup:NodeGroup``.

    Subnets without a zone (the stack neither made nor adopted them) are assumed to be in the zones of the region that
    offer the type, in turn. The template has the launch template's inputs: the type of a Capacity Block's nodes, disks,
    user data. ``keep_size`` is only for an existing group: a new one starts with its desired size.
    """
    template = template or {}
    key = pool_key(computed)
    instance = _instance(key, inputs, template, catalogue)
    boot = base64.b64decode(template.get("userData") or "").decode(errors="replace")
    pages = re.search(r"vm\.nr_hugepages *= *(\d+)", boot)
    if template:
        instance = replace(instance, hugepages_2mi=int(pages[1]) if pages else 0)
    if pods := re.search(r"--max-pods=(\d+)", boot):
        instance = replace(instance, max_pods=int(pods[1]))
    launch, scaling = inputs.get("launchTemplate") or {}, inputs.get("scalingConfig") or {}
    return NodePool(
        key=key,
        region=region,
        instance=instance,
        zone_ids=_zone_ids(inputs, zones, instance, region),
        size=int(scaling.get("desiredSize") or 0),
        min_size=int(scaling.get("minSize") or 0),
        max_size=int(scaling.get("maxSize") or 0),
        labels=dict(inputs.get("labels") or {}),
        taints=tuple(
            Taint(each["key"], each.get("value") or "", _EFFECTS[each["effect"]]) for each in inputs.get("taints") or ()
        ),
        capacity_type=str(inputs.get("capacityType") or "ON_DEMAND"),
        release=str(inputs.get("releaseVersion") or ""),
        kubernetes_version=str(inputs.get("version") or ""),
        template_id=str(launch.get("id") or launch.get("name") or ""),
        template_version=str(launch.get("version") or ""),
        storage_gib=_storage_gib(inputs, template, boot, instance),
        keep_size=keep_size,
    )


def manifest(pool: NodePool, number: int) -> dict[str, Any]:
    """Return one node. The numbers begin with 1."""
    zone_id = pool.zone_ids[(number - 1) % len(pool.zone_ids)]
    zone = zone_name(pool.region, zone_id)
    instance_id = f"{pool.stem}{number:06d}"
    # EC2's domain of private DNS names.
    domain = "ec2.internal" if pool.region == "us-east-1" else f"{pool.region}.compute.internal"
    name = f"{instance_id}.{domain}"
    capacity, allocatable = _resources(pool)
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(pool, number, name, zone_id, zone)},
        "spec": {
            "providerID": f"aws:///{zone}/{instance_id}",
            "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in pool.taints],
        },
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": _address(name)},
                {"type": "Hostname", "address": name},
                {"type": "InternalDNS", "address": name},
                {"type": kubelet.ADDRESS_TYPE, "address": kubelet.HOST},
            ],
            "nodeInfo": _node_info(pool, instance_id),
        },
    }
    digest = hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest()
    node["metadata"]["annotations"] = {KWOK_ANNOTATION: "fake", MANIFEST_ANNOTATION: digest}
    return node


def _address(name: str) -> str:
    """Return a node's address, always the same, in the carriers' shared range, where nothing answers."""
    return str(ipaddress.ip_network("100.64.0.0/10")[int(hashlib.sha256(name.encode()).hexdigest()[:5], 16) + 1])


def zone_name(region: str, zone_id: str) -> str:
    """Return a zone's name, ``us-west-2d`` for ``usw2-az4``. AWS' letters differ by account; here they follow ids."""
    if not ZONE_ID.fullmatch(zone_id):
        return f"{region}-{zone_id}"
    return f"{region}{chr(ord('a') + int(zone_id.rpartition('az')[2]) - 1)}"


def adopted_zones(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the zone id of each subnet of the VPC that a stack's config adopts; none where the stack makes its VPC."""
    network = config.get("existingNetwork") or {}
    subnets = [*(network.get("privateSubnets") or ()), *(network.get("publicSubnets") or ())]
    return {each["id"]: each["zoneId"] for each in subnets}


def _digest(parts: Collection[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _instance(key: str, inputs: Mapping[str, Any], template: Mapping[str, Any], catalogue: Catalogue) -> InstanceType:
    """Return the first type that the group names, or else the type in the launch template, as for Capacity Blocks."""
    name = next(iter(inputs.get("instanceTypes") or ()), None) or template.get("instanceType")
    if not name:
        raise LocalCloudError(
            f"node group {key} has no instance type, and neither has its launch template\n"
            "  set `instanceTypes`, so that the local cloud knows what nodes to make"
        )
    try:
        return catalogue.find(str(name))
    except UnknownInstanceTypeError as error:
        raise LocalCloudError(
            f"node group {key}: {error}\n  the stack's config can add a type to the catalogue (`instanceTypes`)"
        ) from error


def _zone_ids(
    inputs: Mapping[str, Any], zones: Mapping[str, str], instance: InstanceType, region: str
) -> tuple[str, ...]:
    offered = instance.zones.get(region) or default_zones(region) or (f"{region}-az1",)
    subnets = inputs.get("subnetIds") or ("",)
    return tuple(zones.get(subnet) or offered[place % len(offered)] for place, subnet in enumerate(subnets))


def _storage_gib(inputs: Mapping[str, Any], template: Mapping[str, Any], boot: str, instance: InstanceType) -> int:
    if "strategy: RAID0" in boot and instance.local_disks:
        return instance.local_disks * instance.local_disk_gb * 10**9 // 2**30
    for device in template.get("blockDeviceMappings") or ():
        if size := (device.get("ebs") or {}).get("volumeSize"):
            return int(size)
    return int(inputs.get("diskSize") or DEFAULT_ROOT_GIB)


def _labels(pool: NodePool, number: int, name: str, zone_id: str, zone: str) -> dict[str, str]:
    """Return the labels that kubelet, cloud controller and EKS put on a node, and the group's labels."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": pool.instance.name,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": pool.region,
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        INSTANCE_TYPE_LABEL: pool.instance.name,
        "topology.kubernetes.io/region": pool.region,
        "topology.kubernetes.io/zone": zone,
        "topology.k8s.aws/zone-id": zone_id,
        "eks.amazonaws.com/capacityType": pool.capacity_type,
        "eks.amazonaws.com/nodegroup": pool.key,
        "eks.amazonaws.com/nodegroup-image": f"ami-sim{_digest([pool.release, pool.instance.ami_type])}",
        **pool.labels,
        SIMULATED_POOL_LABEL: pool.key,
        SIMULATED: "true",
    }
    if pool.template_id:
        labels["eks.amazonaws.com/sourceLaunchTemplateId"] = pool.template_id
        labels["eks.amazonaws.com/sourceLaunchTemplateVersion"] = pool.template_version
    if pool.instance.family != "cpu":
        # EC2 reports the network layers of accelerator instances, and the cloud controller makes labels of them.
        spine, leaf = (number - 1) // NODES_A_SPINE, (number - 1) // NODES_A_LEAF
        labels["topology.k8s.aws/network-node-layer-1"] = f"nn-sim{_digest([zone_id])}"
        labels["topology.k8s.aws/network-node-layer-2"] = f"nn-sim{_digest([zone_id, pool.key, f'spine {spine}'])}"
        labels["topology.k8s.aws/network-node-layer-3"] = f"nn-sim{_digest([zone_id, pool.key, f'leaf {leaf}'])}"
    if pool.instance.ultraserver_nodes:
        # Neuron's device plugin makes labels of what the driver shows (Neuron's guide for UltraServers).
        labels[f"{ULTRASERVER}-mode"] = "1_2_4"
        for size in (2, 4):
            which, place = divmod(number - 1, size)
            labels[f"{ULTRASERVER}-server-id-{size}"] = 2 * _digest([pool.key, f"{size} nodes", str(which)])
            labels[f"{ULTRASERVER}-node-id-{size}"] = str(place)
    return labels


def _resources(pool: NodePool) -> tuple[dict[str, str], dict[str, str]]:
    """Return capacity and allocatable: the catalogue's figures, and the disk less the kubelet's reserve.

    The kubelet of AL2023 keeps 1 GiB of the disk for itself and evicts below 10 % free (nodeadm in
    awslabs/amazon-eks-ami).
    """
    instance = pool.instance
    allocatable = Catalogue({instance.name: instance}).allocatable(instance.name)
    # Where the catalogue's allocatable memory starts from; an entry of the config may say more.
    memory_mib = max(int(instance.memory_gib * 1024 * 0.925), instance.allocatable_memory_mib)
    capacity = {**allocatable, "cpu": str(instance.vcpus), "memory": f"{memory_mib}Mi"}
    capacity["ephemeral-storage"] = f"{pool.storage_gib}Gi"
    allocatable["ephemeral-storage"] = f"{max(pool.storage_gib * 1024 * 9 // 10 - 1024, 0)}Mi"
    return capacity, allocatable


def _node_info(pool: NodePool, instance_id: str) -> dict[str, str]:
    """Return the node info, which names the node as simulated and the Kubernetes version it would have."""
    version = pool.release.partition("-")[0] or f"{pool.kubernetes_version}.0"
    return {
        "architecture": "amd64",
        "bootID": str(uuid.uuid5(uuid.NAMESPACE_DNS, instance_id)),
        "containerRuntimeVersion": "containerd://simulated",
        "kernelVersion": "simulated",
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{version}-eks-simulated",
        "machineID": instance_id,
        "operatingSystem": "linux",
        "osImage": "Amazon Linux 2023 (simulated)",
        "systemUUID": instance_id,
    }
