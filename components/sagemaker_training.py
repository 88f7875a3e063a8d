"""SageMakerTraining: role, network and bucket of SageMaker training jobs beside a cluster."""

from typing import Any

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.config import sagemaker
from trainium_eks.model.config.sagemaker import (
    BATCH_LOG_GROUP,
    ENDPOINT_LOG_GROUPS,
    LOG_GROUP,
    SageMakerConfig,
)
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import StrictBool
from trainium_eks.model.validation.problems import Problem

from . import _iam, _ids
from ._args import Tags, Text, computed, outputs, text, validate_args
from ._data_bucket import DataBucket
from ._dicts import SageMakerTrainingArgsDict
from ._efa_group import make_efa_group
from ._sagemaker_policies import Reach, execution_statements, researcher_statements


class SageMakerTrainingArgs(SageMakerConfig):
    """Args of :class:`SageMakerTraining`: the config's section, and its wiring."""

    region: formats.Region
    """AWS region."""
    vpc_id: _ids.VpcId
    """VPC of the training instances."""
    subnet_ids: tuple[_ids.SubnetId, ...]
    """Private subnets of the training instances."""
    kms_key_arn: _ids.KeyArn
    """Key of the volumes, the models and a new bucket."""
    repository_arn: Text | None = None
    """ECR repository of the training images; None for images of other accounts alone."""
    file_system_security_group_id: _ids.SecurityGroupId | None = None
    """Security group of a Lustre file system that jobs read; None for none."""
    protect: StrictBool = False
    """Pulumi refuses to delete a new bucket while true."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds the role; None for no bound."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""


def validate(args: SageMakerTrainingArgs) -> list[Problem]:
    """Return the problems of the args."""
    found = sagemaker.validate(args)
    if not args.subnet_ids:
        found.append(Problem("subnet_ids", "it is empty: the instances have no network", "name a private subnet"))
    return [*found, *formats.tags("tags", args.tags)]


class SageMakerTraining(pulumi.ComponentResource):
    """Role, security group, bucket and log group of SageMaker training jobs.

    ``trn train --on sagemaker`` submits the jobs: each runs in private subnets, with network isolation, under the
    execution role, which reads the bucket and writes below one prefix of it.
    """

    role_arn: pulumi.Output[str]
    """Execution role of the training jobs."""
    bucket_name: pulumi.Output[str]
    """Bucket of data, checkpoints and models."""
    security_group_id: pulumi.Output[str]
    """Security group of the training instances."""
    researcher_policy: pulumi.Output[str]
    """IAM policy, as JSON, of people who submit training jobs: isolated jobs in this network with this role."""

    def __init__(
        self,
        name: str,
        args: SageMakerTrainingArgs | SageMakerTrainingArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(SageMakerTrainingArgs, args, validate, f"SageMakerTraining {name}", opts=opts)
        super().__init__("trainium-eks:index:SageMakerTraining", name, {}, opts)
        self._args = args

        self.bucket_name = self._make_bucket()
        bucket_arn = pulumi.Output.from_input(_iam.bucket_arn(args.region, self.bucket_name))
        self._make_log_group()
        self.security_group_id = self._make_group()
        role = self._make_role(bucket_arn)

        self.role_arn = role.arn
        self.researcher_policy = pulumi.Output.all(
            computed(role.arn, "arn:aws:iam::000000000000:role/mocked"),
            bucket_arn,
            args.kms_key_arn if args.bucket_key_arn is None else text(args.bucket_key_arn),
            self.security_group_id,
            *args.subnet_ids,
        ).apply(
            lambda known: _iam.policy(
                researcher_statements(
                    args.region, args.prefix, args.serving_types, known[0], known[1], known[2], known[3], known[4:]
                )
            )
        )
        self.register_outputs(outputs(self, SageMakerTraining))

    def output(self) -> dict[str, pulumi.Input[Any]]:
        """Return the stack's output ``sageMaker``."""
        return {
            "roleArn": self.role_arn,
            "bucket": self.bucket_name,
            "prefix": self._args.prefix,
            "kmsKeyArn": self._args.kms_key_arn,
            "securityGroupIds": [self.security_group_id],
            "subnetIds": list(self._args.subnet_ids),
            "servingTypes": list(self._args.serving_types),
            "researcherPolicy": self.researcher_policy,
        }

    def _make_bucket(self) -> pulumi.Output[str]:
        args = self._args
        if args.bucket is not None:
            return pulumi.Output.from_input(text(args.bucket))
        made = DataBucket(
            f"{self._name}-data",
            kms_key_arn=args.kms_key_arn,
            protect=args.protect or None,
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return made.bucket_name

    def _make_log_group(self) -> None:
        """Make the log group, which outlives the stack: other training jobs of the account write to it, too."""
        if self._args.log_retention_days is None:
            return
        aws.cloudwatch.LogGroup(
            f"{self._name}-logs",
            name=LOG_GROUP,
            retention_in_days=self._args.log_retention_days,
            kms_key_id=self._args.kms_key_arn,
            tags={**self._args.tags, "Name": self._name},
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )

    def _make_group(self) -> pulumi.Output[str]:
        """Make the instances' security group: EFA among them, TLS outwards for S3, and Lustre both ways."""
        args, name = self._args, self._name
        group, _ = make_efa_group(
            f"{name}-instances", vpc_id=args.vpc_id, nodes="SageMaker training instances", tags=args.tags, parent=self
        )
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-tls",
            security_group_id=group.id,
            description="TLS to S3, whose gateway endpoint has public addresses; the containers are isolated",
            cidr_ipv4="0.0.0.0/0",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            tags={"Name": name, **args.tags},
            opts=pulumi.ResourceOptions(parent=self),
        )
        if args.file_system_security_group_id is not None:
            self._let_lustre_through(group.id, args.file_system_security_group_id)
        return group.id

    def _let_lustre_through(self, group: Text, file_system: Text) -> None:
        """Open Lustre's ports in both groups and both ways: servers call clients back."""
        for side, own, peer in (("instances", group, file_system), ("file-system", file_system, group)):
            for first, last in lustre.PORTS:
                inputs: dict[str, Any] = {
                    "security_group_id": own,
                    "referenced_security_group_id": peer,
                    "description": "Lustre of SageMaker training instances",
                    "ip_protocol": "tcp",
                    "from_port": first,
                    "to_port": last,
                    "tags": {"Name": self._name, **self._args.tags},
                    "opts": pulumi.ResourceOptions(parent=self),
                }
                aws.vpc.SecurityGroupIngressRule(f"{self._name}-{side}-in-{first}", **inputs)
                aws.vpc.SecurityGroupEgressRule(f"{self._name}-{side}-out-{first}", **inputs)

    def _make_role(self, bucket_arn: pulumi.Output[str]) -> aws.iam.Role:
        args = self._args
        role = _iam.make_role(
            f"{self._name}-execution",
            description="Taken by SageMaker for training jobs",
            trust=_iam.service_trust("sagemaker.amazonaws.com"),
            boundary=args.permissions_boundary,
            tags=args.tags,
            parent=self,
        )
        groups = (LOG_GROUP, BATCH_LOG_GROUP, f"{ENDPOINT_LOG_GROUPS}/*") if args.serving_types else (LOG_GROUP,)
        reach = Reach("*", args.prefix, groups, reads_lustre=True)
        repository = args.repository_arn if args.repository_arn is not None else ""
        bucket_key = "" if args.bucket_key_arn is None else text(args.bucket_key_arn)
        policy = pulumi.Output.all(bucket_arn, repository, args.kms_key_arn, bucket_key).apply(
            lambda known: _iam.policy(execution_statements(args.region, reach, *known))
        )
        aws.iam.RolePolicy(
            f"{self._name}-execution", role=role.name, policy=policy, opts=pulumi.ResourceOptions(parent=self)
        )
        return role
