"""The account: read and never written to, and never the end of a command."""

import json
import sys
from pathlib import Path

import pytest
from aws_double import AwsDouble, AwsError
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.parsers import ResponseParserError
from deploy_needs import ACCOUNT, BOUNDARY, asks
from good_account import GOOD, NOW, PINNED, ask, of
from iam_evaluation import allowed

from trainium_eks.aws.account import READS, Account, NotCheckedError, RequestError, WriteAttemptedError, right
from trainium_eks.aws.account import NoCredentialsError as NoLoginError
from trainium_eks.model.finding import Status
from trainium_eks.operate.preflight.run import look


def account(double):
    return Account("us-west-2", double.session())


@pytest.fixture(scope="module")
def looks(dev, prod):
    """What is found in a good account, and what was asked: every operation that boto3 sends, those of paginators too,
    as its last event before the network sees them."""
    made = {}
    for graph in (dev, prod):
        PINNED.update(
            {each.inputs["addonName"]: each.inputs["addonVersion"] for each in graph.of_type("aws:eks/addon:Addon")}
        )
        double = AwsDouble(GOOD)
        made[graph.stack] = look(graph, account(double), lambda: NOW), double.asked
    return made


def test_write_is_refused_before_it_is_sent():
    double = AwsDouble({"ec2:DeleteVpc": {}})
    with pytest.raises(WriteAttemptedError, match="ec2:DeleteVpc"):
        account(double).call("ec2", "delete_vpc", VpcId="vpc-1")
    assert double.asked == []


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_only_existing_read_operations_are_called(looks, stack):
    """Recording makes up the ends of names, and an account."""
    found, asked = looks[stack]
    assert len(found.findings) > 20
    sent = {name for name, _ in asked}
    assert len(sent) > 15
    assert [name for name in sent if not name.split(":")[1].startswith(READS)] == []
    assert "sim-" not in f"{asked} {found.findings}"


def test_good_account_passes_every_check_with_one_request_each(looks):
    found, asked = looks["prod"]
    # This machine is in no network of production's.
    trouble = [each for each in found.findings if each.status is not Status.PASS and each.id != "network/api"]
    assert (trouble, found.failed) == ([], False)
    assert found.facts["account"] == "111122223333"
    names = [name for name, _ in asked]
    assert names.count("sts:GetCallerIdentity") == names.count("ec2:DescribeInstances") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AwsError("AccessDenied"), "the right"),
        (AwsError("UnauthorizedOperation"), "the right"),
        (AwsError("ThrottlingException"), "throttled"),
        (AwsError("RequestLimitExceeded"), "throttled"),
        (AwsError("ExpiredToken"), "aws sso login"),
        (AwsError("InternalFailure", "try\nlater"), "InternalFailure: try later"),
        (AwsError("502", "<!DOCTYPE HTML>\n<html>"), "HTTP 502 in place of an answer"),
        (EndpointConnectionError(endpoint_url="https://ec2"), "no network"),
        (NoCredentialsError(), "no AWS credentials here"),
        (ResponseParserError("Unable to parse\n<html>"), "look at the proxy"),
    ],
)
def test_unanswered_questions_are_not_checked_and_give_the_reason(prod, error, reason):
    found = ask(prod, dict.fromkeys(GOOD.keys() - {"sts:GetCallerIdentity"}, error))
    assert not found.failed
    open_ = found.of(Status.NOT_CHECKED)
    known = ("account/id", "account/deployer")  # which need to know who asks, and no more
    assert len(open_) == len([each for each in found.findings if each.id not in known])
    assert all(reason in each.text and "\n" not in each.text for each in open_), open_


def test_missing_right_and_unknown_answer_are_reported(dev):
    denied = AwsError("AccessDeniedException")
    names = ("service-quotas:GetServiceQuota", "eks:DescribeClusterVersions")
    found = ask(dev, dict.fromkeys(names, denied))
    assert of(found, "quotas/L-F678F1CE").text == "the right servicequotas:GetServiceQuota is missing"
    assert of(found, "versions/kubernetes").text == "the right eks:DescribeClusterVersions is missing"
    told = of(ask(dev, {"service-quotas:GetServiceQuota": {}}), "quotas/L-F678F1CE")
    assert told.status is Status.NOT_CHECKED
    assert "was not understood (KeyError: 'Quota')" in told.text


def test_missing_credentials_stop_all_requests(prod):
    double = AwsDouble({"sts:GetCallerIdentity": NoCredentialsError()})
    found = look(prod, account(double), lambda: NOW)
    assert {each.status for each in found.findings} == {Status.NOT_CHECKED}
    assert [name for name, _ in double.asked] == ["sts:GetCallerIdentity"]
    assert (found.facts["account"], found.failed) == ("", False)


def test_error_about_the_resource_keeps_its_code():
    with pytest.raises(RequestError) as refused:
        account(AwsDouble({"iam:GetRole": AwsError("NoSuchEntity")})).call("iam", "get_role", RoleName="x")
    assert refused.value.code == "NoSuchEntity"


@pytest.mark.parametrize(
    ("arn", "role"),
    [
        ("arn:aws:sts::111122223333:assumed-role/deployer/session", "deployer"),
        ("arn:aws:iam::111122223333:user/deployer", ""),
    ],
)
def test_callers_identity_is_asked_once_even_when_refused(arn, role):
    double = AwsDouble({"sts:GetCallerIdentity": {"Account": "111122223333", "Arn": arn, "UserId": "x"}})
    asking = account(double)
    assert [asking.caller().role for _ in range(2)] == [role, role]
    assert [name for name, _ in double.asked] == ["sts:GetCallerIdentity"]
    refused = account(AwsDouble({"sts:GetCallerIdentity": AwsError("ExpiredToken")}))
    for _ in range(2):
        with pytest.raises(NoLoginError, match=r"does not take these credentials \(ExpiredToken\)"):
            refused.caller()


def test_missing_boto3_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(NotCheckedError, match="boto3 is missing"):
        Account("us-west-2").caller()


def test_deploy_role_has_the_rights_of_every_check(looks):
    """Each operation that the checks send, held against the documented policy."""
    docs = Path(__file__).resolve().parents[3] / "docs"
    policies = [json.loads(each.read_text()) for each in sorted(docs.glob("deploy-role-*.json"))]
    sent = {name for _, asked in looks.values() for name, _ in asked}
    actions = {right(*name.split(":")) for name in sent} - {"sts:GetCallerIdentity"}
    resources = {
        "ecr:DescribeRepositories": f"arn:aws:ecr:us-west-2:{ACCOUNT}:repository/trainium-eks-dev/training",
        "iam:GetRole": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS",
        **dict.fromkeys(("iam:GetPolicy", "iam:GetPolicyVersion"), BOUNDARY),
        "ssm:GetParameters": "arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami/1.35/x",
        "eks:DescribeCluster": f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/trn-dev-cluster-eks-0a1b2c3",
    }
    requests = [asks(resources.get(action, "*"), action)[0] for action in sorted(actions)]
    assert [each.action for each in requests if not allowed(each, policies)] == []
