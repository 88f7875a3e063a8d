"""The role that nodes take."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from . import _iam
from ._args import Text

POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore")
"""Join the cluster, pull images, be reached by Session Manager. Nothing else: every pod on the host network has the
node's rights. The VPC CNI gets its policy by Pod Identity instead."""


def make_node_role(
    name: str, *, region: str, boundary: Text | None, tags: Mapping[str, Text], parent: pulumi.Resource
) -> tuple[aws.iam.Role, tuple[pulumi.Resource, ...]]:
    """Make the role with its policies; EKS adds its access entry by itself when the first managed group uses it.

    Node groups wait for the policies, and are deleted before them: without these instances can neither join nor be
    drained.
    """
    role = _iam.make_role(
        f"{name}-node",
        description="Taken by the nodes of the cluster",
        trust=_iam.service_trust("ec2.amazonaws.com"),
        boundary=boundary,
        tags=tags,
        parent=parent,
    )
    attachments = tuple(
        aws.iam.RolePolicyAttachment(
            f"{name}-node-{policy}",
            role=role.name,
            policy_arn=_iam.managed_policy_arn(region, policy),
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for policy in POLICIES
    )
    return role, attachments
