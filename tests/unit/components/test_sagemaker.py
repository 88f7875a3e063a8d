"""SageMaker: roles that can do little, no public network, rights for people, and the deployment of endpoints."""

import json
from fnmatch import fnmatch

import pytest
from unit.components.parts import IAM_ROLE, INGRESS, LEAST, of_kind, one, recorder, statements

from components import SageMakerEndpoint, SageMakerTraining
from components.sagemaker_training import LOG_GROUP
from trainium_eks.model.sizing import bill
from trainium_eks.plan.cost import estimate

KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
NETWORK = {
    "region": "us-west-2",
    "vpc_id": "vpc-00000001",
    "subnet_ids": ["subnet-00000001", "subnet-00000002"],
    "kms_key_arn": KEY,
}
REPOSITORY = LEAST["SageMakerTraining"]["repository_arn"]
WIRING = {**LEAST["SageMakerTraining"], **NETWORK, "file_system_security_group_id": "sg-f5654060"}
made = recorder(SageMakerTraining, "jobs", WIRING)


def listed(value):
    return [value] if isinstance(value, str) else value


def may(graph, action, resource):
    def fits(statement, key, asked):
        return any(fnmatch(asked, each) for each in listed(statement[key]))

    return any(fits(each, "Action", action) and fits(each, "Resource", resource) for each in statements(graph))


def rights(graph):
    """Return the statements of people's policy by their actions of SageMaker and IAM."""
    policy = json.loads(one(graph, "SageMakerTraining").outputs["researcher_policy"])["Statement"]
    return {action: each for each in policy for action in listed(each["Action"])}


