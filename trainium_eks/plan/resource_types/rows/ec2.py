"""EC2: security groups, launch templates and placement groups."""

from trainium_eks.plan.backend import ACCOUNT, Answer, Call
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    COUNTED,
    FREE,
    NO_DATA,
    ONE_CALL,
    REGION,
    Concern,
    RefusesDeletion,
    ResourceType,
    Shown,
    nothing_more,
)


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
    named_by=(),
    tagged=True,
    replaced_by=(REGION, "vpcId"),
    seconds=ONE_CALL,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
)

SECURITY_GROUP = ResourceType(
    token="aws:ec2/securityGroup:SecurityGroup",
    simulated=_security_group,
    named_by=("name",),
    tagged=True,
    replaced_by=(REGION, "name", "namePrefix", "description", "vpcId"),
    seconds=3,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=RefusesDeletion("DependencyViolation: resource {id} has a dependent object"),
    local="simulated",
    understood=(Concern("ingress", access.rules_reached_from_outside, "more addresses reach it", new=True),),
    creation="",
)


def _rule(token: str, understood: tuple[Concern, ...]) -> ResourceType:
    """Return the row of a security group's rule. EC2 modifies a rule in place, but for its group."""
    return ResourceType(
        token=token,
        simulated=_security_group_rule,
        named_by=(),
        tagged=True,
        replaced_by=(REGION, "securityGroupId"),
        seconds=ONE_CALL,
        price=FREE,
        shown=COUNTED,
        holds=NO_DATA,
        refuses_deletion=ALWAYS_DELETABLE,
        local="simulated",
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
    tagged=True,
    replaced_by=(REGION, "name", "namePrefix"),
    seconds=3,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
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
    tagged=True,
    replaced_by=(REGION, "name", "strategy", "partitionCount", "spreadLevel"),
    seconds=ONE_CALL,
    price=FREE,
    shown=Shown(nothing_more),
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
    creation="",
)

TYPES = (
    DEFAULT_SECURITY_GROUP,
    SECURITY_GROUP,
    INGRESS_RULE,
    EGRESS_RULE,
    LAUNCH_TEMPLATE,
    PLACEMENT_GROUP,
)
