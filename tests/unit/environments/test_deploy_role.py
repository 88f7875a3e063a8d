"""docs/deploy-role-policy.json, deploy-role-operations.json and role-boundary.json, as IAM would judge them.

The role that deploys can do all that the environments need, and can give neither itself nor any other role more than
the boundary.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest
from deploy_needs import (
    ACCOUNT,
    BOUNDARY,
    CHECKS,
    CLEANUP,
    DATA_BUCKET,
    KEY,
    NEEDS,
    PROVIDER,
    ROLE,
    STATE,
    STATE_BUCKET,
    STATE_KEY,
    asks,
)
from golden import ENVIRONMENTS, FOLDER, ROOT
from iam_evaluation import Request, allowed, managed, matching

from trainium_eks.graph.graph import Graph
from trainium_eks.model.autoscaling_policies import KarpenterNodes, karpenter_statements

PLACEHOLDERS = {"STATE_BUCKET": STATE_BUCKET, "STATE_KEY_ARN": STATE_KEY, "DATA_BUCKET": DATA_BUCKET}
MOST_CHARACTERS = 6144
"""Of a managed policy, without white space (IAM quotas)."""

EVERYTHING = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


def filled(name: str, values: dict[str, str]) -> dict[str, Any]:
    text = (ROOT / "docs" / name).read_text()
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    document: dict[str, Any] = json.loads(text)
    return document


POLICIES = ("deploy-role-policy.json", "deploy-role-operations.json")
DEPLOYER = [filled(name, PLACEHOLDERS) for name in POLICIES]
BOUNDS = filled("role-boundary.json", PLACEHOLDERS)


def planned() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type, name and replacing inputs of every resource of the accepted plans, which `test_environments` compares
    with the program."""
    for stack in ENVIRONMENTS:
        for urn, held in json.loads((FOLDER / f"{stack}.json").read_text()).items():
            _, _, types, name = urn.split("::", 3)
            yield types.rpartition("$")[2], name, held.get("replaces", {})


OPTIONAL = {
    "aws:cloudwatch/eventRule:EventRule",
    "aws:cloudwatch/eventTarget:EventTarget",
    "aws:iam/instanceProfile:InstanceProfile",
    "aws:sqs/queue:Queue",
    "aws:sqs/queuePolicy:QueuePolicy",
}
"""Types of what no environment has: Karpenter."""

TYPES = sorted({type_ for type_, _, _ in planned() if type_.startswith("aws:")} | OPTIONAL)
ATTACHED = sorted(
    {inputs["policyArn"] for type_, _, inputs in planned() if type_.startswith("aws:iam/rolePolicyAttachment:")}
)
"""The policies of AWS that the plans attach to roles."""


def attaches() -> tuple[Request, ...]:
    """The attachments of the plans."""
    assert ATTACHED
    return tuple(
        request
        for arn in ATTACHED
        for request in asks(ROLE, "iam:AttachRolePolicy", iam__PolicyARN=arn, iam__PermissionsBoundary=BOUNDARY)
    )


def every_need() -> tuple[Request, ...]:
    return (
        *STATE,
        *PROVIDER,
        *CHECKS,
        *CLEANUP,
        *attaches(),
        *(request for type_ in TYPES for request in NEEDS[type_]),
    )


@pytest.mark.parametrize("type_", TYPES)
def test_the_role_can_do_all_that_a_type_of_the_plans_needs(type_: str) -> None:
    assert [each for each in NEEDS[type_] if not allowed(each, DEPLOYER)] == []


def test_the_role_keeps_the_state_asks_the_checks_cleans_up_and_attaches_the_policies_of_the_plans() -> None:
    assert [each for each in (*STATE, *PROVIDER, *CHECKS, *CLEANUP, *attaches()) if not allowed(each, DEPLOYER)] == []


def test_the_role_can_do_nothing_that_no_type_needs() -> None:
    needed = {each.action.lower() for each in every_need()}
    statements = [statement for document in DEPLOYER for statement in document["Statement"]]
    for statement in statements:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        idle = [each for each in actions if not any(fnmatch(action, each.lower()) for action in needed)]
        assert statement["Effect"] == "Deny" or idle == []
    idle_statements = [
        statement["Sid"]
        for statement in statements
        if statement["Effect"] == "Allow"
        and not any(statement in matching(request, document) for request in every_need() for document in DEPLOYER)
    ]
    assert idle_statements == []


