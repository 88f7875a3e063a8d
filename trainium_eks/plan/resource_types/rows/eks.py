"""EKS: control planes, node groups, add-ons, and access to clusters."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.model.catalogue import prices, regions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import addons
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import TIME, Answer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import at, items, mapping
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    Concern,
    Holds,
    Kept,
    RefusesDeletion,
    ResourceType,
    ShownType,
    Switch,
    When,
    Worth,
    whole,
)
from trainium_eks.plan.resource_types.rows.ec2 import instance_type, launch_template, root_disk
from trainium_eks.plan.resource_types.rows.vpc import zones_of
from trainium_eks.plan.subjects import EFA

_CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n").decode()


# --- the control plane --------------------------------------------------------------------------------------------


def _cluster(call: Call) -> Answer:
    name, unique = call.name(), f"SIM{call.digest.upper()}"
    suffix = regions.dns_suffix(call.region)
    vpc_config = {
        **call.mapping("vpcConfig"),
        "clusterSecurityGroupId": call.sim("sg"),
        "vpcId": f"vpc-sim-{call.digest}",
    }
    return name, {
        "arn": call.arn("eks", f"cluster/{name}"),
        "name": name,
        "endpoint": f"https://{unique}.gr7.{call.region}.eks.{suffix}",
        "certificateAuthority": {"data": _CERTIFICATE},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{call.region}.{suffix}/id/{unique}"}]}],
        "vpcConfig": vpc_config,
        "platformVersion": "eks.sim",
        "status": "ACTIVE",
        "createdAt": TIME,
    }


def _taken_off(_cluster: Resource, _before: object, after: object) -> bool:
    """Return whether envelope encryption is removed, which EKS never does in place."""
    return after is None


def _cluster_price(_graph: Graph, cluster: Resource, _catalogue: Catalogue) -> Iterator[Line]:
    policy = cluster.inputs.get("upgradePolicy")
    support_type = policy.get("supportType", "EXTENDED") if isinstance(policy, Mapping) else "EXTENDED"
    yield bill.control_plane(str(cluster.inputs.get("version", "")), support_type)
    yield from bill.control_plane_tier(_tier(cluster))


def _tier(cluster: Resource) -> str | None:
    return mapping(cluster.inputs.get("controlPlaneScalingConfig")).get("tier")


def _cluster_facts(_graph: Graph, cluster: Resource) -> Iterable[str]:
    inputs = cluster.inputs
    yield f"Kubernetes {inputs.get('version', 'default')}"
    vpc = inputs.get("vpcConfig") or {}
    ranges = (vpc.get("publicAccessCidrs") or ["0.0.0.0/0"]) if isinstance(vpc, Mapping) else vpc
    public = ranges if isinstance(ranges, str) else ", ".join(ranges)
    private = isinstance(vpc, Mapping) and not vpc.get("endpointPublicAccess", True)
    yield "private endpoint only" if private else f"public endpoint for {public}"
    yield "deletion protection" if inputs.get("deletionProtection") else ""
    yield f"control plane {tier}" if (tier := _tier(cluster)) else ""


CLUSTER = ResourceType(
    token="aws:eks/cluster:Cluster",
    simulated=_cluster,
    named_by=("name",),
    replaced_by=(
        REGION,
        "name",
        "roleArn",
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
        "kubernetesNetworkConfig.ipFamily",
        "kubernetesNetworkConfig.serviceIpv4Cidr",
        "outpostConfig.controlPlaneInstanceType",
        "outpostConfig.controlPlanePlacement.groupName",
        When("encryptionConfig", _taken_off),
    ),
    seconds=612,
    price=_cluster_price,
    shown=ShownType(_cluster_facts),
    holds=Holds("everything in Kubernetes", Worth.WORK),
    refuses_deletion=RefusesDeletion(
        "ResourceInUseException: Cluster has nodegroups attached",
        for_=("aws:eks/nodeGroup:NodeGroup",),
        switch=Switch(
            "deletionProtection",
            "InvalidRequestException: Cluster deletion protection is enabled. Disable it before you delete the cluster",
        ),
    ),
    understood=(
        Concern("deletionProtection", concerns.switched_off, "deletion protection is taken off"),
        Concern("enabledClusterLogTypes", concerns.fewer, "fewer logs of the control plane"),
        Concern("version", concerns.changed, "another minor version of Kubernetes; EKS never goes back"),
        Concern(
            "controlPlaneScalingConfig.tier", concerns.changed, "the control plane gets another capacity and price"
        ),
        Concern("upgradePolicy", concerns.changed, "what happens when the support of its version ends"),
        Concern("vpcConfig.endpointPublicAccess", concerns.no_longer_false, "the endpoint is opened to the internet"),
        Concern("vpcConfig.endpointPublicAccess", concerns.no_longer_true, "reached from within the VPC alone"),
        Concern("vpcConfig.publicAccessCidrs", access.reached_from_more, "more addresses reach the endpoint"),
    ),
    kept=(
        Kept("controlPlaneScalingConfig", "EKS keeps and bills the tier: write `cluster.controlPlaneTier: standard`"),
        # Left out when the public endpoint is turned off, where the ranges have no effect.
        Kept("vpcConfig.publicAccessCidrs", ""),
    ),
)


# --- node groups --------------------------------------------------------------------------------------------------

CPU_GROUP_SECONDS = 124.0
"""Median of 14 CPU groups of two or three nodes."""
EMPTY_GROUP_SECONDS = 58.0
"""A group that starts with no node."""
ACCELERATOR_GROUP_SECONDS = 270.0
"""Accelerator nodes boot slower: 3 to 6 minutes."""

ROLLS_NODES = ("launchTemplate.version", "releaseVersion", "version")
"""Paths of a node group that keep the group and replace its nodes when they change: EKS ``UpdateNodegroupVersion``."""


REPAIR = (
    *("maxUnhealthyNodeThresholdCount", "maxUnhealthyNodeThresholdPercentage", "maxParallelNodesRepairedCount"),
    *("maxParallelNodesRepairedPercentage", "nodeRepairConfigOverrides"),
)
"""Settings of a node group's repair beside its switch (EKS API, NodeRepairConfig)."""


