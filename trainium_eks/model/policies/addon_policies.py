"""IAM statements for the controllers of EKS add-ons, for rights without a policy that AWS maintains."""

from collections.abc import Mapping, Sequence

from trainium_eks.model.catalogue import regions

Statement = Mapping[str, object]
"""One statement of a policy document, in IAM's own spelling (``Effect``, ``Action``, ``Resource``, ``Condition``)."""

KEY_USE_ACTIONS = ("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey")
"""Actions for writing and reading encrypted data (KMS developer guide, key users)."""


def allow(actions: str | Sequence[str], resources: str | Sequence[str], condition: object = None) -> Statement:
    """Return a statement that allows actions on resources, under a condition if one is given."""
    allowed: Statement = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return allowed if condition is None else {**allowed, "Condition": condition}


def ebs_statements(key_arn: str, region: str) -> list[Statement]:
    """Return the EBS driver's rights on the key, which AWS' policy for the driver does not include."""
    return _storage_key(key_arn, region, "ec2")


def fsx_statements(_key_arn: str, _region: str) -> list[Statement]:
    """Return the rights for reading, which are enough for volumes of an existing file system."""
    return [
        allow("fsx:DescribeFileSystems", "*"),
        allow(["ec2:DescribeSubnets", "ec2:DescribeVpcs", "ec2:DescribeSecurityGroups"], "*"),
    ]


def fsx_on_demand_statements(key_arn: str, region: str) -> list[Statement]:
    """Return the rights for file systems of claims: create, and change or delete only file systems that the driver
    made.

    AWS recommends AmazonFSxFullAccess, which could delete the stack's file system. The driver tags all file systems
    that it makes with ``CSIVolumeName`` (aws-fsx-csi-driver, pkg/cloud).
    """
    partition = regions.partition(region)
    file_systems = f"arn:{partition}:fsx:{region}:*:file-system/*"
    made_by_driver = {"Null": {"aws:ResourceTag/CSIVolumeName": "false"}}
    fsx_role = f"arn:{partition}:iam::*:role/aws-service-role/fsx.amazonaws.com/*"
    return [
        allow(
            ["fsx:CreateFileSystem", "fsx:TagResource"],
            file_systems,
            {"Null": {"aws:RequestTag/CSIVolumeName": "false"}},
        ),
        allow(["fsx:DeleteFileSystem", "fsx:UpdateFileSystem"], file_systems, made_by_driver),
        allow("iam:CreateServiceLinkedRole", fsx_role, {"StringEquals": {"iam:AWSServiceName": "fsx.amazonaws.com"}}),
        *_storage_key(key_arn, region, "fsx"),
    ]


def _storage_key(key_arn: str, region: str, service: str) -> list[Statement]:
    """Return the rights to use the key for volumes, only through the service that stores them."""
    through = {"kms:ViaService": f"{service}.{region}.{regions.dns_suffix(region)}"}
    return [
        allow(list(KEY_USE_ACTIONS), key_arn, {"StringEquals": through}),
        allow(
            ["kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"],
            key_arn,
            {"StringEquals": through, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    ]
