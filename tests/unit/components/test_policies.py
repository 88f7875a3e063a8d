"""Every policy that the components write, held statement by statement.

Each has a table of requests with IAM's answer. A test then takes away each statement, condition, action and resource in
turn, and widens each principal: a table that does not notice is not whole.
"""

import json

import pytest
from iam_evaluation import allowed, altered

from components import _iam
from components._data_bucket import _tls_only
from components.encryption_key import policy as key_policy
from components.network import _flow_log_policy
from components.training_namespace import data_policy
from trainium_eks.model.policies import addon_policies
from trainium_eks.model.policies.autoscaling_policies import (
    KarpenterNodes,
    cluster_autoscaler_statements,
    interruption_statements,
    karpenter_statements,
)
from trainium_eks.operate.preflight.deploy_rights import IamRequest

ACCOUNT, OTHERS = "123456789012", "999999999999"
REGION = "us-west-2"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/abc"
BUCKET = "arn:aws:s3:::data"
LOG_GROUP = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:flow"
FILE_SYSTEM = f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/fs-1"
SERVICE_ROLES = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role"
AUTO_SCALING = f"{SERVICE_ROLES}/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
FSX_TO_S3 = f"{SERVICE_ROLES}/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-1"
SOMEONE = f"arn:aws:iam::{ACCOUNT}:role/someone"

USE = ("kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey")
MANAGED_GRANTS = ("kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant")

EVERYTHING = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


def each(answer, actions, resource=KEY, by="", **context):
    """The same answer for all actions. Condition keys are given with ``__`` for ``:`` and ``___`` for ``/``."""
    keys = {key.replace("___", "/").replace("__", ":"): value for key, value in context.items()}
    return [(answer, IamRequest(action, resource, keys, by)) for action in actions]


def by_role(answer, actions, arn, account=ACCOUNT, **context):
    """A role that uses the key itself, as KMS sees it."""
    return each(answer, actions, KEY, arn, aws__PrincipalArn=arn, kms__CallerAccount=account, **context)


def by_service(answer, service, account=ACCOUNT, actions=("kms:Decrypt",)):
    """A service that uses the key for someone who called it."""
    via = f"{service}.{REGION}.amazonaws.com"
    return by_role(answer, actions, SOMEONE, account, kms__ViaService=via)


def _logs(answer, arn, region=REGION, actions=("kms:Decrypt",)):
    return each(answer, actions, KEY, f"logs.{region}.amazonaws.com", kms__EncryptionContext__aws__logs__arn=arn)


