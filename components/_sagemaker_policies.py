"""Rights of SageMaker's execution roles, and of researchers who train and serve on SageMaker."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import regions
from trainium_eks.model.config.sagemaker import BATCH_LOG_GROUP, ENDPOINT_LOG_GROUPS, LOG_GROUP
from trainium_eks.model.policies.addon_policies import Statement, allow

NETWORK_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
"""Actions by which SageMaker puts instances into a VPC (SageMaker developer guide, execution roles)."""

PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")


@dataclass(frozen=True)
class Reach:
    """Reach of an execution role in its bucket and its logs."""

    reads: str
    """Keys that it reads; ``*`` matches any letters."""
    writes: str
    """Key prefix that it writes; empty for none."""
    log_groups: tuple[str, ...]
    reads_lustre: bool = False
    watches_alarms: bool = False
    """Whether SageMaker takes back a change of the endpoint on an alarm, which it reads as this role."""


def execution_statements(
    region: str, reach: Reach, bucket_arn: str, repository_arn: str, key_arn: str, bucket_key_arn: str
) -> list[Statement]:
    """Return the execution role's rights. ``bucket_key_arn`` is the key of the bucket's objects, used through S3 alone;
    empty where that is ``key_arn``, the key of volumes and models. ``repository_arn`` may be empty."""
    partition = regions.partition(region)
    logs = [f"arn:{partition}:logs:{region}:*:log-group:{each}" for each in reach.log_groups]
    namespaces = ["/".join(each.split("/")[:4]) for each in reach.log_groups]
    made_by_service = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    found: list[Statement] = [
        allow(["s3:GetBucketLocation", "s3:ListBucket"], bucket_arn),
        allow("s3:GetObject", f"{bucket_arn}/{reach.reads}"),
        allow(["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"], key_arn),
        allow("kms:CreateGrant", key_arn, made_by_service),
        allow(
            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [*logs, *(f"{each}:*" for each in logs)],
        ),
        allow("logs:CreateLogGroup", logs),
        allow("cloudwatch:PutMetricData", "*", {"StringEquals": {"cloudwatch:namespace": namespaces}}),
        allow(list(NETWORK_ACTIONS), "*"),
        allow("ecr:GetAuthorizationToken", "*"),
    ]
    if reach.watches_alarms:
        # SageMaker AI developer guide, auto-rollback configuration.
        found.append(allow("cloudwatch:DescribeAlarms", "*"))
    if reach.writes:
        writes = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"]
        found.append(allow(writes, f"{bucket_arn}/{reach.writes}/*"))
    if reach.reads_lustre:
        found.append(allow("fsx:DescribeFileSystems", "*"))
    if bucket_key_arn:
        through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{region}.{regions.dns_suffix(region)}"}}
        uses = ["kms:Decrypt", "kms:GenerateDataKey"]
        found.append(allow(uses, bucket_key_arn, through_s3))
    images = repository_arn or f"arn:{partition}:ecr:{region}:*:repository/*"
    return [*found, allow(list(PULL_ACTIONS), images)]


def researcher_statements(
    region: str,
    prefix: str,
    serving_types: Iterable[str],
    role_arn: str,
    bucket_arn: str,
    key_arn: str,
    group_id: str,
    subnet_ids: Iterable[str],
) -> list[Statement]:
    """Return the rights to submit, watch and stop training jobs with this security group and these subnets, and to
    serve their models on the ``serving_types``; none for no such rights. ``prefix`` is that of the keys of job
    files."""
    account, partition = role_arn.split(":")[4], regions.partition(region)
    own = f"arn:{partition}:sagemaker:{region}:{account}"
    jobs = f"{own}:training-job/*"
    serves = bool([*serving_types])
    groups = (LOG_GROUP, BATCH_LOG_GROUP, f"{ENDPOINT_LOG_GROUPS}/*") if serves else (LOG_GROUP,)
    logs = [f"arn:{partition}:logs:{region}:{account}:log-group:{each}" for each in groups]
    inside: dict[str, dict[str, Any]] = {
        "Bool": {"sagemaker:NetworkIsolation": "true"},
        "ForAllValues:StringEquals": {
            "sagemaker:VpcSecurityGroupIds": [group_id],
            "sagemaker:VpcSubnets": list(subnet_ids),
        },
        "Null": {"sagemaker:VpcSecurityGroupIds": "false", "sagemaker:VpcSubnets": "false"},
    }
    to_sagemaker = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    return [
        allow("sagemaker:CreateTrainingJob", jobs, inside),
        allow(["sagemaker:AddTags", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"], jobs),
        allow("sagemaker:ListTrainingJobs", "*"),
        allow("iam:PassRole", role_arn, to_sagemaker),
        allow(
            ["logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"],
            [*logs, *(f"{each}:*" for each in logs)],
        ),
        *(_serving_statements(own, inside, [*serving_types]) if serves else ()),
        allow("s3:ListBucket", bucket_arn),
        allow(["s3:GetObject", "s3:PutObject"], f"{bucket_arn}/{prefix}/*"),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], key_arn),
    ]


def _serving_statements(own: str, inside: Mapping[str, Mapping[str, Any]], types: list[str]) -> list[Statement]:
    """Return the rights to serve models: isolated, on these instance types, and with the tag of a namespace, which
    endpoints of stacks lack."""
    made = {"Null": {"aws:RequestTag/Namespace": "false"}}
    tagged = {"Null": {"aws:ResourceTag/Namespace": "false"}}
    model, config, endpoint, batch = (
        f"{own}:{kind}/*" for kind in ("model", "endpoint-config", "endpoint", "transform-job")
    )
    alone = {**inside, "Null": {**inside["Null"], **made["Null"]}}
    on_types = {
        "ForAllValues:StringEquals": {"sagemaker:InstanceTypes": types},
        "Null": {"sagemaker:InstanceTypes": "false", **made["Null"]},
    }
    described = [f"sagemaker:Describe{each}" for each in ("Endpoint", "EndpointConfig", "Model", "TransformJob")]
    deleted = [f"sagemaker:Delete{each}" for each in ("Endpoint", "EndpointConfig", "Model")]
    return [
        allow("sagemaker:CreateModel", model, alone),
        allow(["sagemaker:CreateEndpointConfig", "sagemaker:CreateTransformJob"], [config, batch], on_types),
        allow("sagemaker:CreateEndpoint", [config, endpoint], made),
        {
            "Effect": "Allow",
            "Action": "sagemaker:AddTags",
            "Resource": [model, config, endpoint, batch],
            # Only together with the creation: a tag would open an endpoint of a stack.
            "Condition": {"Null": {"sagemaker:TaggingAction": "false"}},
        },
        allow(
            [*deleted, "sagemaker:StopTransformJob", "sagemaker:UpdateEndpoint"],
            [model, config, endpoint, batch],
            tagged,
        ),
        allow(
            [*described, "sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithResponseStream"],
            [model, config, endpoint, batch],
        ),
        allow([f"sagemaker:List{each}" for each in ("EndpointConfigs", "Endpoints", "TransformJobs")], "*"),
    ]
