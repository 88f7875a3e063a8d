"""Guards that are loosened, doors that are opened, rights that are given: told; the other way round: not."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hand_built import PREFIX, STACK

from trainium_eks.operate.review.risks import Risk, risks
from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource

CLUSTER, GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
LUSTRE, BUCKET = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:s3/bucket:Bucket"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
NAMESPACE = "kubernetes:core/v1:Namespace"
LEVEL = "pod-security.kubernetes.io/enforce"


def _policy(*actions: str, effect: str = "Allow") -> str:
    return json.dumps({"Statement": [{"Effect": effect, "Action": list(actions), "Resource": "arn:aws:s3:::data"}]})


def _graph(token: str, inputs: dict[str, Any] | None = None, name: str = "it", **options: Any) -> Graph:
    stack = Resource(STACK, STACK_TYPE, "trainium-eks-dev", custom=False)
    other = Resource(f"{PREFIX}aws:iam/role:Role::other", "aws:iam/role:Role", "other", parent=STACK)
    it = Resource(f"{PREFIX}{token}::{name}", token, name, STACK, inputs=inputs or {}, options=Options(**options))
    return Graph("trainium-eks", "dev", (stack, other, *([it] if inputs is not None else [])), {})


def _risks(old: Graph, new: Graph) -> tuple[Risk, ...]:
    return risks(old, new, diff.compare(old, new), frozenset())


def _told(token: str, before: dict[str, Any] | None, after: dict[str, Any] | None, **options: Any) -> list[str]:
    return [risk.what for risk in _risks(_graph(token, before, **options), _graph(token, after, **options))]


LOOSENED = [
    (CLUSTER, {"deletionProtection": True}, {"deletionProtection": False}, "deletion protection"),
    (CLUSTER, {"deletionProtection": True}, {}, "deletion protection"),
    (CLUSTER, {"enabledClusterLogTypes": ["api", "audit"]}, {"enabledClusterLogTypes": ["api"]}, "fewer logs"),
    (LUSTRE, {"skipFinalBackup": False}, {}, "no last backup"),
    (LUSTRE, {"automaticBackupRetentionDays": 7}, {"automaticBackupRetentionDays": 1}, "shorter time"),
    (BUCKET, {"forceDestroy": False}, {"forceDestroy": True}, "objects in it"),
    ("aws:kms/key:Key", {"enableKeyRotation": True}, {"enableKeyRotation": False}, "no longer rotated"),
    ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 365}, {"retentionInDays": 30}, "shorter time"),
    ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 0}, {"retentionInDays": 30}, "shorter time"),
    (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"metadataOptions": {"httpTokens": "required"}},
        {"metadataOptions": {"httpTokens": "optional"}},
        "without a session token",
    ),
    ("aws:ec2/subnet:Subnet", {"mapPublicIpOnLaunch": False}, {"mapPublicIpOnLaunch": True}, "public addresses"),
    (
        NAMESPACE,
        {"metadata": {"labels": {LEVEL: "restricted"}}},
        {"metadata": {"labels": {LEVEL: "baseline"}}},
        "do more",
    ),
    (NAMESPACE, {"metadata": {"labels": {LEVEL: "baseline"}}}, {"metadata": {"labels": {}}}, "do more"),
    (CLUSTER, {"vpcConfig": {"endpointPublicAccess": False}}, {"vpcConfig": {"endpointPublicAccess": True}}, "opened"),
    (
        CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"publicAccessCidrs": ["203.0.112.0/23"]}},
        "more addresses reach the endpoint",
    ),
    (RULE, {"cidrIpv4": "10.0.0.0/16"}, {"cidrIpv4": "10.0.0.0/8"}, "more addresses reach it"),
    (
        "aws:iam/rolePolicy:RolePolicy",
        {"policy": _policy("s3:GetObject")},
        {"policy": _policy("s3:GetObject", "s3:*")},
        "allows more",
    ),
    (
        "aws:s3/bucketPolicy:BucketPolicy",
        {"policy": _policy("s3:*", effect="Deny")},
        {"policy": _policy(effect="Deny")},
        "denies less",
    ),
    (
        "aws:iam/role:Role",
        {"assumeRolePolicy": _policy("sts:AssumeRole")},
        {"assumeRolePolicy": _policy("sts:AssumeRole", "sts:TagSession")},
        "may assume it",
    ),
    (GROUP, {"scalingConfig": {"maxSize": 4}}, {"scalingConfig": {"maxSize": 8}}, "may grow to many more"),
    (GROUP, {"scalingConfig": {"desiredSize": 0}}, {"scalingConfig": {"desiredSize": 2}}, "runs many more"),
    (GROUP, {"scalingConfig": {"desiredSize": 2}}, {"scalingConfig": {"desiredSize": 1}}, "fewer nodes"),
    (GROUP, {"capacityType": "ON_DEMAND"}, {"capacityType": "SPOT"}, "another kind of capacity"),
    (CLUSTER, {"version": "1.34"}, {"version": "1.35"}, "another minor version"),
]


@pytest.mark.parametrize(("token", "before", "after", "words"), LOOSENED)
def test_what_is_loosened_is_told_and_what_is_tightened_is_not(
    token: str, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    assert [each for each in _told(token, before, after) if words in each]
    if token != GROUP and "version" not in before:  # sizes and versions are told in both directions
        assert not [each for each in _told(token, after, before) if words in each]


@pytest.mark.parametrize(
    ("token", "inputs", "words"),
    [
        ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", {"policyArn": "arn:aws:iam::aws:policy/X"}, "attached"),
        ("aws:iam/rolePolicy:RolePolicy", {"policy": _policy("s3:*")}, "allows more"),
        ("aws:eks/accessEntry:AccessEntry", {"principalArn": "arn:aws:iam::111122223333:role/r"}, "gets into"),
        (RULE, {"cidrIpv4": "0.0.0.0/0"}, "more addresses reach it"),
    ],
)
def test_new_rights_and_doors_are_told(token: str, inputs: dict[str, Any], words: str) -> None:
    assert [each for each in _told(token, None, inputs) if words in each]


def test_a_new_rule_among_private_addresses_is_no_door() -> None:
    assert _told(RULE, None, {"cidrIpv4": "10.0.0.0/16"}) == []


@pytest.mark.parametrize(
    "token",
    [
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    ],
)
def test_a_guard_that_goes_is_told(token: str) -> None:
    assert [each for each in _told(token, {}, None) if each.startswith("deleted: ")]


def test_the_size_that_an_autoscaler_decides_is_not() -> None:
    sizes = {"scalingConfig": {"desiredSize": 0}}, {"scalingConfig": {"desiredSize": 9}}
    assert _told(GROUP, *sizes, ignore_changes=("scalingConfig.desiredSize",)) == []


def test_another_version_of_a_provider_and_an_export_that_goes_are_told() -> None:
    old = replace(_graph(BUCKET, {}, version="7.1.0"), outputs={"name": "a", "kept": 1})
    new = replace(_graph(BUCKET, {}, version="8.0.0"), outputs={"kept": 1})
    assert [path.path for risk in _risks(old, new) for path in risk.paths] == ["outputs.name", "pulumi-aws"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"protect": True}, False),
        ({}, {"custom_timeouts": {"create": "1h"}}, False),
        ({}, {"additional_secret_outputs": ("a",)}, False),
        ({"additional_secret_outputs": ("a",)}, {}, True),
        ({"retain_on_delete": True}, {}, True),
        ({"ignore_changes": ("a",)}, {}, True),
        ({}, {"delete_before_replace": True}, True),
    ],
)
def test_an_option_that_is_not_understood_as_harmless_is_told(
    before: dict[str, Any], after: dict[str, Any], told: bool
) -> None:
    assert bool(_risks(_graph(BUCKET, {}, **before), _graph(BUCKET, {}, **after))) is told


def test_a_resource_that_gets_another_name_is_held_against_its_former_self() -> None:
    old = _graph(CLUSTER, {"deletionProtection": True}, "old")
    new = _graph(CLUSTER, {"deletionProtection": False}, "new", aliases=("name=old",))
    assert [risk.what for risk in _risks(old, new)] == ["deletion protection is taken off"]
