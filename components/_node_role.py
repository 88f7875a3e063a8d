"""The role that nodes take."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from . import _iam
from ._args import Text

POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore")
"""Join the cluster, pull images, be reached by Session Manager. Nothing else: every pod on the host network has the
node's rights. The VPC CNI gets its policy by Pod Identity instead."""


@dataclass(frozen=True)
class NodeRole:
    """A node role with its policies."""

    role: aws.iam.Role
    attachments: tuple[aws.iam.RolePolicyAttachment, ...]
    """Node groups wait for these, and are deleted before them: without the policies instances can neither join nor be
    drained."""


def make_node_role(
    name: str, *, region: str, boundary: Text | None, tags: Mapping[str, Text], parent: pulumi.Resource
) -> NodeRole:
    """Make the role; EKS adds its access entry by itself when the first managed group uses it."""
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
    return NodeRole(role, attachments)
