"""SageMakerTraining: a role that can do little, jobs without a public network, and rights for people."""

import json
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import pytest

from components import ArgumentError, SageMakerTraining
from components.sagemaker_training import LOG_GROUP
from trainium_eks.plan.graph import Graph, Resource

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
WIRING: dict[str, Any] = {
    "region": "us-west-2",
    "vpc_id": "vpc-1",
    "subnet_ids": ["subnet-1", "subnet-2"],
    "kms_key_arn": KEY,
    "repository_arn": "arn:aws:ecr:us-west-2:000000000000:repository/trn-dev/training",
    "file_system_security_group_id": "sg-lustre",
    "bucket": "acme-data",
}

Record = Callable[..., Graph]


def made(record: Record, **args: Any) -> Graph:
    return record(lambda: SageMakerTraining("jobs", {**WIRING, **args}) and None)


def one(graph: Graph, kind: str) -> Resource:
    (found,) = graph.of_type(kind)
    return found


def statements(graph: Graph) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(one(graph, "aws:iam/rolePolicy:RolePolicy").inputs["policy"])["Statement"]
    return found


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def may(graph: Graph, action: str, resource: str) -> bool:
    return any(
        any(fnmatch(action, each) for each in listed(statement["Action"]))
        and any(fnmatch(resource, each) for each in listed(statement["Resource"]))
        for statement in statements(graph)
    )


def test_the_role_is_sagemaker_s_and_writes_below_one_prefix_of_one_bucket(record: Record) -> None:
    graph = made(record)
    trust = json.loads(one(graph, "aws:iam/role:Role").inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert may(graph, "s3:GetObject", "arn:aws:s3:::acme-data/reviews/train.parquet")
    assert may(graph, "s3:PutObject", "arn:aws:s3:::acme-data/sagemaker/training/bert/model.tar.gz")
    assert not may(graph, "s3:PutObject", "arn:aws:s3:::acme-data/reviews/train.parquet")
    assert not may(graph, "s3:GetObject", "arn:aws:s3:::payroll/salaries.csv")
    assert not may(graph, "logs:PutLogEvents", "arn:aws:logs:us-west-2:000000000000:log-group:/aws/eks/trn-dev")
    assert not may(graph, "ecr:BatchGetImage", "arn:aws:ecr:us-west-2:000000000000:repository/payroll")
    assert not any("*" in action for statement in statements(graph) for action in listed(statement["Action"]))


def test_everything_is_allowed_only_for_actions_that_know_no_resource(record: Record) -> None:
    everywhere = {
        action
        for statement in statements(made(record))
        if statement["Resource"] == "*" and "Condition" not in statement
        for action in listed(statement["Action"])
    }
    assert {action.split(":")[0] for action in everywhere} == {"ec2", "ecr", "fsx"}
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}


def test_another_key_of_the_bucket_is_the_role_s_too_but_not_for_volumes(record: Record) -> None:
    other = KEY.replace("/k", "/other")
    found = [each for each in statements(made(record, bucket_key_arn=other)) if "kms:" in str(each["Action"])]
    assert [each["Resource"] for each in found] == [KEY, KEY, other]
    assert found[1]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert found[2]["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}


def test_nobody_reaches_the_instances_but_they_and_the_file_system(record: Record) -> None:
    rules = made(record).of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    assert rules
    assert not any("cidrIpv4" in each.inputs for each in rules)
    own = one(made(record), "aws:ec2/securityGroup:SecurityGroup").outputs["id"]
    assert {each.inputs["referencedSecurityGroupId"] for each in rules} == {own, "sg-lustre"}


def test_without_a_file_system_there_are_no_lustre_rules(record: Record) -> None:
    graph = made(record, file_system_security_group_id=None)
    assert len(graph.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")) == 1


def test_without_a_bucket_it_makes_one_that_is_closed_and_stays(record: Record) -> None:
    graph = made(record, bucket=None)
    assert one(graph, "aws:s3/bucket:Bucket").options.retain_on_delete
    assert graph.of_type("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
    assert not made(record).of_type("aws:s3/bucket:Bucket")


def test_the_log_group_is_made_when_its_days_are_given_and_stays(record: Record) -> None:
    assert not made(record).of_type("aws:cloudwatch/logGroup:LogGroup")
    group = one(made(record, log_retention_days=30), "aws:cloudwatch/logGroup:LogGroup")
    assert (group.inputs["name"], group.inputs["retentionInDays"], group.inputs["kmsKeyId"]) == (LOG_GROUP, 30, KEY)
    assert group.options.retain_on_delete


def test_people_may_submit_isolated_jobs_in_the_private_subnets_with_this_role_alone(record: Record) -> None:
    graph = made(record)
    policy = json.loads(one(graph, "trainium-eks:index:SageMakerTraining").outputs["researcher_policy"])["Statement"]
    creates = next(each for each in policy if each["Action"] == "sagemaker:CreateTrainingJob")
    assert creates["Condition"]["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    inside = creates["Condition"]["ForAllValues:StringEquals"]
    assert inside["sagemaker:VpcSubnets"] == ["subnet-1", "subnet-2"]
    assert creates["Condition"]["Null"] == {
        "sagemaker:VpcSecurityGroupIds": "false",
        "sagemaker:VpcSubnets": "false",
    }
    passes = next(each for each in policy if each["Action"] == "iam:PassRole")
    assert passes["Resource"] == one(graph, "aws:iam/role:Role").outputs["arn"]


def test_people_may_serve_only_on_admitted_types_and_touch_only_what_has_a_namespace(record: Record) -> None:
    def policy(**args: Any) -> list[dict[str, Any]]:
        found = one(made(record, **args), "trainium-eks:index:SageMakerTraining").outputs["researcher_policy"]
        return [each for each in json.loads(found)["Statement"] if "sagemaker:" in str(each["Action"])]

    serving = policy(serving_types=["ml.inf2.xlarge"])
    by_action = {action: each for each in serving for action in listed(each["Action"])}
    assert not any("Endpoint" in str(each["Action"]) for each in policy())
    models = by_action["sagemaker:CreateModel"]["Condition"]
    assert models["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    assert models["Null"]["sagemaker:VpcSubnets"] == models["Null"]["aws:RequestTag/Namespace"] == "false"
    for each in ("sagemaker:CreateEndpointConfig", "sagemaker:CreateTransformJob"):
        types = by_action[each]["Condition"]["ForAllValues:StringEquals"]["sagemaker:InstanceTypes"]
        assert types == ["ml.inf2.xlarge"]
        assert by_action[each]["Condition"]["Null"]["sagemaker:InstanceTypes"] == "false"
    for action in ("DeleteEndpoint", "DeleteModel", "UpdateEndpoint", "StopTransformJob"):
        assert by_action[f"sagemaker:{action}"]["Condition"] == {"Null": {"aws:ResourceTag/Namespace": "false"}}
    # A tag that comes later would open an endpoint of a stack.
    assert serving[-4]["Action"] == "sagemaker:AddTags"
    assert serving[-4]["Condition"] == {"Null": {"sagemaker:TaggingAction": "false"}}


def test_a_network_is_needed(record: Record) -> None:
    with pytest.raises(ArgumentError, match="subnet_ids: it is empty"):
        made(record, subnet_ids=[])
