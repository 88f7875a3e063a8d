"""SageMaker: roles that can do little, no public network, rights for people, and the deployment of endpoints."""

import json
from fnmatch import fnmatch
from typing import Any

import pytest
from unit.components.parts import IAM_ROLE, INGRESS, Record, of_kind, one, statements

from components import SageMakerEndpoint, SageMakerTraining
from components.sagemaker_training import LOG_GROUP
from trainium_eks.model.sizing import bill
from trainium_eks.plan.cost import estimate
from trainium_eks.plan.graph import Graph

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


def made(record: Record, **args: Any) -> Graph:
    return record(lambda: SageMakerTraining("jobs", {**WIRING, **args}) and None)


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
    trust = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert may(graph, "s3:GetObject", "arn:aws:s3:::acme-data/reviews/train.parquet")
    assert may(graph, "s3:PutObject", "arn:aws:s3:::acme-data/sagemaker/training/bert/model.tar.gz")
    assert not may(graph, "s3:PutObject", "arn:aws:s3:::acme-data/reviews/train.parquet")
    assert not may(graph, "s3:GetObject", "arn:aws:s3:::payroll/salaries.csv")
    assert not may(graph, "logs:PutLogEvents", "arn:aws:logs:us-west-2:000000000000:log-group:/aws/eks/trn-dev")
    assert not may(graph, "ecr:BatchGetImage", "arn:aws:ecr:us-west-2:000000000000:repository/payroll")
    assert not any("*" in action for statement in statements(graph) for action in listed(statement["Action"]))
    # Everything is allowed only for actions that know no resource.
    wide = [each for each in statements(graph) if each["Resource"] == "*" and "Condition" not in each]
    everywhere = {action for each in wide for action in listed(each["Action"])}
    assert {action.split(":")[0] for action in everywhere} == {"ec2", "ecr", "fsx"}
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}


