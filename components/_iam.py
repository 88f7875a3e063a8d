"""IAM: roles, and trust and permission policies as JSON text, the same text for the same meaning."""

import json
from collections.abc import Iterable, Mapping

import pulumi
import pulumi_aws as aws

from trainium_eks.model.catalogue import regions
from trainium_eks.model.policies.addon_policies import Statement

from ._args import Text

POLICY_VERSION = "2012-10-17"
"""IAM's policy language version; the only one with policy variables."""


def policy(statements: Iterable[Statement]) -> str:
    """Return a policy document of these statements, as JSON. They are plain data; where a value is an Output, call this
    inside ``Output.all(...).apply``."""
    return json.dumps({"Version": POLICY_VERSION, "Statement": [dict(statement) for statement in statements]})


def make_role(
    name: str,
    *,
    description: str,
    trust: str,
    boundary: Text | None,
    tags: Mapping[str, Text],
    parent: pulumi.Resource,
) -> aws.iam.Role:
    """Make a role with the permissions boundary (an ARN); every role of the library is made here. The description names
    the principals that take the role, in up to 1000 characters; ``trust`` is JSON."""
    return aws.iam.Role(
        name,
        description=description,
        assume_role_policy=trust,
        permissions_boundary=boundary,
        tags=dict(tags),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def pod_identity_trust() -> str:
    """Return the trust policy of roles that pods take by EKS Pod Identity; TagSession carries cluster, namespace and
    account."""
    return policy(
        [
            {
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
            }
        ]
    )


def service_trust(service: str) -> str:
    """Return the trust policy of roles that one AWS service (``eks.amazonaws.com``) takes."""
    return policy([{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}])


def managed_policy_arn(region: str, name: str) -> str:
    """Return the ARN of a policy that AWS maintains, in the region's partition, by its name with its path
    (``AmazonEKSClusterPolicy`` or ``service-role/AmazonEBSCSIDriverPolicy``)."""
    return f"arn:{regions.partition(region)}:iam::aws:policy/{name}"


def bucket_arn(region: str, name: Text) -> Text:
    """Return the ARN of a bucket by its name, in the region's partition."""
    prefix = f"arn:{regions.partition(region)}:s3:::"
    return f"{prefix}{name}" if isinstance(name, str) else pulumi.Output.concat(prefix, name)


def principal_key(arn: str) -> str:
    """Return a part of a resource's name that is unique to the role or user: account, kind, path and name, so of
    ``arn:aws:iam::111122223333:role/ops/admin`` ``111122223333-role/ops/admin``."""
    account, resource = arn.split(":", 5)[4:]
    return f"{account}-{resource}"


def account_root(arn: str) -> str:
    """Return the root principal of the account that owns ``arn``, in its partition.

    The account is read from the ARN of a resource in the stack, so that no look-up runs in a preview.
    """
    _, partition, _, _, account, *_ = arn.split(":")
    return f"arn:{partition}:iam::{account}:root"
