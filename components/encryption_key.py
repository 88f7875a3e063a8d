"""EncryptionKey: the KMS key of an environment, and the policy on its use."""

from collections.abc import Mapping
from typing import Annotated

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import regions
from trainium_eks.model.policies.addon_policies import KEY_USE_ACTIONS, Statement
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds, Length
from trainium_eks.model.validation.problems import Problem

from . import _iam, _ids
from ._args import Tags, Text, computed, validate_args
from ._dicts import EncryptionKeyArgsDict

SERVICES_FOR_CALLERS = ("ec2", "fsx", "eks", "ecr", "aps")
"""Services that may use the key for every caller in the account that may call them: volumes, file system, secrets,
images, metrics. S3 is not among them: a reader of the bucket needs a policy that grants the key."""


class EncryptionKeyArgs(ConfigModel):
    """Args of :class:`EncryptionKey`."""

    region: formats.Region
    """AWS region; the key serves the services of this region alone."""
    description: Annotated[str, Length(8192, "KMS")] = (
        "Volumes, file system, secrets, images and logs of a training environment"
    )
    """Purpose of the key, as the KMS console shows it."""
    deletion_window_days: Annotated[StrictInt, Bounds(7, 30, "days")] = 30
    """Days before a deletion takes effect; until then it can be cancelled."""
    retain_on_delete: StrictBool = True
    """True keeps the key (1 USD a month) when the stack is destroyed. Backups and buckets outlive a stack and can never
    be read again without it. False deletes it with the stack, after the deletion window."""
    kept_key_arn: _ids.KeyArn | None = None
    """ARN of the key that an earlier component of this name kept, to be used again: it gets this component's policy and
    alias, and nothing else of it is managed. None makes a key."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""


def validate(args: EncryptionKeyArgs) -> list[Problem]:
    """Return the problems of the tags; other values have declared limits (botocore, ``kms`` ScheduleKeyDeletion and
    CreateKey)."""
    return formats.tags("tags", args.tags)


def given_or_made(
    given: Text | None, name: str, args: EncryptionKeyArgs, parent: pulumi.Resource
) -> pulumi.Output[str]:
    """Return the ARN of the given key; without one, of a key that is made for the component ``parent``."""
    if given is not None:
        return pulumi.Output.from_input(given)
    return EncryptionKey(name, args, pulumi.ResourceOptions(parent=parent)).key_arn


class EncryptionKey(pulumi.ComponentResource):
    """A rotating KMS key that Auto Scaling, CloudWatch Logs, EBS, FSx, EKS, ECR and Amazon Managed Prometheus of its
    account and region can use.

    A resource that uses :attr:`key_arn` waits for the key's policy too: while the policy does not name Auto Scaling,
    nodes never launch (terraform-provider-aws#39904).
    """

    key_arn: pulumi.Output[str]
    """ARN of the key, known once its policy is in place."""
    key_id: pulumi.Output[str]
    """Id of the key (a UUID)."""

    def __init__(
        self,
        name: str,
        args: EncryptionKeyArgs | EncryptionKeyArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(EncryptionKeyArgs, args, validate, f"EncryptionKey {name}", opts=opts)
        super().__init__("trainium-eks:index:EncryptionKey", name, {}, opts)
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=args.retain_on_delete)
        if args.kept_key_arn is None:
            key = aws.kms.Key(
                f"{name}-key",
                description=args.description,
                enable_key_rotation=True,
                deletion_window_in_days=args.deletion_window_days,
                tags={"Name": name, **args.tags},
                opts=kept,
            )
            self.key_id = computed(key.key_id)
            # The policy names the account, read from the key's ARN: as a separate resource it needs no look-up.
            unseen = f"arn:{regions.partition(args.region)}:kms:{args.region}:{'0' * 12}:key/mocked"
            arn = computed(key.arn, unseen)
        else:
            arn = pulumi.Output.from_input(args.kept_key_arn)
            self.key_id = arn.apply(lambda known: known.rpartition("/")[2])
        key_policy = aws.kms.KeyPolicy(
            f"{name}-policy",
            key_id=self.key_id,
            policy=arn.apply(lambda known: policy(known, args.region)),
            opts=kept,
        )
        aws.kms.Alias(f"{name}-alias", target_key_id=self.key_id, opts=pulumi.ResourceOptions(parent=self))
        self.key_arn = pulumi.Output.all(arn, key_policy.id).apply(lambda known: str(known[0]))
        self.register_outputs({"key_arn": self.key_arn, "key_id": self.key_id})


def policy(key_arn: str, region: str) -> str:
    """Return the key's policy, as JSON.

    Service-linked roles are named in conditions, not as principals: in a new account they do not exist yet, and KMS
    refuses a policy with a principal it cannot find (terraform-provider-aws#28644). ``kms:CallerAccount`` keeps every
    ``*`` inside the account.

    Args:
        key_arn: source of partition and account.
        region: AWS region of the services.
    """
    partition, account = key_arn.split(":")[1], key_arn.split(":")[4]
    service_role = f"arn:{partition}:iam::{account}:role/aws-service-role"
    autoscaling = f"{service_role}/autoscaling.{_SUFFIX}/AWSServiceRoleForAutoScaling"
    fsx_to_s3 = f"{service_role}/s3.data-source.lustre.fsx.{_SUFFIX}/AWSServiceRoleForFSxS3Access_*"
    return _iam.policy(
        [
            {
                "Sid": "AdministrationByTheAccountsPolicies",
                "Effect": "Allow",
                "Principal": {"AWS": _iam.account_root(key_arn)},
                "Action": "kms:*",
                "Resource": "*",
            },
            _for_principals("NodeVolumesByAutoScaling", account, autoscaling, KEY_USE_ACTIONS),
            _for_principals(
                "NodeVolumeGrantsByAutoScaling",
                account,
                autoscaling,
                ("kms:CreateGrant",),
                {"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
            _for_principals("BucketLinksByFsx", account, fsx_to_s3, KEY_USE_ACTIONS),
            {
                "Sid": "LogsOfThisRegion",
                "Effect": "Allow",
                "Principal": {"Service": f"logs.{region}.{regions.dns_suffix(region)}"},
                "Action": list(KEY_USE_ACTIONS),
                "Resource": "*",
                "Condition": {
                    "ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:{partition}:logs:{region}:{account}:*"}
                },
            },
            {
                "Sid": "ServicesForTheirCallers",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [*KEY_USE_ACTIONS, "kms:CreateGrant", "kms:ListGrants"],
                "Resource": "*",
                "Condition": {
                    "StringEquals": {
                        "kms:CallerAccount": account,
                        "kms:ViaService": [
                            f"{service}.{region}.{regions.dns_suffix(region)}" for service in SERVICES_FOR_CALLERS
                        ],
                    }
                },
            },
        ]
    )


_SUFFIX = "amazonaws.com"
"""Suffix of service principals in the path of a service-linked role, the same in every partition."""


def _for_principals(
    sid: str, account: str, principal: str, actions: tuple[str, ...], conditions: Mapping[str, object] | None = None
) -> Statement:
    """Return a statement that allows ``actions`` to principals of the account with an ARN like ``principal``, existing
    or not."""
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": list(actions),
        "Resource": "*",
        "Condition": {
            "StringEquals": {"kms:CallerAccount": account},
            "ArnLike": {"aws:PrincipalArn": principal},
            **(conditions or {}),
        },
    }