OTHER_ROLE = f"arn:aws:iam::{ACCOUNT}:role/company-admin"
ITSELF = f"arn:aws:iam::{ACCOUNT}:role/training-deployer"
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
OTHER_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/33333333-3333-3333-3333-333333333333"
OTHER_BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/lax"

ESCALATIONS: dict[str, tuple[Request, ...]] = {
    "a role without a boundary": asks(ROLE, "iam:CreateRole"),
    "a role with a boundary of one's own": asks(ROLE, "iam:CreateRole", iam__PermissionsBoundary=OTHER_BOUNDARY),
    "the boundary of another account": asks(
        ROLE, "iam:CreateRole", iam__PermissionsBoundary="arn:aws:iam::999999999999:policy/trn-boundary"
    ),
    "a policy whose path looks like the boundary": asks(
        ROLE, "iam:CreateRole", iam__PermissionsBoundary=f"arn:aws:iam::{ACCOUNT}:policy/x:policy/trn-boundary"
    ),
    "more for a role of ours without a boundary": asks(ROLE, "iam:PutRolePolicy"),
    "administrator for a role of ours": asks(
        ROLE, "iam:AttachRolePolicy", iam__PolicyARN=ADMINISTRATOR, iam__PermissionsBoundary=BOUNDARY
    ),
    "an attachment to a role without a boundary": asks(
        ROLE, "iam:AttachRolePolicy", iam__PolicyARN="arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
    ),
    "more for another role": asks(
        OTHER_ROLE, "iam:PutRolePolicy", "iam:AttachRolePolicy", "iam:UpdateAssumeRolePolicy", "iam:TagRole",
        "iam:PutRolePermissionsBoundary", "iam:DeleteRole",
        iam__PermissionsBoundary=BOUNDARY, iam__PolicyARN="arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy",
    ),
    "more for itself": asks(
        ITSELF, "iam:PutRolePolicy", "iam:AttachRolePolicy", "iam:UpdateAssumeRolePolicy",
        "iam:DeleteRolePermissionsBoundary", iam__PermissionsBoundary=BOUNDARY, iam__PolicyARN=ADMINISTRATOR,
    ),
    "another role for machines": asks(OTHER_ROLE, "iam:PassRole", iam__PassedToService="ec2.amazonaws.com"),
    "a role of ours for a service that runs any code": asks(
        ROLE, "iam:PassRole", iam__PassedToService="lambda.amazonaws.com"
    ),
    "a boundary taken away": asks(ROLE, "iam:DeleteRolePermissionsBoundary", iam__PermissionsBoundary=BOUNDARY),
    "a laxer boundary": asks(ROLE, "iam:PutRolePermissionsBoundary", iam__PermissionsBoundary=OTHER_BOUNDARY),
    "the boundary rewritten": asks(
        BOUNDARY, "iam:CreatePolicyVersion", "iam:SetDefaultPolicyVersion", "iam:DeletePolicy", "iam:CreatePolicy",
        "iam:DeletePolicyVersion",
    ),
    "users and their keys": asks(
        f"arn:aws:iam::{ACCOUNT}:user/trn-x", "iam:CreateUser", "iam:CreateAccessKey", "iam:AttachUserPolicy",
        "iam:CreateLoginProfile", "iam:AddUserToGroup",
    ),
    "an instance with another role": asks(
        f"arn:aws:iam::{ACCOUNT}:instance-profile/x", "iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile"
    ) + asks("*", "ec2:AssociateIamInstanceProfile", "ec2:ReplaceIamInstanceProfileAssociation"),
    "another role taken": asks(OTHER_ROLE, "sts:AssumeRole"),
    "other clusters": asks(
        f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/payroll",
        "eks:CreateAccessEntry", "eks:UpdateClusterConfig", "eks:CreatePodIdentityAssociation", "eks:DeleteCluster",
    ) + asks(
        # A part of another's cluster that is called as ours are.
        f"arn:aws:eks:us-west-2:{ACCOUNT}:nodegroup/payroll/trn-x/0123", "eks:DeleteNodegroup",
    ),
    "other keys": asks(
        OTHER_KEY, "kms:PutKeyPolicy", "kms:CreateGrant", "kms:ScheduleKeyDeletion", "kms:CreateAlias",
        aws__ResourceTag___Name="payroll",
    ) + asks(OTHER_KEY, "kms:PutKeyPolicy", "kms:CreateGrant", "kms:Decrypt"),
    "another key made one's own by its tag": asks(
        OTHER_KEY, "kms:TagResource", aws__RequestTag___Name="trn-x", aws__ResourceTag___Name="payroll"
    ),
    "a key without the stack's mark": asks("*", "kms:CreateKey")
    + asks("*", "kms:CreateKey", aws__RequestTag___Name="payroll"),
    "the state's key": asks(STATE_KEY, "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion", "kms:CreateGrant"),
    "data of the environments": asks(KEY, "kms:Decrypt", "kms:GenerateDataKey", aws__ResourceTag___Name="trn-dev-key")
    + asks("arn:aws:s3:::trn-prod-fsx-data-bucket-0a1b2c3/checkpoint", "s3:GetObject", "s3:PutObject"),
    "other buckets": asks(
        "arn:aws:s3:::payroll", "s3:ListBucket", "s3:PutBucketPolicy", "s3:DeleteBucket", "s3:GetBucketPolicy"
    ) + asks("arn:aws:s3:::payroll/x", "s3:GetObject"),
    "secrets of the account": asks(f"arn:aws:ssm:us-west-2:{ACCOUNT}:parameter/payroll", "ssm:GetParameters"),
    "the state bucket opened": asks(f"arn:aws:s3:::{STATE_BUCKET}", "s3:PutBucketPolicy", "s3:DeleteBucket"),
}  # fmt: skip