KEY_TABLE = [
    # The account's own policies decide who administers the key: without this, no principal ever could.
    *each(True, ("kms:PutKeyPolicy", "kms:ScheduleKeyDeletion"), KEY, f"arn:aws:iam::{ACCOUNT}:root"),
    *each(False, ("kms:PutKeyPolicy",), KEY, f"arn:aws:iam::{OTHERS}:root"),
    *by_role(True, USE, AUTO_SCALING),
    *by_role(False, USE, SOMEONE),
    *by_role(False, USE, AUTO_SCALING, OTHERS),
    *by_role(True, ("kms:CreateGrant",), AUTO_SCALING, kms__GrantIsForAWSResource="true"),
    *by_role(False, ("kms:CreateGrant",), AUTO_SCALING, kms__GrantIsForAWSResource="false"),
    *by_role(False, ("kms:CreateGrant",), AUTO_SCALING),
    *by_role(False, ("kms:CreateGrant",), SOMEONE, kms__GrantIsForAWSResource="true"),
    *by_role(False, ("kms:CreateGrant",), AUTO_SCALING, OTHERS, kms__GrantIsForAWSResource="true"),
    *by_role(False, ("kms:PutKeyPolicy", "kms:ListGrants"), AUTO_SCALING),
    *by_role(True, USE, FSX_TO_S3),
    *by_role(False, USE, FSX_TO_S3, OTHERS),
    *by_role(False, ("kms:CreateGrant",), FSX_TO_S3, kms__GrantIsForAWSResource="true"),
    *_logs(True, f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/eks/x", actions=USE),
    *_logs(False, f"arn:aws:logs:{REGION}:{OTHERS}:log-group:/aws/eks/x"),
    *_logs(False, f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:/aws/eks/x"),
    *_logs(False, f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/eks/x", region="eu-west-1"),
    *(row for service in ("ec2", "fsx", "eks", "ecr", "aps")
      for row in by_service(True, service, actions=(*USE, "kms:CreateGrant", "kms:ListGrants"))),
    *by_service(False, "s3"),
    *by_service(False, "ec2", OTHERS),
    *by_service(False, "ec2", actions=("kms:PutKeyPolicy",)),
]  # fmt: skip


def _taken_by(service, *actions):
    return [
        *each(True, actions, "*", service),
        *each(False, ("sts:AssumeRole",), "*", "lambda.amazonaws.com"),
        *each(False, ("sts:AssumeRole",), "*", SOMEONE),
    ]


def _storage_key(service):
    via, grant = f"{service}.{REGION}.amazonaws.com", {"kms__GrantIsForAWSResource": "true"}
    return [
        *each(True, USE, kms__ViaService=via),
        *each(False, USE),
        *each(False, USE, f"{KEY}-of-others", kms__ViaService=via),
        *each(True, MANAGED_GRANTS, kms__ViaService=via, **grant),
        *each(False, MANAGED_GRANTS, kms__ViaService=via),
        *each(False, MANAGED_GRANTS, **grant),
        *each(False, MANAGED_GRANTS, f"{KEY}-of-others", kms__ViaService=via, **grant),
    ]


FSX_TABLE = [
    *each(True, ("fsx:DescribeFileSystems", "ec2:DescribeSubnets", "ec2:DescribeVpcs"), "*"),
    *each(True, ("ec2:DescribeSecurityGroups",), "*"),
    *each(False, ("fsx:CreateFileSystem",), FILE_SYSTEM, aws__RequestTag___CSIVolumeName="v"),
    *each(False, ("fsx:DeleteFileSystem", "fsx:UpdateFileSystem"), FILE_SYSTEM, aws__ResourceTag___CSIVolumeName="v"),
]

ON_DEMAND_TABLE = [
    *each(True, ("fsx:CreateFileSystem", "fsx:TagResource"), FILE_SYSTEM, aws__RequestTag___CSIVolumeName="v"),
    *each(False, ("fsx:CreateFileSystem", "fsx:TagResource"), FILE_SYSTEM),
    *each(True, ("fsx:DeleteFileSystem", "fsx:UpdateFileSystem"), FILE_SYSTEM, aws__ResourceTag___CSIVolumeName="v"),
    # The stack's own file system has no such tag.
    *each(False, ("fsx:DeleteFileSystem", "fsx:UpdateFileSystem"), FILE_SYSTEM),
    *each(True, ("iam:CreateServiceLinkedRole",), f"{SERVICE_ROLES}/fsx.amazonaws.com/x",
          iam__AWSServiceName="fsx.amazonaws.com"),
    *each(False, ("iam:CreateServiceLinkedRole",), f"{SERVICE_ROLES}/fsx.amazonaws.com/x"),
    *each(False, ("iam:CreateServiceLinkedRole",), f"{SERVICE_ROLES}/spot.amazonaws.com/x",
          iam__AWSServiceName="fsx.amazonaws.com"),
    *_storage_key("fsx"),
]  # fmt: skip

OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
DATA_TABLE = [
    *each(True, OBJECTS, f"{BUCKET}/runs/team/checkpoint"),
    *each(False, OBJECTS, f"{BUCKET}/runs/another/checkpoint"),
    *each(False, OBJECTS, "arn:aws:s3:::others/runs/team/checkpoint"),
    *each(True, ("s3:ListBucket",), BUCKET, s3__prefix="runs/team/2026"),
    *each(True, ("s3:ListBucket",), BUCKET, s3__prefix="runs/team"),
    *each(False, ("s3:ListBucket",), BUCKET, s3__prefix="runs/another"),
    *each(False, ("s3:ListBucket",), BUCKET),
    *each(False, ("s3:ListBucket",), "arn:aws:s3:::others", s3__prefix="runs/team"),
    *each(True, ("kms:Decrypt", "kms:GenerateDataKey"), kms__ViaService=f"s3.{REGION}.amazonaws.com"),
    *each(False, ("kms:Decrypt", "kms:GenerateDataKey")),
    *each(False, ("kms:Decrypt",), f"{KEY}-of-others", kms__ViaService=f"s3.{REGION}.amazonaws.com"),
    *(row for through in ({}, {"kms__ViaService": f"s3.{REGION}.amazonaws.com"})
      for row in each(bool(through), ("kms:Decrypt", "kms:GenerateDataKey"), f"{KEY}-of-the-data-bucket", **through)),
]  # fmt: skip

BUCKET_TABLE = [
    *each(True, ("s3:GetObject",), f"{BUCKET}/x", aws__SecureTransport="true"),
    *each(False, ("s3:GetObject", "s3:PutObject"), f"{BUCKET}/x", aws__SecureTransport="false"),
    *each(False, ("s3:ListBucket",), BUCKET, aws__SecureTransport="false"),
    *each(True, ("s3:ListBucket",), "arn:aws:s3:::others", aws__SecureTransport="false"),
]

LOG_TABLE = [
    *each(True, ("logs:CreateLogStream", "logs:DescribeLogStreams"), LOG_GROUP),
    *each(True, ("logs:PutLogEvents", "logs:CreateLogStream"), f"{LOG_GROUP}:log-stream:eni-1"),
    *each(False, ("logs:PutLogEvents",), f"{LOG_GROUP}-of-others:log-stream:x"),
    *each(True, ("logs:DescribeLogGroups",), "*"),
]

GROUPS = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName"
OWN_GROUP = {"aws__ResourceTag___trainium-eks___cluster-autoscaler": "trn"}
NODE_GROUPS = f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup"
SCALING = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")
AUTOSCALER_TABLE = [
    *each(True, ("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances"), "*"),
    *each(True, ("autoscaling:DescribeLaunchConfigurations", "autoscaling:DescribeScalingActivities"), "*"),
    *each(True, ("ec2:DescribeImages", "ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplateVersions"), "*"),
    *each(True, ("ec2:GetInstanceTypesFromInstanceRequirements",), "*"),
    *each(True, ("eks:DescribeNodegroup",), f"{NODE_GROUPS}/trn/cpu/0123"),
    *each(False, ("eks:DescribeNodegroup",), f"{NODE_GROUPS}/another/cpu/0123"),
    *each(True, SCALING, f"{GROUPS}/eks-cpu-1", **OWN_GROUP),
    *each(False, SCALING, f"{GROUPS}/eks-cpu-1"),
    *each(False, SCALING, f"{GROUPS}/eks-cpu-1", **dict.fromkeys(OWN_GROUP, "another")),
    *each(False, SCALING, f"{GROUPS}/web-1", **OWN_GROUP),
    *each(False, ("autoscaling:UpdateAutoScalingGroup", "autoscaling:DeleteTags"), f"{GROUPS}/eks-cpu-1", **OWN_GROUP),
]

EC2 = f"arn:aws:ec2:{REGION}"
OWN = f"{EC2}:{ACCOUNT}"
TEMPLATE, INSTANCE, VOLUME = f"{OWN}:launch-template/x", f"{OWN}:instance/x", f"{OWN}:volume/x"
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/trn-node"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:trn-interruptions"
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/trn-spot"
KARPENTER = KarpenterNodes("trn", REGION, NODE_ROLE, QUEUE, ["subnet-1"], ["sg-1"], ["cr-1"])
ASKED = {
    "aws__RequestTag___kubernetes.io___cluster___trn": "owned",
    "aws__RequestTag___eks__eks-cluster-name": "trn",
    "aws__RequestTag___karpenter.sh___nodepool": "cpu",
}
OWNED = {
    "aws__ResourceTag___kubernetes.io___cluster___trn": "owned",
    "aws__ResourceTag___karpenter.sh___nodepool": "cpu",
}
STARTS = ("ec2:RunInstances", "ec2:CreateFleet")
ENDS = ("ec2:TerminateInstances", "ec2:DeleteLaunchTemplate")
MADE = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")


def _without(context, key):
    return {name: value for name, value in context.items() if name != key}


KARPENTER_TABLE = [
    *each(True, STARTS, f"{EC2}::image/ami-1"),
    *each(True, STARTS, f"{EC2}::snapshot/snap-1"),
    *each(True, STARTS, f"{EC2}:{ACCOUNT}:placement-group/pool"),
    *each(True, STARTS, f"{EC2}:{ACCOUNT}:subnet/subnet-1"),
    *each(True, STARTS, f"{EC2}:{ACCOUNT}:security-group/sg-1"),
    *each(True, STARTS, f"{EC2}:{ACCOUNT}:capacity-reservation/cr-1"),
    *each(False, STARTS, f"{EC2}:{ACCOUNT}:subnet/subnet-2"),
    *each(True, STARTS, TEMPLATE, **OWNED),
    *(row for key in OWNED for row in each(False, STARTS, TEMPLATE, **_without(OWNED, key))),
    *(row for kind in MADE
      for row in each(True, (*STARTS, "ec2:CreateLaunchTemplate"), f"{OWN}:{kind}/x", **ASKED)),
    *(row for key in ASKED for row in each(False, STARTS, INSTANCE, **_without(ASKED, key))),
    *(row for key in ASKED
      for row in each(False, ("ec2:CreateLaunchTemplate",), TEMPLATE, **_without(ASKED, key))),
    *(row for kind in MADE for action in ("RunInstances", "CreateFleet", "CreateLaunchTemplate")
      for row in each(True, ("ec2:CreateTags",), f"{OWN}:{kind}/x", **ASKED, ec2__CreateAction=action)),
    *each(False, ("ec2:CreateTags",), INSTANCE, **ASKED, ec2__CreateAction="CreateVolume"),
    *each(False, ("ec2:CreateTags",), VOLUME, **ASKED),
    *(row for key in ASKED for row in each(
        False, ("ec2:CreateTags",), VOLUME, **_without(ASKED, key), ec2__CreateAction="RunInstances")),
    *(row for key in ("Name", "karpenter.sh/nodeclaim", "eks:eks-cluster-name")
      for row in each(True, ("ec2:CreateTags",), INSTANCE, **OWNED, aws__TagKeys=key)),
    *each(False, ("ec2:CreateTags",), INSTANCE, **OWNED, aws__TagKeys="Owner"),
    *(row for key in OWNED for row in each(
        False, ("ec2:CreateTags",), INSTANCE, **_without(OWNED, key), aws__TagKeys="Name")),
    *(row for kind in ("instance", "launch-template") for row in each(True, ENDS, f"{OWN}:{kind}/x", **OWNED)),
    *(row for key in OWNED for row in each(False, ENDS, INSTANCE, **_without(OWNED, key))),
    *each(False, ENDS, VOLUME, **OWNED),
    *each(True, ("iam:PassRole",), NODE_ROLE, iam__PassedToService="ec2.amazonaws.com"),
    *each(False, ("iam:PassRole",), NODE_ROLE, iam__PassedToService="lambda.amazonaws.com"),
    *each(False, ("iam:PassRole",), f"{NODE_ROLE}-of-others", iam__PassedToService="ec2.amazonaws.com"),
    *each(True, ("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"), QUEUE),
    *each(False, ("sqs:ReceiveMessage",), f"{QUEUE}-of-others"),
    *each(True, ("eks:DescribeCluster",), f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/trn"),
    *each(False, ("eks:DescribeCluster",), f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/another"),
    *(row for what in ("CapacityReservations", "Images", "Instances", "InstanceStatus", "InstanceTypeOfferings",
                       "InstanceTypes", "LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotPriceHistory",
                       "Subnets")
      for row in (*each(True, (f"ec2:Describe{what}",), "*", aws__RequestedRegion=REGION),
                  *each(False, (f"ec2:Describe{what}",), "*", aws__RequestedRegion="eu-west-1"))),
    *each(True, ("ssm:GetParameter",), f"arn:aws:ssm:{REGION}::parameter/aws/service/eks/x"),
    *each(False, ("ssm:GetParameter",), f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/secret"),
    *each(True, ("iam:GetInstanceProfile", "iam:ListInstanceProfiles", "pricing:GetProducts"), "*"),
    *each(False, ("iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile"), "*"),
]  # fmt: skip

SENT = {"aws__SourceArn": RULE, "aws__SecureTransport": "true"}
QUEUE_TABLE = [
    *each(True, ("sqs:SendMessage",), QUEUE, "events.amazonaws.com", **SENT),
    *each(
        False, ("sqs:SendMessage",), QUEUE, "events.amazonaws.com", **{**SENT, "aws__SourceArn": f"{RULE}-of-others"}
    ),
    *each(False, ("sqs:SendMessage",), QUEUE, "events.amazonaws.com", **{**SENT, "aws__SecureTransport": "false"}),
    *each(False, ("sqs:SendMessage",), QUEUE, "lambda.amazonaws.com", **SENT),
    *each(False, ("sqs:SendMessage",), QUEUE, SOMEONE, **{**SENT, "aws__SecureTransport": "false"}),
    *each(False, ("sqs:ReceiveMessage",), QUEUE, "events.amazonaws.com", **SENT),
    *each(False, ("sqs:SendMessage",), f"{QUEUE}-of-others", "events.amazonaws.com", **SENT),
]

POLICIES = {
    "key": (key_policy(KEY, REGION), KEY_TABLE),
    "bucket": (_tls_only(BUCKET), BUCKET_TABLE),
    "pods' roles": (
        _iam.pod_identity_trust(), _taken_by("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
    ),
    "a service's role": (_iam.service_trust("ec2.amazonaws.com"), _taken_by("ec2.amazonaws.com", "sts:AssumeRole")),
    "volume driver": (_iam.policy(addon_policies.ebs_statements(KEY, REGION)), _storage_key("ec2")),
    "file system driver": (_iam.policy(addon_policies.fsx_statements(KEY, REGION)), FSX_TABLE),
    "file systems on demand": (_iam.policy(addon_policies.fsx_on_demand_statements(KEY, REGION)), ON_DEMAND_TABLE),
    "a team's data": (data_policy(REGION, [(BUCKET, "runs/team")], [KEY, f"{KEY}-of-the-data-bucket"]), DATA_TABLE),
    "cluster autoscaler": (_iam.policy(cluster_autoscaler_statements("trn", REGION)), AUTOSCALER_TABLE),
    "karpenter": (_iam.policy(karpenter_statements(KARPENTER)), KARPENTER_TABLE),
    "interruptions": (_iam.policy(interruption_statements(QUEUE, [RULE])), QUEUE_TABLE),
    "flow logs": (_flow_log_policy(LOG_GROUP), LOG_TABLE),
}  # fmt: skip


BESIDE = {"bucket": [EVERYTHING]}
"""What stands beside a policy: one that only denies is laid over what allows."""


def answers(name, document):
    return [allowed(request, [*BESIDE.get(name, []), document]) for _, request in POLICIES[name][1]]


@pytest.mark.parametrize("name", POLICIES)
def test_policy_grants_exactly_its_table(name):
    text, table = POLICIES[name]
    found = answers(name, json.loads(text))
    assert [request for (wanted, request), got in zip(table, found, strict=True) if wanted != got] == []


@pytest.mark.parametrize("name", POLICIES)
def test_every_part_of_a_policy_is_needed(name):
    text, table = POLICIES[name]
    wanted = [answer for answer, _ in table]
    changes = list(altered(json.loads(text)))
    assert changes
    assert [what for what, document in changes if answers(name, document) == wanted] == []


@pytest.mark.parametrize(
    ("region", "partition"), [("us-west-2", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_managed_policies_and_account_use_the_regions_partition(region, partition):
    arn = _iam.managed_policy_arn(region, "service-role/AmazonEBSCSIDriverPolicy")
    assert arn == f"arn:{partition}:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"
    key = f"arn:{partition}:kms:{region}:{ACCOUNT}:key/00000000-0000-0000-0000-000000000000"
    assert _iam.account_root(key) == f"arn:{partition}:iam::{ACCOUNT}:root"
    document = json.loads(key_policy(key, region))
    assert f"logs.{region}.amazonaws.com" in json.dumps(document)
    assert partition == "aws" or "arn:aws:" not in json.dumps(document)
    found = json.loads(data_policy(region, [(f"arn:{partition}:s3:::data", "training")], [key]))["Statement"]
    suffix = ".cn" if partition == "aws-cn" else ""
    assert found[-1]["Condition"]["StringEquals"] == {"kms:ViaService": f"s3.{region}.amazonaws.com{suffix}"}
