"""EC2: security groups, launch templates, placement groups and single instances."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import ACCOUNT, Answer, Call
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.reading import at, items, mapping
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    Concern,
    Holds,
    RefusesDeletion,
    ResourceType,
    ShownType,
    When,
    Worth,
    nothing_more,
    whole,
)
from trainium_eks.plan.resource_types.rows.vpc import zones_of


def _default_security_group(call: Call) -> Answer:
    identity = call.text("vpcId").replace("vpc-", "sg-", 1) or call.sim("sg")
    return identity, {
        "arn": call.arn("ec2", f"security-group/{identity}"),
        "ownerId": ACCOUNT,
        "name": "default",
        "description": "default VPC security group",
    }


def _security_group(call: Call) -> Answer:
    identity = call.sim("sg")
    return identity, {
        "arn": call.arn("ec2", f"security-group/{identity}"),
        "ownerId": ACCOUNT,
        "name": call.name(),
        "description": call.inputs.get("description", "Managed by Pulumi"),
    }


def _security_group_rule(call: Call) -> Answer:
    identity = call.sim("sgr")
    return identity, {"arn": call.arn("ec2", f"security-group-rule/{identity}"), "securityGroupRuleId": identity}


DEFAULT_SECURITY_GROUP = ResourceType(
    token="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
    simulated=_default_security_group,
    replaced_by=(REGION, "vpcId"),
)

SECURITY_GROUP = ResourceType(
    token="aws:ec2/securityGroup:SecurityGroup",
    simulated=_security_group,
    named_by=("name",),
    replaced_by=(REGION, "name", "namePrefix", "description", "vpcId"),
    seconds=3,
    refuses_deletion=RefusesDeletion("DependencyViolation: resource {id} has a dependent object"),
    understood=(Concern("ingress", access.rules_reached_from_outside, "more addresses reach it", new=True),),
    creation="",
)


def _rule(token: str, understood: tuple[Concern, ...]) -> ResourceType:
    """Return the row of a security group's rule. EC2 modifies a rule in place, but for its group."""
    return ResourceType(
        token=token,
        simulated=_security_group_rule,
        replaced_by=(REGION, "securityGroupId"),
        understood=understood,
        creation="",
    )


_RANGES = ("cidrIpv4", "cidrIpv6")

INGRESS_RULE = _rule(
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    tuple(Concern(each, access.reached_from_outside, "more addresses reach it", new=True) for each in _RANGES),
)
EGRESS_RULE = _rule(
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    tuple(Concern(each, access.reached_from_outside, "it reaches more addresses", new=True) for each in _RANGES),
)


# --- nodes --------------------------------------------------------------------------------------------------------

NO_NEW_VERSION = ("tags", "tagsAll", "defaultVersion", "updateDefaultVersion")
"""Inputs of a launch template that change without a new version. ``tagSpecifications`` is part of the version: a tag
for instances and volumes reaches them by new nodes only."""


def _launch_template(call: Call) -> Answer:
    identity = call.sim("lt")
    arn = call.arn("ec2", f"launch-template/{identity}")
    return identity, {"arn": arn, "name": call.name(), "latestVersion": 1, "defaultVersion": 1}


def _placement_group(call: Call) -> Answer:
    name = call.name()
    arn = call.arn("ec2", f"placement-group/{name}")
    return name, {"arn": arn, "name": name, "placementGroupId": call.sim("pg")}


LAUNCH_TEMPLATE = ResourceType(
    token="aws:ec2/launchTemplate:LaunchTemplate",
    simulated=_launch_template,
    named_by=("name",),
    replaced_by=(REGION, "name", "namePrefix"),
    seconds=3,
    # A new version rolls the nodes of its group, which is reported with the group.
    understood=(
        "blockDeviceMappings",
        "updateDefaultVersion",
        Concern("metadataOptions.httpTokens", concerns.no_longer("required"), "metadata without a session token"),
        Concern("capacityReservationSpecification", concerns.changed, "another kind of capacity"),
        Concern("instanceMarketOptions", concerns.changed, "another kind of capacity"),
    ),
    creation="",
)

