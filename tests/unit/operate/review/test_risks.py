"""Guards that are loosened, doors that are opened, rights that are given: told; the other way round: not."""

import json
from dataclasses import replace

import pytest
from hand_built import PREFIX, STACK

from trainium_eks.operate.review.risks import risks
from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource

CLUSTER, GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
LUSTRE, BUCKET, KEY = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:s3/bucket:Bucket", "aws:kms/key:Key"
RULE, SUBNET = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "aws:ec2/subnet:Subnet"
TEMPLATE, LOGS = "aws:ec2/launchTemplate:LaunchTemplate", "aws:cloudwatch/logGroup:LogGroup"
ROLE_POLICY, BUCKET_POLICY = "aws:iam/rolePolicy:RolePolicy", "aws:s3/bucketPolicy:BucketPolicy"
NAMESPACE = "kubernetes:core/v1:Namespace"


def _graph(token, inputs=None, name="it", **options):
    stack = Resource(STACK, STACK_TYPE, "trainium-eks-dev", custom=False)
    other = Resource(f"{PREFIX}aws:iam/role:Role::other", "aws:iam/role:Role", "other", parent=STACK)
    it = Resource(f"{PREFIX}{token}::{name}", token, name, STACK, inputs=inputs or {}, options=Options(**options))
    return Graph("trainium-eks", "dev", (stack, other, *([it] if inputs is not None else [])), {})


def _risks(old, new):
    return risks(old, new, diff.compare(old, new), frozenset())


def _risk_names(token, before, after, **options):
    return [risk.what for risk in _risks(_graph(token, before, **options), _graph(token, after, **options))]


def _level(level):
    return {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level} if level else {}}}


def _endpoint(**access):
    return {"vpcConfig": access}


def _sizes(**sizes):
    return {"scalingConfig": sizes}


def _rights(*actions, effect="Allow", key="policy"):
    return {key: json.dumps({"Statement": [{"Effect": effect, "Action": actions, "Resource": "arn:aws:s3:::data"}]})}


_ASSUME, _TAG, _TRUST = "sts:AssumeRole", "sts:TagSession", {"key": "assumeRolePolicy"}
_ALL, _TOKENS = ["api", "audit"], {"metadataOptions": {"httpTokens": "required"}}
_NARROW = _endpoint(publicAccessCidrs=["203.0.113.0/24"])

LOOSENED = [
    (CLUSTER, {"deletionProtection": True}, {"deletionProtection": False}, "deletion protection"),
    (CLUSTER, {"deletionProtection": True}, {}, "deletion protection"),
    (CLUSTER, {"enabledClusterLogTypes": _ALL}, {"enabledClusterLogTypes": ["api"]}, "fewer logs"),
    (LUSTRE, {"skipFinalBackup": False}, {}, "no last backup"),
    (LUSTRE, {"automaticBackupRetentionDays": 7}, {"automaticBackupRetentionDays": 1}, "shorter time"),
    (BUCKET, {"forceDestroy": False}, {"forceDestroy": True}, "objects in it"),
    (KEY, {"enableKeyRotation": True}, {"enableKeyRotation": False}, "no longer rotated"),
    (LOGS, {"retentionInDays": 365}, {"retentionInDays": 30}, "shorter time"),
    (LOGS, {"retentionInDays": 0}, {"retentionInDays": 30}, "shorter time"),
    (TEMPLATE, _TOKENS, {"metadataOptions": {"httpTokens": "optional"}}, "without a session token"),
    (SUBNET, {"mapPublicIpOnLaunch": False}, {"mapPublicIpOnLaunch": True}, "public addresses"),
    (NAMESPACE, _level("restricted"), _level("baseline"), "do more"),
    (NAMESPACE, _level("baseline"), _level(""), "do more"),
    (CLUSTER, _endpoint(endpointPublicAccess=False), _endpoint(endpointPublicAccess=True), "opened"),
    (CLUSTER, _NARROW, _endpoint(publicAccessCidrs=["203.0.112.0/23"]), "more addresses reach the endpoint"),
    (RULE, {"cidrIpv4": "10.0.0.0/16"}, {"cidrIpv4": "10.0.0.0/8"}, "more addresses reach it"),
    (ROLE_POLICY, _rights("s3:GetObject"), _rights("s3:GetObject", "s3:*"), "allows more"),
    (BUCKET_POLICY, _rights("s3:*", effect="Deny"), _rights(effect="Deny"), "denies less"),
    ("aws:iam/role:Role", _rights(_ASSUME, **_TRUST), _rights(_ASSUME, _TAG, **_TRUST), "may assume it"),
    (GROUP, _sizes(maxSize=4), _sizes(maxSize=8), "may grow to many more"),
    (GROUP, _sizes(desiredSize=0), _sizes(desiredSize=2), "runs many more"),
    (GROUP, _sizes(desiredSize=2), _sizes(desiredSize=1), "fewer nodes"),
    (GROUP, {"capacityType": "ON_DEMAND"}, {"capacityType": "SPOT"}, "another kind of capacity"),
    (CLUSTER, {"version": "1.34"}, {"version": "1.35"}, "another minor version"),
]