def is_accelerator_group(resource: Resource) -> bool:
    """Return whether a node group's nodes carry accelerators: by its taint, else by its AMI type."""
    if resource.type != NODE_GROUP.token:
        return False
    taints: Any = resource.inputs.get("taints") or ()
    keys = {taint.get("key") for taint in taints if isinstance(taint, Mapping)}
    ami_type = str(resource.inputs.get("amiType", ""))
    return bool(keys & {"aws.amazon.com/neuron", "nvidia.com/gpu"}) or ami_type.endswith(("_NEURON", "_NVIDIA"))


def _node_group(call: Call) -> Answer:
    cluster, name = call.text("clusterName"), call.name("nodeGroupName")
    return f"{cluster}:{name}", {
        "arn": call.arn("eks", f"nodegroup/{cluster}/{name}/sim-{call.digest}"),
        "nodeGroupName": name,
        "status": "ACTIVE",
        "resources": [{"autoscalingGroups": [{"name": f"eks-{name}-sim-{call.digest}"}]}],
    }


def _has_nodes(group: Resource) -> bool:
    """Return whether a group has nodes, where a size that only ``pulumi up`` knows counts as one."""
    return bool(_sizes(group).get("desiredSize"))


def _sizes(group: Resource) -> Mapping[str, Any]:
    """Return the sizes of a group, empty when they are unknown."""
    return mapping(group.inputs.get("scalingConfig"))


def _group_seconds(group: Resource) -> float:
    if not _has_nodes(group):
        return EMPTY_GROUP_SECONDS
    return ACCELERATOR_GROUP_SECONDS if is_accelerator_group(group) else CPU_GROUP_SECONDS