PLACEMENT_GROUP = ResourceType(
    token="aws:ec2/placementGroup:PlacementGroup",
    simulated=_placement_group,
    named_by=("name",),
    replaced_by=(REGION, "name", "strategy", "partitionCount", "spreadLevel"),
    shown=ShownType(nothing_more),
    creation="",
)


def launch_template(graph: Graph, resource: Resource) -> Resource | None:
    """Return the launch template of a node group or instance, or None when the program does not make it."""
    urns = resource.property_dependencies.get("launchTemplate", ())
    found = (graph.by_urn.get(urn) for urn in urns)
    return next((each for each in found if each and each.type == LAUNCH_TEMPLATE.token), None)


def instance_type(graph: Graph, resource: Resource) -> str:
    """Return the instance type of a node group or instance, from its inputs or its launch template."""
    types = resource.inputs.get("instanceTypes") or [resource.inputs.get("instanceType")]
    if isinstance(types, list) and types[0]:
        return str(types[0])
    template = launch_template(graph, resource)
    return str(template.inputs.get("instanceType", UNKNOWN)) if template else UNKNOWN


def root_disk(template: Resource | None) -> Mapping[str, Any]:
    """Return the first volume of a launch template, or an empty dictionary."""
    disks = items(template.inputs.get("blockDeviceMappings")) if template else ()
    return next((mapping(at(each, "ebs")) for each in disks if mapping(at(each, "ebs"))), {})


# --- single instances ---------------------------------------------------------------------------------------------

INSTANCE_SECONDS = 32
"""Published logs of Terraform name 12 to 42 s until an instance runs, by the polls of the provider."""
IMAGE_GIB = 8
"""GiB of the root volume where the program names none: the size in Amazon Linux's images."""


def _instance(call: Call) -> Answer:
    identity = call.sim("i")
    arn = call.arn("ec2", f"instance/{identity}")
    return identity, {"arn": arn, "instanceState": "running", "privateIp": "10.0.0.10"}


def _instance_price(graph: Graph, instance: Resource, catalogue: Catalogue) -> Iterable[Line]:
    own = instance.inputs.get("rootBlockDevice")
    disk = own if isinstance(own, Mapping) else root_disk(launch_template(graph, instance))
    return bill.node_group(
        instance_type(graph, instance),
        1,
        1,
        whole(disk.get("volumeSize"), IMAGE_GIB),
        catalogue,
        root_throughput_mibps=whole(disk.get("throughput"), prices.GP3_FREE_MIBPS),
        root_iops=whole(disk.get("iops"), prices.GP3_FREE_IOPS),
    )


def _instance_facts(graph: Graph, instance: Resource) -> Iterable[str]:
    yield instance_type(graph, instance)
    yield zones_of(graph, instance)


def _is_replaced_on_change(instance: Resource, _before: object, _after: object) -> bool:
    return instance.inputs.get("userDataReplaceOnChange") is True


INSTANCE = ResourceType(
    token="aws:ec2/instance:Instance",
    simulated=_instance,
    # hashicorp/terraform-provider-aws, internal/service/ec2/ec2_instance.go; a new version of the launch template too.
    replaced_by=(
        REGION,
        "ami",
        "associatePublicIpAddress",
        "availabilityZone",
        "cpuOptions",
        "ebsBlockDevices",
        "ebsOptimized",
        "enclaveOptions",
        "ephemeralBlockDevices",
        "hibernation",
        "hostId",
        "instanceMarketOptions",
        "ipv6AddressCount",
        "ipv6Addresses",
        "keyName",
        "launchTemplate",
        "networkInterfaces",
        "placementGroup",
        "placementGroupId",
        "placementPartitionNumber",
        "primaryNetworkInterface",
        "privateIp",
        "rootBlockDevice.encrypted",
        "rootBlockDevice.kmsKeyId",
        "securityGroups",
        "subnetId",
        "tenancy",
        When("userData", _is_replaced_on_change),
        When("userDataBase64", _is_replaced_on_change),
    ),
    seconds=INSTANCE_SECONDS,
    price=_instance_price,
    shown=ShownType(_instance_facts),
    holds=Holds("its root volume and what runs on it", Worth.WORK),
)
