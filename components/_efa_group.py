"""The security group that EFA wants."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from ._args import Text


@dataclass(frozen=True)
class EfaGroup:
    """A security group whose members reach themselves both ways."""

    group: aws.ec2.SecurityGroup
    rules: tuple[pulumi.Resource, ...]
    """What nodes wait for."""


def make_efa_group(
    name: str, *, vpc_id: Text, nodes: str, tags: Mapping[str, Text], parent: pulumi.Resource
) -> EfaGroup:
    """Makes the group with its two rules.

    EFA wants the outbound rule to name the group; a range is not enough (EC2 user guide, EFA security group). EKS' own
    group has such a rule, those of imported or older clusters may not.

    Args:
        name: logical name; the rules' begin with it.
        vpc_id: its VPC.
        nodes: whose it is, in words (``the nodes of trn1``).
        tags: its tags.
        parent: the component it belongs to.
    """
    child = pulumi.ResourceOptions(parent=parent)
    named = {"Name": name, **tags}
    group = aws.ec2.SecurityGroup(name, vpc_id=vpc_id, description=f"EFA traffic among {nodes}", tags=named, opts=child)
    inbound = aws.vpc.SecurityGroupIngressRule(
        f"{name}-in",
        security_group_id=group.id,
        referenced_security_group_id=group.id,
        ip_protocol="-1",
        description="All traffic from the same node group, EFA included",
        tags=named,
        opts=child,
    )
    outbound = aws.vpc.SecurityGroupEgressRule(
        f"{name}-out",
        security_group_id=group.id,
        referenced_security_group_id=group.id,
        ip_protocol="-1",
        description="All traffic to the same node group, EFA included",
        tags=named,
        opts=child,
    )
    return EfaGroup(group, (inbound, outbound))