def _group_price(graph: Graph, group: Resource, catalogue: Catalogue) -> Iterable[Line]:
    sizes, template = _sizes(group), launch_template(graph, group)
    disk = root_disk(template) or {"volumeSize": group.inputs.get("diskSize")}
    return bill.node_group(
        instance_type(graph, group),
        whole(sizes.get("desiredSize")),
        whole(sizes.get("maxSize")),
        whole(disk.get("volumeSize"), 20),
        catalogue,
        capacity=_capacity(template, group),
        root_throughput_mibps=whole(disk.get("throughput"), prices.GP3_FREE_MIBPS),
        root_iops=whole(disk.get("iops"), prices.GP3_FREE_IOPS),
    )


def _capacity(template: Resource | None, group: Resource) -> str:
    kind = group.inputs.get("capacityType")
    if kind in ("SPOT", "CAPACITY_BLOCK"):
        return "spot" if kind == "SPOT" else "capacity-block"
    specification = mapping(template.inputs.get("capacityReservationSpecification")) if template else {}
    return "reservation" if specification.get("capacityReservationTarget") else "on-demand"


_CAPACITY = {"ON_DEMAND": "on demand", "SPOT": "spot", "CAPACITY_BLOCK": "capacity block"}


def _group_facts(graph: Graph, group: Resource) -> Iterable[str]:
    sizes, template = _sizes(group), launch_template(graph, group)
    low, high = sizes.get("minSize", 0), sizes.get("maxSize", 0)
    yield f"{sizes.get('desiredSize', 0)} × {instance_type(graph, group)} ({low} to {high})"
    interfaces = items(template.inputs.get("networkInterfaces")) if template else ()
    efa = sum(at(each, "interfaceType") in EFA for each in interfaces)
    yield f"{efa} EFA interfaces" if efa else ""
    capacity = str(group.inputs.get("capacityType", "ON_DEMAND"))
    reserved = template and template.inputs.get("capacityReservationSpecification")
    yield "capacity reservation" if reserved and capacity == "ON_DEMAND" else _CAPACITY.get(capacity, capacity)
    yield zones_of(graph, group)


JUMP = 2
"""A group that may grow to this many times its size, or that at once runs this many times its nodes, is a jump."""


def _jumps(before: object, after: object) -> bool:
    return before is not None and whole(after) >= max(JUMP * whole(before), whole(before) + JUMP)


def _size_is_ignored(_graph: Graph, group: Resource) -> bool:
    """Return whether an autoscaler or a person sets the number of nodes, so that a plan does not show it."""
    return "scalingConfig.desiredSize" in group.options.ignore_changes


NODE_GROUP = ResourceType(
    token="aws:eks/nodeGroup:NodeGroup",
    simulated=_node_group,
    named_by=("nodeGroupName",),
    replaced_by=(
        REGION,
        "amiType",
        "capacityType",
        "clusterName",
        "diskSize",
        "instanceTypes",
        "launchTemplate.id",
        "launchTemplate.name",
        "nodeGroupName",
        "nodeGroupNamePrefix",
        "nodeRoleArn",
        "remoteAccess",
        "subnetIds",
    ),
    seconds=_group_seconds,
    price=_group_price,
    shown=ShownType(_group_facts),
    holds=Holds("what runs on its nodes", Worth.WORK, while_=_has_nodes),
    local="nodes",
    understood=(
        # Told with what is lost, where the group has nodes.
        *ROLLS_NODES,
        Concern("capacityType", concerns.changed, "another kind of capacity"),
        Concern("scalingConfig.desiredSize", concerns.less, "fewer nodes; what runs on the others ends", loses=True),
        Concern("scalingConfig.desiredSize", _jumps, "runs many more nodes at once"),
        Concern("scalingConfig.minSize", _jumps, "never runs less than many more nodes"),
        Concern("scalingConfig.maxSize", _jumps, "may grow to many more nodes"),
        Concern("scalingConfig.maxSize", concerns.less, "fewer nodes at most; others end", of=_size_is_ignored),
        Concern("updateConfig.maxUnavailable", concerns.more, "an update takes more nodes down at once"),
        Concern("nodeRepairConfig.enabled", concerns.switched_off, "broken nodes stay"),
        *(
            Concern(f"nodeRepairConfig.{each}", concerns.changed, "broken nodes are repaired otherwise")
            for each in REPAIR
        ),
        Concern("labels", concerns.fewer, "pods that select its nodes by their labels find none"),
    ),
    creation="",
)


