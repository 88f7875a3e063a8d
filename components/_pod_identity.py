"""A role for the pods of a chart, by EKS Pod Identity."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from trainium_eks.model.addon_policies import Statement

from . import _iam
from ._args import Text


@dataclass(frozen=True)
class Pods:
    """Whose pods take the role."""

    cluster_name: Text
    namespace: str
    service_account: str
    """That the chart makes."""


def make_role(
    name: str,
    pods: Pods,
    statements: pulumi.Input[Iterable[Statement]],
    *,
    boundary: Text | None,
    tags: Mapping[str, Text],
    parent: pulumi.Resource,
) -> aws.eks.PodIdentityAssociation:
    """The role with its one policy, and the association, which pods must wait for: they get credentials when they are
    made or never.

    Args:
        name: logical name of policy and association; the role's ends in ``-role``.
        pods: who takes it.
        statements: what they may do.
        boundary: ARN of the policy that bounds the role; None for no bound.
        tags: beside those of the provider.
        parent: the component it belongs to.
    """
    child = pulumi.ResourceOptions(parent=parent)
    role = _iam.make_role(
        f"{name}-role",
        description=f"Taken by {pods.service_account} in the namespace {pods.namespace}, by Pod Identity",
        trust=_iam.pod_identity_trust(),
        boundary=boundary,
        tags=tags,
        parent=parent,
    )
    policy = pulumi.Output.from_input(statements).apply(_iam.policy)
    allowed = aws.iam.RolePolicy(name, role=role.name, policy=policy, opts=child)
    return aws.eks.PodIdentityAssociation(
        name,
        cluster_name=pods.cluster_name,
        namespace=pods.namespace,
        service_account=pods.service_account,
        role_arn=role.arn,
        tags=dict(tags),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[allowed]),
    )
