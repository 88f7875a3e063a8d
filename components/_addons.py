"""EKS add-ons, pinned, each with a role of its own where it calls AWS."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from trainium_eks.model import addresses, regions
from trainium_eks.model.instances import Catalogue

from . import _iam
from ._args import Text
from ._charts import tolerations

NAMESPACE = "kube-system"

BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Daemons without which a node is never Ready; with no node yet they are active at once."""

AFTER_NODES = (
    "coredns",
    "aws-ebs-csi-driver",
    "aws-fsx-csi-driver",
    "metrics-server",
    "eks-node-monitoring-agent",
)
"""Add-ons with pods of their own, DEGRADED until a node takes them."""

STORAGE_KEY_ACTIONS = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncrypt*",
    "kms:GenerateDataKey*",
    "kms:DescribeKey",
)


@dataclass(frozen=True)
class Identity:
    """What a controller may do in AWS."""

    service_account: str
    """In ``kube-system``."""
    managed_policy: str = ""
    """Policy that AWS maintains for it, or empty."""
    statements: Callable[[str, str], Sequence[_iam.Statement]] | None = None
    """Further statements, from the key's ARN and the region."""


@dataclass(frozen=True)
class Wiring:
    """What all add-ons of a cluster have in common."""

    name: str
    """Logical name of the cluster component."""
    cluster_name: pulumi.Output[str]
    region: str
    versions: Mapping[str, str]
    """Add-on to version."""
    kms_key_arn: pulumi.Output[str]
    boundary: Text | None
    """ARN of the policy that bounds the add-ons' roles."""
    tags: Mapping[str, Text]
    catalogue: Catalogue
    """Where the taints of GPU nodes are looked up."""
    parent: pulumi.Resource


def make_addon(wiring: Wiring, addon: str, wait_for: Sequence[pulumi.Resource] = ()) -> aws.eks.Addon:
    """Makes an add-on, after the role and association that its controller needs.

    What EKS or a person put there before is overwritten on creation; later changes by hand are kept apart from
    ours by EKS and overwritten too, so that the program says what runs.
    """
    settings = configuration(addon, wiring.region, wiring.catalogue)
    return aws.eks.Addon(
        f"{wiring.name}-{addon}",
        addon_name=addon,
        cluster_name=wiring.cluster_name,
        addon_version=wiring.versions[addon],
        configuration_values=json.dumps(settings, sort_keys=True) if settings else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=dict(wiring.tags),
        opts=pulumi.ResourceOptions(parent=wiring.parent, depends_on=[*wait_for, *_make_identity(wiring, addon)]),
    )


def configuration(addon: str, region: str, catalogue: Catalogue) -> dict[str, object]:
    """The add-on's configuration values, or nothing to leave its defaults.

    EKS refuses a key that an add-on's schema does not list. The EBS driver's has the region, which it is given by
    value: with a metadata hop limit of one, controllers off the host network cannot ask. What the FSx driver's has is
    not published; it takes the region that Pod Identity puts into its pods, or else its node's from Kubernetes
    (aws-fsx-csi-driver, ``newControllerService``).
    """
    if addon == "vpc-cni":
        return {
            "enableNetworkPolicy": "true",
            "env": {
                # The address budget is counted with the same two numbers.
                "WARM_IP_TARGET": str(addresses.WARM_IP_TARGET),
                "MINIMUM_IP_TARGET": str(addresses.MINIMUM_IP_TARGET),
                "ENABLE_PREFIX_DELEGATION": "false",
            },
        }
    if addon == "aws-ebs-csi-driver":
        return {"controller": {"region": region}}
    if addon == "eks-node-monitoring-agent":
        # Its DCGM server tolerates nothing by itself (containers-roadmap#2567). Without one on a GPU node the agent
        # reports the node's hardware as broken, for good. Set with and without GPU groups: a group that is added later
        # starts nodes before an update of the add-on would be through.
        gpus = [name for name, each in catalogue.items() if each.family == "nvidia"]
        return {"dcgmAgent": {"tolerations": tolerations(gpus, catalogue)}}
    return {}


