"""An account in which every environment can be built, for tests of the preflight."""

from datetime import UTC, datetime

import hand_built
import yaml
from aws_double import Answer, AwsDouble, AwsError
from golden import ROOT

from trainium_eks.aws.account import Account
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.run import answered, look, questions

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
ACCOUNT = "111122223333"
DEPLOYER = f"arn:aws:sts::{ACCOUNT}:assumed-role/training-deployer/ci"
BLOCK = "cr-0123456789abcdef0"

QUOTAS = {
    "L-1216C47A": 64,
    "L-2C3B7624": 1024,
    "L-F678F1CE": 5,
    "L-0263D0A3": 5,
    "L-DF5E4CA3": 5000,
    "L-7A658B76": 50,
    "L-8F1B9C74": 100800,
    "L-FD6F2F22": 100,
}
changed = hand_built.changed
PINNED: dict[str, str] = {}
"""Versions of the add-ons, from the recorded program."""


def listed(tags):
    """Tags as AWS lists them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def addon(asked):
    name = asked["addonName"]
    return {"addons": [{"addonName": name, "addonVersions": [{"addonVersion": PINNED[name]}]}]}


def parameters(asked):
    values = {name: "1.35.8-20260930" if name.endswith("release_version") else "ami-0123" for name in asked["Names"]}
    return {"Parameters": [{"Name": name, "Value": value} for name, value in values.items()]}


def role(asked):
    name = asked["RoleName"]
    known = {"Path": "/ci/", "RoleId": "AROA0123456789012345", "CreateDate": NOW}
    return {"Role": {**known, "RoleName": name, "Arn": f"arn:aws:iam::{ACCOUNT}:role/ci/{name}"}}


def reservation(**other):
    return {
        "CapacityReservationId": BLOCK,
        "ReservationType": "capacity-block",
        "InstanceType": "trn1.32xlarge",
        "AvailabilityZoneId": "usw2-az4",
        "AvailabilityZone": "us-west-2d",
        "TotalInstanceCount": 8,
        "AvailableInstanceCount": 8,
        "State": "active",
        "StartDate": datetime(2026, 11, 20, 11, 30, tzinfo=UTC),
        "EndDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC),
        **other,
    }


SUPPORTED = {"versionStatus": "STANDARD_SUPPORT", "endOfStandardSupportDate": datetime(2027, 3, 27, tzinfo=UTC)}
_NETWORK = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]["trainium-eks:existingNetwork"]
ADOPTED = {
    each["id"]: {
        "SubnetId": each["id"],
        "VpcId": _NETWORK["vpcId"],
        "AvailabilityZoneId": each["zoneId"],
        "CidrBlock": each["cidrBlock"],
        "AvailableIpAddressCount": 16000,
    }
    for each in (*_NETWORK["privateSubnets"], *_NETWORK["publicSubnets"])
}
"""The subnets that production adopts, as EC2 describes them."""

GOOD: dict[str, Answer] = {
    "sts:GetCallerIdentity": {"Account": ACCOUNT, "Arn": DEPLOYER},
    "ec2:DescribeRegions": {"Regions": [{"RegionName": "us-west-2", "OptInStatus": "opt-in-not-required"}]},
    "iam:GetRole": role,
    "iam:GetPolicy": {"Policy": {"DefaultVersionId": "v1"}},
    "iam:GetPolicyVersion": lambda _: {"PolicyVersion": {"Document": "{}"}},  # botocore changes it in place
    "iam:SimulatePrincipalPolicy": lambda asked: {
        "EvaluationResults": [{"EvalActionName": each, "EvalDecision": "allowed"} for each in asked["ActionNames"]]
    },
    "service-quotas:GetServiceQuota": lambda asked: {"Quota": {"Value": float(QUOTAS[asked["QuotaCode"]])}},
    "ec2:DescribeInstances": {"Reservations": []},
    "ec2:DescribeCapacityReservations": {"CapacityReservations": [reservation()]},
    "ec2:DescribeVpcs": {"Vpcs": [{"VpcId": "vpc-1"}]},
    "ec2:DescribeAddresses": {"Addresses": []},
    "ec2:DescribeNetworkInterfaces": {"NetworkInterfaces": []},
    "ec2:DescribeImages": {"Images": []},
    "ec2:DescribeSubnets": lambda asked: {"Subnets": [ADOPTED[each] for each in asked["SubnetIds"]]},
    "ec2:DescribeVolumes": {"Volumes": []},
    "fsx:DescribeFileSystems": {"FileSystems": []},
    "ec2:DescribeInstanceTypeOfferings": {
        "InstanceTypeOfferings": [{"Location": zone} for zone in ("usw2-az1", "usw2-az4")]
    },
    "eks:ListClusters": {"clusters": []},
    "eks:DescribeClusterVersions": {
        "clusterVersions": [{**SUPPORTED, "clusterVersion": version} for version in ("1.36", "1.35", "1.34")]
    },
    "eks:DescribeAddonVersions": addon,
    "ssm:GetParameters": parameters,
    "ecr:DescribeRepositories": AwsError("RepositoryNotFoundException"),
    "logs:DescribeLogGroups": {"logGroups": []},
    "resourcegroupstaggingapi:GetResources": {"ResourceTagMappingList": []},
}
"""An account in which the environments would come up."""


def ask(graph, other=None):
    """Asks a good account, in which some answers are others."""
    for each in graph.of_type("aws:eks/addon:Addon"):
        PINNED[each.inputs["addonName"]] = each.inputs["addonVersion"]
    double = AwsDouble({**GOOD, **(other or {})})
    return look(graph, Account("us-west-2", double.session()), lambda: NOW)


def ask_one(graph, id_, other):
    """Asks a good account one question; all of them take a second."""
    account = Account("us-west-2", AwsDouble({**GOOD, **other}).session())
    [question] = [each for each in questions(Needs(graph), account, lambda: NOW) if each.id == id_]
    return answered(question)


def of(found, id_):
    [finding] = [each for each in found.findings if each.id == id_]
    return finding
