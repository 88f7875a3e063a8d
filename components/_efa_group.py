"""The security group that EFA requires."""

from collections.abc import Callable, Mapping

import pulumi
import pulumi_aws as aws

from ._args import Text

RULES: Mapping[str, Callable[..., pulumi.Resource]] = {
    "in": aws.vpc.SecurityGroupIngressRule,
    "out": aws.vpc.SecurityGroupEgressRule,
}
"""Both directions of a rule between two security groups."""


def make_efa_group(
    name: str, *, vpc_id: Text, nodes: str, tags: Mapping[str, Text], parent: pulumi.Resource
) -> tuple[aws.ec2.SecurityGroup, tuple[pulumi.Resource, ...]]:
    """Make a group with rules for all traffic among its members, both ways; nodes wait for the two rules. ``nodes``
    describes the members (``the nodes of trn1``).

    EFA requires an outbound rule that names the group; a range is not enough (EC2 user guide, EFA security group). EKS'
    own group has such a rule, the groups of imported or older clusters may not.
    """
    child = pulumi.ResourceOptions(parent=parent)
    named = {"Name": name, **tags}
    group = aws.ec2.SecurityGroup(name, vpc_id=vpc_id, description=f"EFA traffic among {nodes}", tags=named, opts=child)
    rules = tuple(
        make_rule(
            f"{name}-{way}",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            description=f"All traffic {'from' if way == 'in' else 'to'} the same node group, EFA included",
            tags=named,
            opts=child,
        )
        for way, make_rule in RULES.items()
    )
    return group, rules