# --- add-ons ------------------------------------------------------------------------------------------------------


def _addon(call: Call) -> Answer:
    cluster, addon = call.text("clusterName"), call.text("addonName")
    arn = call.arn("eks", f"addon/{cluster}/{addon}/sim-{call.digest}")
    return f"{cluster}:{addon}", {"arn": arn, "createdAt": TIME, "modifiedAt": TIME}


def _addon_name(addon: Resource) -> str:
    return str(addon.inputs.get("addonName", ""))


def _addon_facts(_graph: Graph, addon: Resource) -> Iterable[str]:
    yield str(addon.inputs.get("addonVersion", "default version")).split("-eksbuild", 1)[0]


ADDON = ResourceType(
    token="aws:eks/addon:Addon",
    simulated=_addon,
    replaced_by=(REGION, "clusterName", "addonName"),
    seconds=lambda addon: addons.addon_record(_addon_name(addon)).seconds,
    shown=ShownType(_addon_facts, joined_as=_addon_name),
    local="addon",
    understood=(
        Concern("addonVersion", concerns.changed, "another version of the add-on"),
        Concern("configurationValues", concerns.changed, "other settings of the add-on"),
    ),
    creation="new software in the cluster",
    kept=(
        # terraform-provider-aws, eks/addon.go.
        Kept("configurationValues", "EKS keeps the settings: write `settings: {}` in `cluster.addons.<name>`"),
    ),
)


# --- who may do what ----------------------------------------------------------------------------------------------


def _access_entry(call: Call) -> Answer:
    cluster, principal = call.text("clusterName"), call.text("principalArn")
    return f"{cluster}:{principal}", {
        "accessEntryArn": call.arn("eks", f"access-entry/{cluster}/sim/{call.digest}"),
        "type": call.inputs.get("type", "STANDARD"),
        "userName": call.inputs.get("userName", principal),
        "createdAt": TIME,
        "modifiedAt": TIME,
    }


def _access_policy_association(call: Call) -> Answer:
    identity = "#".join(call.text(field) for field in ("clusterName", "principalArn", "policyArn"))
    return identity, {"associatedAt": TIME, "modifiedAt": TIME}


def _pod_identity_association(call: Call) -> Answer:
    identity = call.sim("a")
    arn = call.arn("eks", f"podidentityassociation/{call.text('clusterName')}/{identity}")
    return identity, {"associationId": identity, "associationArn": arn}


ACCESS_ENTRY = ResourceType(
    token="aws:eks/accessEntry:AccessEntry",
    simulated=_access_entry,
    replaced_by=(REGION, "clusterName", "principalArn", "type"),
    understood=(
        Concern("principalArn", concerns.changed, "a principal gets into the cluster", new=True),
        Concern("kubernetesGroups", access.lists_more, "a principal gets more groups, and their rights"),
    ),
    creation="",
)

ACCESS_POLICY_ASSOCIATION = ResourceType(
    token="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    simulated=_access_policy_association,
    tagged=False,
    replaced_by=(REGION, "clusterName", "principalArn", "policyArn", "accessScope"),
    understood=(
        Concern("principalArn", concerns.changed, "a principal gets rights in the cluster", new=True),
        Concern("policyArn", concerns.changed, "a principal gets other rights in the cluster"),
    ),
    creation="",
)

POD_IDENTITY_ASSOCIATION = ResourceType(
    token="aws:eks/podIdentityAssociation:PodIdentityAssociation",
    simulated=_pod_identity_association,
    replaced_by=(REGION, "clusterName", "namespace", "serviceAccount"),
    understood=(
        Concern("serviceAccount", concerns.changed, "pods get the rights of a role", new=True),
        Concern("namespace", concerns.changed, "other pods get the rights of a role"),
        Concern("roleArn", concerns.changed, "pods get the rights of another role"),
    ),
    creation="",
)