def test_another_key_of_the_bucket_is_the_role_s_too_but_not_for_volumes(record: Record) -> None:
    other = KEY.replace("/k", "/other")
    found = [each for each in statements(made(record, bucket_key_arn=other)) if "kms:" in str(each["Action"])]
    assert [each["Resource"] for each in found] == [KEY, KEY, other]
    assert found[1]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert found[2]["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}


def test_nobody_reaches_the_instances_but_they_and_the_file_system(record: Record) -> None:
    rules = of_kind(made(record), INGRESS)
    assert rules
    assert not any("cidrIpv4" in each.inputs for each in rules)
    own = one(made(record), "SecurityGroup").outputs["id"]
    assert {each.inputs["referencedSecurityGroupId"] for each in rules} == {own, "sg-lustre"}
    assert len(of_kind(made(record, file_system_security_group_id=None), INGRESS)) == 1


def test_a_bucket_and_a_log_group_are_made_where_they_are_asked_for_and_stay(record: Record) -> None:
    assert of_kind(made(record), "Bucket", "LogGroup") == ()
    graph = made(record, bucket=None, log_retention_days=30)
    assert one(graph, "Bucket").options.retain_on_delete
    assert of_kind(graph, "BucketPublicAccessBlock")
    group = one(graph, "LogGroup")
    assert (group.inputs["name"], group.inputs["retentionInDays"], group.inputs["kmsKeyId"]) == (LOG_GROUP, 30, KEY)
    assert group.options.retain_on_delete


def test_people_may_submit_isolated_jobs_in_the_private_subnets_with_this_role_alone(record: Record) -> None:
    graph = made(record)
    policy = json.loads(one(graph, "SageMakerTraining").outputs["researcher_policy"])["Statement"]
    creates = next(each for each in policy if each["Action"] == "sagemaker:CreateTrainingJob")
    assert creates["Condition"]["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    inside = creates["Condition"]["ForAllValues:StringEquals"]
    assert inside["sagemaker:VpcSubnets"] == ["subnet-1", "subnet-2"]
    assert creates["Condition"]["Null"] == {
        "sagemaker:VpcSecurityGroupIds": "false",
        "sagemaker:VpcSubnets": "false",
    }
    passes = next(each for each in policy if each["Action"] == "iam:PassRole")
    assert passes["Resource"] == one(graph, IAM_ROLE).outputs["arn"]


def test_people_may_serve_only_on_admitted_types_and_touch_only_what_has_a_namespace(record: Record) -> None:
    def policy(**args: Any) -> list[dict[str, Any]]:
        found = one(made(record, **args), "SageMakerTraining").outputs["researcher_policy"]
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


# --- endpoints --------------------------------------------------------------------------------------------------------

SERVING: dict[str, Any] = {
    "name": "reviews",
    "region": "us-west-2",
    "vpc_id": "vpc-1",
    "subnet_ids": ["subnet-1", "subnet-2"],
    "kms_key_arn": KEY,
    "bucket": "acme-data",
    "model": "sagemaker/training/reviews/output/model.tar.gz",
    "image": "000000000000.dkr.ecr.us-west-2.amazonaws.com/trn-dev/training:1",
    "instance_type": "ml.inf2.xlarge",
    "permissions_boundary": "arn:aws:iam::000000000000:policy/trn-boundary",
}


def served(record: Record, **args: Any) -> Graph:
    return record(lambda: SageMakerEndpoint("trn-reviews", {**SERVING, **args}) and None)


def resources_of(graph: Graph, action: str) -> list[Any]:
    return [each["Resource"] for each in statements(graph) if action in each["Action"]]


def test_its_role_reads_one_model_and_one_image_within_the_boundary(record: Record) -> None:
    graph = served(record)
    role = one(graph, IAM_ROLE)
    assert role.inputs["permissionsBoundary"] == SERVING["permissions_boundary"]
    assert resources_of(graph, "s3:GetObject") == [f"arn:aws:s3:::acme-data/{SERVING['model']}"]
    assert resources_of(graph, "ecr:BatchGetImage") == [
        "arn:aws:ecr:us-west-2:000000000000:repository/trn-dev/training"
    ]
    assert resources_of(graph, "s3:PutObject") == resources_of(graph, "fsx:DescribeFileSystems") == []
    group = "arn:aws:logs:us-west-2:*:log-group:/aws/sagemaker/Endpoints/trn-reviews"
    assert resources_of(graph, "logs:PutLogEvents") == [[group, f"{group}:*"]]


def test_its_containers_are_isolated_and_nobody_reaches_the_instances(record: Record) -> None:
    model = one(served(record), "Model")
    assert model.inputs["enableNetworkIsolation"] is True
    assert model.inputs["vpcConfig"]["subnets"] == ["subnet-1", "subnet-2"]
    assert model.inputs["primaryContainer"]["modelDataUrl"] == f"s3://acme-data/{SERVING['model']}"
    assert model.inputs["primaryContainer"]["environment"]["TRN_BACKEND"] == "xla"
    assert of_kind(served(record), INGRESS) == ()


def test_a_model_waits_for_the_rights_and_the_endpoint_for_its_log_group(record: Record) -> None:
    graph = served(record)
    model, endpoint = one(graph, "Model"), one(graph, "Endpoint")
    assert one(graph, "RolePolicy").urn in model.dependencies
    logs = one(graph, "LogGroup")
    assert logs.urn in endpoint.dependencies
    assert (logs.inputs["name"], logs.inputs["kmsKeyId"]) == ("/aws/sagemaker/Endpoints/trn-reviews", KEY)


@pytest.mark.parametrize(("instance_type", "key"), [("ml.inf2.xlarge", KEY), ("ml.trn1.2xlarge", None)])
def test_the_key_is_named_for_volumes_and_not_for_local_disks(record: Record, instance_type: str, key: Any) -> None:
    config = one(served(record, instance_type=instance_type), "EndpointConfiguration")
    assert config.inputs.get("kmsKeyArn") == key


@pytest.mark.parametrize(("instances", "routing"), [(1, "ALL_AT_ONCE"), (2, "CANARY")])
def test_a_change_is_rolled_back_when_the_alarm_rings(record: Record, instances: int, routing: str) -> None:
    graph = served(record, instances=instances, most_errors=7)
    deployment = one(graph, "Endpoint").inputs["deploymentConfig"]
    alarm = one(graph, "MetricAlarm")
    assert deployment["autoRollbackConfiguration"]["alarms"] == [{"alarmName": alarm.inputs["name"]}]
    assert deployment["blueGreenUpdatePolicy"]["trafficRoutingConfiguration"]["type"] == routing
    assert alarm.inputs["dimensions"] == {"EndpointName": "trn-reviews", "VariantName": "all"}
    assert (alarm.inputs["metricName"], alarm.inputs["threshold"]) == ("Invocation5XXErrors", 7)


def test_calls_are_captured_under_the_key_if_asked(record: Record) -> None:
    kind = "EndpointConfiguration"
    assert "dataCaptureConfig" not in one(served(record), kind).inputs
    graph = served(record, capture_percent=10)
    capture = one(graph, kind).inputs["dataCaptureConfig"]
    assert capture["destinationS3Uri"] == "s3://acme-data/sagemaker/captured/trn-reviews"
    assert (capture["initialSamplingPercentage"], capture["kmsKeyId"]) == (10, KEY)
    assert resources_of(graph, "s3:PutObject") == ["arn:aws:s3:::acme-data/sagemaker/captured/trn-reviews/*"]


def test_it_scales_by_calls_and_its_instances_are_in_the_cost(record: Record) -> None:
    assert of_kind(served(record), "aws:appautoscaling/target:Target") == ()
    graph = served(record, max_instances=4, calls_per_minute=90)
    target, policy = one(graph, "Target"), one(graph, "Policy")
    assert (target.inputs["minCapacity"], target.inputs["maxCapacity"]) == (1, 4)
    assert target.inputs["resourceId"] == "endpoint/trn-reviews/variant/all"
    assert one(graph, "Endpoint").urn in target.dependencies
    assert policy.inputs["targetTrackingScalingPolicyConfiguration"]["targetValue"] == 90
    [line] = [each for each in estimate(graph).items if each.what == "ml.inf2.xlarge"]
    assert line.line == bill.endpoint("ml.inf2.xlarge", 1, 4)
    assert line.line.unit_hourly_usd == pytest.approx(0.7582 * 1.15)
