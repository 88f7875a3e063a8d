"""A role for the pods of a service account, by EKS Pod Identity."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from trainium_eks.model.policies.addon_policies import Statement

from . import _iam
from ._args import AwsCallerArgs


@dataclass(frozen=True)
class PodRole:
    """A role that pods take."""

    role: aws.iam.Role
    policy: aws.iam.RolePolicy
    association: aws.eks.PodIdentityAssociation

    @property
    def ready(self) -> tuple[pulumi.Resource, ...]:
        """The policy and the association, which the pods must wait for: a pod gets credentials at its creation or
        never."""
        return self.policy, self.association


def make_role(
    name: str,
    args: AwsCallerArgs,
    namespace: str,
    service_account: str,
    statements: pulumi.Input[Iterable[Statement]],
    *,
    role_name: str,
    parent: pulumi.Resource,
) -> PodRole:
    """Make the role of pods with its one policy, and after both the association; the logical name of the role is that
    from which IAM's is generated, ``name`` that of policy and association."""
    child = pulumi.ResourceOptions(parent=parent)
    role = _iam.make_role(
        role_name,
        description=f"Taken by {service_account} in the namespace {namespace}, by Pod Identity",
        trust=_iam.pod_identity_trust(),
        boundary=args.permissions_boundary,
        tags=args.tags,
        parent=parent,
    )
    policy = pulumi.Output.from_input(statements).apply(_iam.policy)
    allowed = aws.iam.RolePolicy(name, role=role.name, policy=policy, opts=child)
    association = aws.eks.PodIdentityAssociation(
        name,
        cluster_name=args.cluster_name,
        namespace=namespace,
        service_account=service_account,
        role_arn=role.arn,
        tags=dict(args.tags),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[allowed]),
    )
    return PodRole(role, allowed, association)