@pytest.mark.parametrize("escalation", ESCALATIONS)
def test_the_role_cannot_give_itself_or_another_more(escalation: str) -> None:
    assert [each for each in ESCALATIONS[escalation] if allowed(each, DEPLOYER)] == []


def test_a_key_policy_that_names_the_role_gives_it_no_use_of_the_key() -> None:
    """Who may write a key's policy could name itself in it: an explicit denial stands above that."""
    named = {"Statement": {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}}
    own_use, by_service = (
        Request("kms:Decrypt", KEY, context) for context in ({}, {"kms:ViaService": "fsx.us-west-2.amazonaws.com"})
    )
    assert not allowed(own_use, [*DEPLOYER, named])
    assert allowed(by_service, [*DEPLOYER, named])


BEYOND: dict[str, tuple[Request, ...]] = {
    "identities": asks(OTHER_ROLE, "iam:CreateRole", "iam:PutRolePolicy", "iam:PassRole", "sts:AssumeRole")
    + asks(BOUNDARY, "iam:CreatePolicyVersion") + asks(f"arn:aws:iam::{ACCOUNT}:user/x", "iam:CreateAccessKey"),
    "machines": asks("*", "ec2:RunInstances", "ec2:ModifyInstanceAttribute", "ssm:SendCommand", "ssm:StartSession"),
    "machines that are not Karpenter's": asks(
        f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/i-1", "ec2:RunInstances", "ec2:TerminateInstances"
    ),
    "clusters": asks(f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/trn-x", "eks:CreateAccessEntry", "eks:DeleteCluster"),
    "the state": asks(f"arn:aws:s3:::{STATE_BUCKET}/.pulumi/x", "s3:GetObject", "s3:PutObject")
    + asks(STATE_KEY, "kms:Decrypt"),
    "other data": asks("arn:aws:s3:::payroll/x", "s3:GetObject")
    + asks(OTHER_KEY, "kms:Decrypt", aws__ResourceTag___Name="payroll") + asks(OTHER_KEY, "kms:Decrypt"),
    "policies of buckets and keys": asks("arn:aws:s3:::trn-x", "s3:PutBucketPolicy")
    + asks(KEY, "kms:PutKeyPolicy", aws__ResourceTag___Name="trn-dev-key"),
}  # fmt: skip


@pytest.mark.parametrize("what", BEYOND)
def test_a_role_within_the_boundary_is_no_administrator_whatever_its_policy_says(what: str) -> None:
    assert [each for each in BEYOND[what] if allowed(each, [EVERYTHING], BOUNDS)] == []


ANY = {"kms": KEY, "iam": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/elasticloadbalancing.amazonaws.com/x"}
"""A resource for each service that the boundary opens on some resources alone."""


def concrete(action: str) -> str:
    """An action that a pattern stands for."""
    return action.replace("ReEncrypt*", "ReEncryptFrom").replace("GenerateDataKey*", "GenerateDataKeyWithoutPlaintext")


def granted(document: dict[str, Any]) -> Iterator[Request]:
    """A request for each action on each resource that a policy allows, its conditions met."""
    for statement in document["Statement"]:
        actions, resources = (
            value if isinstance(value, list) else [value] for value in (statement["Action"], statement["Resource"])
        )
        context: dict[str, str] = {"aws:ResourceTag/Name": "trn-dev-key"}
        for keys in statement.get("Condition", {}).values():
            context |= {key: value if isinstance(value, str) else value[0] for key, value in keys.items()}
        for action in actions:
            for resource in resources:
                some = ANY.get(action.split(":")[0], "*") if resource == "*" else resource
                yield Request(concrete(action), some.replace(":*:*:", f":us-west-2:{ACCOUNT}:"), context)


LEFT_OUT = {"ec2:ModifyInstanceAttribute"}
"""Of AWS' policy for the control plane: it changes the start-up script of any stopped instance of the account, and only
clusters whose cloud controller writes routes use it."""


@pytest.mark.parametrize("arn", ATTACHED)
def test_the_boundary_leaves_what_the_policies_of_aws_give(arn: str) -> None:
    cut = {
        each.action
        for each in granted(dict(managed(arn.rpartition("/")[2])))
        if not allowed(each, [EVERYTHING], BOUNDS)
    }
    assert cut <= LEFT_OUT


def test_the_boundary_leaves_what_the_components_own_policies_give(graph: Graph) -> None:
    policies = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    assert policies
    for policy in policies:
        requests = list(granted(json.loads(str(policy.inputs["policy"]))))
        assert [each for each in requests if not allowed(each, [EVERYTHING], BOUNDS)] == []


def test_the_boundary_leaves_what_karpenter_needs() -> None:
    nodes = KarpenterNodes(
        cluster_name="trn-dev-cluster-eks-0a1b2c3",
        region="us-west-2",
        node_role_arn=f"arn:aws:iam::{ACCOUNT}:role/trn-dev-karpenter-node-0a1b2c3",
        queue_arn=f"arn:aws:sqs:us-west-2:{ACCOUNT}:trn-dev-karpenter-interruptions-0a1b2c3",
        subnet_ids=["subnet-1"],
        security_group_ids=["sg-1"],
        capacity_reservation_ids=["cr-1"],
    )
    requests = list(granted({"Statement": karpenter_statements(nodes)}))
    assert [each for each in requests if not allowed(each, [EVERYTHING], BOUNDS)] == []


TAKEN_BY = {
    "-node": "ec2.amazonaws.com",
    "-eks": "eks.amazonaws.com",
    "-flow-logs": "vpc-flow-logs.amazonaws.com",
    "-vpc-cni": "pods.eks.amazonaws.com",
    "-driver": "pods.eks.amazonaws.com",
    "-autoscaler": "pods.eks.amazonaws.com",
    "-idle": "pods.eks.amazonaws.com",
    "-role": "pods.eks.amazonaws.com",
}
"""How a role's name ends, and the one service that may take it."""


def test_each_role_is_taken_by_one_service_and_nobody_else(graph: Graph) -> None:
    roles = graph.of_type("aws:iam/role:Role")
    assert roles
    for role in roles:
        (service,) = (taker for ending, taker in TAKEN_BY.items() if role.name.endswith(ending))
        (statement,) = json.loads(str(role.inputs["assumeRolePolicy"]))["Statement"]
        assert statement["Principal"] == {"Service": service}
        assert set(statement) == {"Effect", "Principal", "Action"}
        tagged = {"sts:TagSession"} if service == "pods.eks.amazonaws.com" else set()
        actions = statement["Action"]
        assert set([actions] if isinstance(actions, str) else actions) == {"sts:AssumeRole"} | tagged


def test_names_of_roles_buckets_and_keys_carry_the_prefix_of_the_policies(graph: Graph) -> None:
    made = graph.of_type("aws:iam/role:Role", "aws:s3/bucket:Bucket")
    assert made
    assert [each.name for each in made if not each.name.startswith("trn-") or "name" in each.inputs] == []
    keys = graph.of_type("aws:kms/key:Key")
    assert keys
    assert [each.name for each in keys if not str(each.inputs["tags"]["Name"]).startswith("trn-")] == []


@pytest.mark.parametrize("name", [*POLICIES, "role-boundary.json"])
def test_the_documents_fit_into_a_managed_policy_however_long_the_names(name: str) -> None:
    key = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/mrk-11111111111111111111111111111111"
    document = filled(name, {"STATE_BUCKET": "b" * 63, "STATE_KEY_ARN": key, "DATA_BUCKET": "d" * 63})
    assert len(json.dumps(document, separators=(",", ":"))) <= MOST_CHARACTERS
    sids = [statement["Sid"] for statement in document["Statement"]]
    assert len(sids) == len(set(sids))
    assert all(re.fullmatch(r"[A-Za-z0-9]+", sid) for sid in sids)