def test_role_writes_under_one_prefix_and_people_submit_only_isolated_jobs(record):
    graph = made(record)
    trust = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    s3, logs = "arn:aws:s3:::", "arn:aws:logs:us-west-2:000000000000:log-group:"
    assert may(graph, "s3:GetObject", f"{s3}acme-data/reviews/train.parquet")
    assert may(graph, "s3:PutObject", f"{s3}acme-data/sagemaker/training/bert/model.tar.gz")
    assert not may(graph, "s3:PutObject", f"{s3}acme-data/reviews/train.parquet")
    assert not may(graph, "s3:GetObject", f"{s3}payroll/salaries.csv")
    assert not may(graph, "logs:PutLogEvents", f"{logs}/aws/eks/trn-dev")
    assert not may(graph, "ecr:BatchGetImage", REPOSITORY.replace("trn-dev/training", "payroll"))
    assert not any("*" in action for statement in statements(graph) for action in listed(statement["Action"]))
    # Everything is allowed only for actions that know no resource.
    wide = [each for each in statements(graph) if each["Resource"] == "*" and "Condition" not in each]
    everywhere = {action for each in wide for action in listed(each["Action"])}
    assert {action.split(":")[0] for action in everywhere} == {"ec2", "ecr", "fsx"}
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}
    # Another key of the bucket is the role's, too, but not for volumes.
    other = KEY.replace("/k", "/other")
    found = [each for each in statements(made(record, bucket_key_arn=other)) if "kms:" in str(each["Action"])]
    assert [each["Resource"] for each in found] == [KEY, KEY, other]
    assert found[1]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert found[2]["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}
    # People may submit isolated jobs in the private subnets with this role alone.
    creates = rights(graph)["sagemaker:CreateTrainingJob"]["Condition"]
    assert creates["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    assert creates["ForAllValues:StringEquals"]["sagemaker:VpcSubnets"] == ["subnet-00000001", "subnet-00000002"]
    assert creates["Null"] == {"sagemaker:VpcSecurityGroupIds": "false", "sagemaker:VpcSubnets": "false"}
    assert rights(graph)["iam:PassRole"]["Resource"] == one(graph, IAM_ROLE).outputs["arn"]
    assert not any("Endpoint" in action for action in rights(graph))


def test_instances_are_unreachable_and_bucket_and_log_group_are_retained(record):
    graph = made(record)
    assert of_kind(graph, "Bucket", "LogGroup") == ()
    rules = [each.inputs for each in of_kind(graph, INGRESS)]
    assert not any("cidrIpv4" in each for each in rules)
    own = one(graph, "SecurityGroup").outputs["id"]
    assert {each["referencedSecurityGroupId"] for each in rules} == {own, "sg-f5654060"}
    graph = made(record, bucket=None, log_retention_days=30, file_system_security_group_id=None)
    assert len(of_kind(graph, INGRESS)) == 1
    assert one(graph, "Bucket").options.retain_on_delete
    assert of_kind(graph, "BucketPublicAccessBlock")
    group = one(graph, "LogGroup")
    assert (group.inputs["name"], group.inputs["retentionInDays"], group.inputs["kmsKeyId"]) == (LOG_GROUP, 30, KEY)
    assert group.options.retain_on_delete


def test_people_serve_only_on_admitted_types_in_their_namespace(record):
    serving = rights(made(record, serving_types=["ml.inf2.xlarge"]))
    conditions = {name.removeprefix("sagemaker:"): each.get("Condition") for name, each in serving.items()}
    models = conditions["CreateModel"]
    assert models["Bool"] == {"sagemaker:NetworkIsolation": "true"}
    assert models["Null"]["sagemaker:VpcSubnets"] == models["Null"]["aws:RequestTag/Namespace"] == "false"
    for action in ("CreateEndpointConfig", "CreateTransformJob"):
        assert conditions[action]["ForAllValues:StringEquals"]["sagemaker:InstanceTypes"] == ["ml.inf2.xlarge"]
        assert conditions[action]["Null"]["sagemaker:InstanceTypes"] == "false"
    for action in ("DeleteEndpoint", "DeleteModel", "UpdateEndpoint", "StopTransformJob"):
        assert conditions[action] == {"Null": {"aws:ResourceTag/Namespace": "false"}}
    # A tag that comes later would open an endpoint of a stack.
    assert conditions["AddTags"] == {"Null": {"sagemaker:TaggingAction": "false"}}


SERVING = {
    **LEAST["SageMakerEndpoint"],
    **NETWORK,
    "model": "sagemaker/training/reviews/output/model.tar.gz",
    "permissions_boundary": "arn:aws:iam::000000000000:policy/trn-boundary",
}
served = recorder(SageMakerEndpoint, "trn-reviews", SERVING)


def resources_of(graph, action):
    return [each["Resource"] for each in statements(graph) if action in each["Action"]]


def test_serving_role_reads_one_model_and_one_image_in_isolation(record):
    graph = served(record)
    assert one(graph, IAM_ROLE).inputs["permissionsBoundary"] == SERVING["permissions_boundary"]
    assert resources_of(graph, "s3:GetObject") == [f"arn:aws:s3:::acme-data/{SERVING['model']}"]
    assert resources_of(graph, "ecr:BatchGetImage") == [REPOSITORY]
    assert resources_of(graph, "s3:PutObject") == resources_of(graph, "fsx:DescribeFileSystems") == []
    group = "arn:aws:logs:us-west-2:*:log-group:/aws/sagemaker/Endpoints/trn-reviews"
    assert resources_of(graph, "logs:PutLogEvents") == [[group, f"{group}:*"]]
    model, logs = one(graph, "Model"), one(graph, "LogGroup")
    assert model.inputs["enableNetworkIsolation"] is True
    assert model.inputs["vpcConfig"]["subnets"] == ["subnet-00000001", "subnet-00000002"]
    assert model.inputs["primaryContainer"]["modelDataUrl"] == f"s3://acme-data/{SERVING['model']}"
    environment = model.inputs["primaryContainer"]["environment"]
    assert environment == {"TRN_BACKEND": "xla", "SAGEMAKER_MODEL_SERVER_WORKERS": "2"}, "a process for each core"
    assert of_kind(graph, INGRESS) == ()
    assert one(graph, "RolePolicy").urn in model.dependencies
    assert logs.urn in one(graph, "Endpoint").dependencies
    assert (logs.inputs["name"], logs.inputs["kmsKeyId"]) == ("/aws/sagemaker/Endpoints/trn-reviews", KEY)


@pytest.mark.parametrize(
    ("instances", "routing", "instance_type", "key"),
    [(1, "ALL_AT_ONCE", "ml.inf2.xlarge", KEY), (2, "CANARY", "ml.trn1.2xlarge", None)],
)
def test_alarm_rolls_a_change_back_and_the_key_is_only_for_volumes(record, instances, routing, instance_type, key):
    graph = served(record, instances=instances, most_errors=7, instance_type=instance_type)
    assert one(graph, "EndpointConfiguration").inputs.get("kmsKeyArn") == key, "local disks have their own"
    deployment, alarm = one(graph, "Endpoint").inputs["deploymentConfig"], one(graph, "MetricAlarm").inputs
    assert deployment["autoRollbackConfiguration"]["alarms"] == [{"alarmName": alarm["name"]}]
    assert deployment["blueGreenUpdatePolicy"]["trafficRoutingConfiguration"]["type"] == routing
    assert alarm["dimensions"] == {"EndpointName": "trn-reviews", "VariantName": "all"}
    assert (alarm["metricName"], alarm["threshold"]) == ("Invocation5XXErrors", 7)


def test_calls_are_captured_encrypted_on_request(record):
    kind, place = "EndpointConfiguration", "acme-data/sagemaker/captured/trn-reviews"
    assert "dataCaptureConfig" not in one(served(record), kind).inputs
    graph = served(record, capture_percent=10)
    capture = one(graph, kind).inputs["dataCaptureConfig"]
    assert capture["destinationS3Uri"] == f"s3://{place}"
    assert (capture["initialSamplingPercentage"], capture["kmsKeyId"]) == (10, KEY)
    assert resources_of(graph, "s3:PutObject") == [f"arn:aws:s3:::{place}/*"]


def test_endpoint_scales_by_calls_and_is_priced(record):
    assert of_kind(served(record), "aws:appautoscaling/target:Target") == ()
    graph = served(record, max_instances=4, calls_per_minute=90)
    target, policy = one(graph, "Target"), one(graph, "Policy")
    assert (target.inputs["minCapacity"], target.inputs["maxCapacity"]) == (1, 4)
    assert target.inputs["resourceId"] == "endpoint/trn-reviews/variant/all"
    assert one(graph, "Endpoint").urn in target.dependencies
    assert policy.inputs["targetTrackingScalingPolicyConfiguration"]["targetValue"] == 90
    [line] = [each for each in estimate(graph).lines if each.what == "ml.inf2.xlarge"]
    assert line.line == bill.endpoint("ml.inf2.xlarge", 1, 4)
    assert line.line.unit_hourly_usd == pytest.approx(0.7582 * 1.15)