def _make_identity(wiring: Wiring, addon: str) -> list[pulumi.Resource]:
    """Role, policies and Pod Identity association of the add-on's controller; nothing for those that call no AWS."""
    identity = IDENTITIES.get(addon)
    if identity is None:
        return []
    name = f"{wiring.name}-{addon}"
    child = pulumi.ResourceOptions(parent=wiring.parent)
    role = _iam.make_role(
        name,
        description=f"Taken by {identity.service_account} of the cluster, by Pod Identity",
        trust=_iam.pod_identity_trust(),
        boundary=wiring.boundary,
        tags=wiring.tags,
        parent=wiring.parent,
    )
    made: list[pulumi.Resource] = []
    if identity.managed_policy:
        arn = _iam.managed_policy_arn(wiring.region, identity.managed_policy)
        made.append(aws.iam.RolePolicyAttachment(name, role=role.name, policy_arn=arn, opts=child))
    statements = identity.statements
    if statements is not None:
        text = wiring.kms_key_arn.apply(lambda key: _iam.policy(statements(key, wiring.region)))
        made.append(aws.iam.RolePolicy(name, role=role.name, policy=text, opts=child))
    association = aws.eks.PodIdentityAssociation(
        name,
        cluster_name=wiring.cluster_name,
        namespace=NAMESPACE,
        service_account=identity.service_account,
        role_arn=role.arn,
        tags=dict(wiring.tags),
        opts=child,
    )
    return [*made, association]


def _storage_key(key_arn: str, region: str, service: str) -> list[_iam.Statement]:
    """Use of the key for volumes, only through the service that holds them."""
    through = {"kms:ViaService": f"{service}.{region}.{regions.dns_suffix(region)}"}
    return [
        {
            "Effect": "Allow",
            "Action": list(STORAGE_KEY_ACTIONS),
            "Resource": key_arn,
            "Condition": {"StringEquals": through},
        },
        {
            "Effect": "Allow",
            "Action": ["kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"],
            "Resource": key_arn,
            "Condition": {"StringEquals": through, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        },
    ]


def _ebs_statements(key_arn: str, region: str) -> list[_iam.Statement]:
    """The key, which AWS' own policy for the driver leaves out."""
    return _storage_key(key_arn, region, "ec2")


def _fsx_statements(key_arn: str, region: str) -> list[_iam.Statement]:
    """Dynamic file systems: make, read and grow them; delete and change only those that the driver made.

    AWS' own choice is AmazonFSxFullAccess, which could delete the stack's file system. The driver tags all that it
    makes with ``CSIVolumeName`` (aws-fsx-csi-driver, pkg/cloud).
    """
    partition = regions.partition(region)
    file_systems = f"arn:{partition}:fsx:{region}:*:file-system/*"
    made_by_driver = {"Null": {"aws:ResourceTag/CSIVolumeName": "false"}}
    fsx_role = f"arn:{partition}:iam::*:role/aws-service-role/fsx.amazonaws.com/*"
    return [
        {"Effect": "Allow", "Action": "fsx:DescribeFileSystems", "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": ["fsx:CreateFileSystem", "fsx:TagResource"],
            "Resource": file_systems,
            "Condition": {"Null": {"aws:RequestTag/CSIVolumeName": "false"}},
        },
        {
            "Effect": "Allow",
            "Action": ["fsx:DeleteFileSystem", "fsx:UpdateFileSystem"],
            "Resource": file_systems,
            "Condition": made_by_driver,
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:DescribeSubnets", "ec2:DescribeVpcs", "ec2:DescribeSecurityGroups"],
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": "iam:CreateServiceLinkedRole",
            "Resource": fsx_role,
            "Condition": {"StringEquals": {"iam:AWSServiceName": "fsx.amazonaws.com"}},
        },
        *_storage_key(key_arn, region, "fsx"),
    ]


IDENTITIES: Mapping[str, Identity] = {
    "vpc-cni": Identity("aws-node", managed_policy="AmazonEKS_CNI_Policy"),
    "aws-ebs-csi-driver": Identity(
        "ebs-csi-controller-sa",
        # Only its own cluster's volumes, where AmazonEBSCSIDriverPolicy has the whole account's. It compares the tag
        # that the driver writes from 1.58 on with the session's, which Pod Identity brings (aws-ebs-csi-driver#2918).
        managed_policy="AmazonEBSCSIDriverEKSClusterScopedPolicy",
        statements=_ebs_statements,
    ),
    "aws-fsx-csi-driver": Identity("fsx-csi-controller-sa", statements=_fsx_statements),
}
"""Add-ons whose controllers call AWS, with the service accounts that their charts make."""
