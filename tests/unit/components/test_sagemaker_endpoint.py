"""SageMakerEndpoint: rights, network, deployment, scaling; and the endpoints of a stack."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from components import ArgumentError, SageMakerEndpoint
from trainium_eks.model.sizing import bill
from trainium_eks.plan.cost import estimate
from trainium_eks.plan.graph import Graph, Resource

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
WIRING: dict[str, Any] = {
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
Record = Callable[..., Graph]


def made(record: Record, **args: Any) -> Graph:
    return record(lambda: SageMakerEndpoint("trn-reviews", {**WIRING, **args}) and None)


def one(graph: Graph, kind: str) -> Resource:
    (found,) = graph.of_type(f"aws:{kind}")
    return found


def statements(graph: Graph) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(one(graph, "iam/rolePolicy:RolePolicy").inputs["policy"])["Statement"]
    return found


def resources_of(graph: Graph, action: str) -> list[Any]:
    return [each["Resource"] for each in statements(graph) if action in each["Action"]]


def test_its_role_reads_one_model_and_one_image_within_the_boundary(record: Record) -> None:
    graph = made(record)
    role = one(graph, "iam/role:Role")
    assert role.inputs["permissionsBoundary"] == WIRING["permissions_boundary"]
    assert resources_of(graph, "s3:GetObject") == [f"arn:aws:s3:::acme-data/{WIRING['model']}"]
    assert resources_of(graph, "ecr:BatchGetImage") == [
        "arn:aws:ecr:us-west-2:000000000000:repository/trn-dev/training"
    ]
    assert resources_of(graph, "s3:PutObject") == resources_of(graph, "fsx:DescribeFileSystems") == []
    group = "arn:aws:logs:us-west-2:*:log-group:/aws/sagemaker/Endpoints/trn-reviews"
    assert resources_of(graph, "logs:PutLogEvents") == [[group, f"{group}:*"]]


def test_its_containers_are_isolated_and_nobody_reaches_the_instances(record: Record) -> None:
    model = one(made(record), "sagemaker/model:Model")
    assert model.inputs["enableNetworkIsolation"] is True
    assert model.inputs["vpcConfig"]["subnets"] == ["subnet-1", "subnet-2"]
    assert model.inputs["primaryContainer"]["modelDataUrl"] == f"s3://acme-data/{WIRING['model']}"
    assert model.inputs["primaryContainer"]["environment"]["TRN_BACKEND"] == "xla"
    assert made(record).of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule") == ()


def test_a_model_waits_for_the_rights_and_the_endpoint_for_its_log_group(record: Record) -> None:
    graph = made(record)
    model, endpoint = one(graph, "sagemaker/model:Model"), one(graph, "sagemaker/endpoint:Endpoint")
    assert one(graph, "iam/rolePolicy:RolePolicy").urn in model.dependencies
    logs = one(graph, "cloudwatch/logGroup:LogGroup")
    assert logs.urn in endpoint.dependencies
    assert (logs.inputs["name"], logs.inputs["kmsKeyId"]) == ("/aws/sagemaker/Endpoints/trn-reviews", KEY)


@pytest.mark.parametrize(("instance_type", "key"), [("ml.inf2.xlarge", KEY), ("ml.trn1.2xlarge", None)])
def test_the_key_is_named_for_volumes_and_not_for_local_disks(record: Record, instance_type: str, key: Any) -> None:
    config = one(made(record, instance_type=instance_type), "sagemaker/endpointConfiguration:EndpointConfiguration")
    assert config.inputs.get("kmsKeyArn") == key


@pytest.mark.parametrize(("instances", "routing"), [(1, "ALL_AT_ONCE"), (2, "CANARY")])
def test_a_change_is_rolled_back_when_the_alarm_rings(record: Record, instances: int, routing: str) -> None:
    graph = made(record, instances=instances, most_errors=7)
    deployment = one(graph, "sagemaker/endpoint:Endpoint").inputs["deploymentConfig"]
    alarm = one(graph, "cloudwatch/metricAlarm:MetricAlarm")
    assert deployment["autoRollbackConfiguration"]["alarms"] == [{"alarmName": alarm.inputs["name"]}]
    assert deployment["blueGreenUpdatePolicy"]["trafficRoutingConfiguration"]["type"] == routing
    assert alarm.inputs["dimensions"] == {"EndpointName": "trn-reviews", "VariantName": "all"}
    assert (alarm.inputs["metricName"], alarm.inputs["threshold"]) == ("Invocation5XXErrors", 7)


def test_calls_are_captured_under_the_key_if_asked(record: Record) -> None:
    kind = "sagemaker/endpointConfiguration:EndpointConfiguration"
    assert "dataCaptureConfig" not in one(made(record), kind).inputs
    graph = made(record, capture_percent=10)
    capture = one(graph, kind).inputs["dataCaptureConfig"]
    assert capture["destinationS3Uri"] == "s3://acme-data/sagemaker/captured/trn-reviews"
    assert (capture["initialSamplingPercentage"], capture["kmsKeyId"]) == (10, KEY)
    assert resources_of(graph, "s3:PutObject") == ["arn:aws:s3:::acme-data/sagemaker/captured/trn-reviews/*"]


def test_it_scales_by_calls_and_its_instances_are_in_the_cost(record: Record) -> None:
    assert made(record).of_type("aws:appautoscaling/target:Target") == ()
    graph = made(record, max_instances=4, calls_per_minute=90)
    target, policy = one(graph, "appautoscaling/target:Target"), one(graph, "appautoscaling/policy:Policy")
    assert (target.inputs["minCapacity"], target.inputs["maxCapacity"]) == (1, 4)
    assert target.inputs["resourceId"] == "endpoint/trn-reviews/variant/all"
    assert one(graph, "sagemaker/endpoint:Endpoint").urn in target.dependencies
    assert policy.inputs["targetTrackingScalingPolicyConfiguration"]["targetValue"] == 90
    [line] = [each for each in estimate(graph).items if each.what == "ml.inf2.xlarge"]
    assert line.line == bill.endpoint("ml.inf2.xlarge", 1, 4)
    assert line.line.unit_hourly_usd == pytest.approx(0.7582 * 1.15)


@pytest.mark.parametrize("args", [{"instance_type": "ml.trn2.3xlarge"}, {"subnet_ids": []}])
def test_an_endpoint_that_cannot_be_is_refused_at_its_place(record: Record, args: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as refused:
        made(record, **args)
    assert [each.path for each in refused.value.problems] == [*args]