@pytest.mark.parametrize(("token", "before", "after", "words"), LOOSENED)
def test_loosened_setting_is_a_risk_and_a_tightened_one_is_not(token, before, after, words):
    assert [each for each in _risk_names(token, before, after) if words in each]
    if token != GROUP and "version" not in before:  # sizes and versions are risks in both directions
        assert not [each for each in _risk_names(token, after, before) if words in each]


NEW = [
    ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", {"policyArn": "arn:aws:iam::aws:policy/X"}, "attached"),
    (ROLE_POLICY, _rights("s3:*"), "allows more"),
    ("aws:eks/accessEntry:AccessEntry", {"principalArn": "arn:aws:iam::111122223333:role/r"}, "gets into"),
    (RULE, {"cidrIpv4": "0.0.0.0/0"}, "more addresses reach it"),
]


@pytest.mark.parametrize(("token", "inputs", "words"), NEW)
def test_new_right_or_open_port_is_a_risk(token, inputs, words):
    assert [each for each in _risk_names(token, None, inputs) if words in each]
    assert _risk_names(RULE, None, {"cidrIpv4": "10.0.0.0/16"}) == [], "among private addresses it is no door"


GUARDS = [
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "kubernetes:networking.k8s.io/v1:NetworkPolicy",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
]


@pytest.mark.parametrize("token", GUARDS)
def test_removed_guard_is_a_risk(token):
    assert [each for each in _risk_names(token, {}, None) if each.startswith("deleted: ")]
    # The size that an autoscaler decides is not told.
    sizes = _sizes(desiredSize=0), _sizes(desiredSize=9)
    assert _risk_names(GROUP, *sizes, ignore_changes=("scalingConfig.desiredSize",)) == []


def test_changed_provider_version_and_lost_export_are_risks():
    old = replace(_graph(BUCKET, {}, version="7.1.0"), outputs={"name": "a", "kept": 1})
    new = replace(_graph(BUCKET, {}, version="8.0.0"), outputs={"kept": 1})
    assert [path.path for risk in _risks(old, new) for path in risk.paths] == ["outputs.name", "pulumi-aws"]


def test_unknown_resource_option_is_a_risk():
    plain, secret = _graph(BUCKET, {}), {"additional_secret_outputs": ("a",)}
    harmless = [{"protect": True}, {"custom_timeouts": {"create": "1h"}}, secret]
    told_when_gone = [secret, {"retain_on_delete": True}, {"ignore_changes": ("a",)}]
    assert [_risks(plain, _graph(BUCKET, {}, **options)) for options in harmless] == [()] * 3
    assert all(_risks(_graph(BUCKET, {}, **options), plain) for options in told_when_gone)
    assert _risks(plain, _graph(BUCKET, {}, delete_before_replace=True))


def test_renamed_resource_is_compared_with_its_former_self():
    old = _graph(CLUSTER, {"deletionProtection": True}, "old")
    new = _graph(CLUSTER, {"deletionProtection": False}, "new", aliases=("name=old",))
    assert [risk.what for risk in _risks(old, new)] == ["deletion protection is taken off"]
