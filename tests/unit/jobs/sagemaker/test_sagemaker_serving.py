"""Endpoints and batch transform of SageMaker: requests by botocore's model, and what is made and removed at AWS."""

from dataclasses import replace

import boto3
import pytest
from aws_double import AwsError as Refused
from sagemaker_answers import BEGUN, IMAGE, MISSING, MODEL_DATA, WHERE, check, endpoint, summary, training, transform

from trainium_eks.aws.sessions import AwsError
from trainium_eks.jobs.sagemaker import serving
from trainium_eks.jobs.sagemaker.service import SageMakerJobs
from trainium_eks.jobs.sagemaker.serving import SageMakerServing, ServedModel
from trainium_eks.model.catalogue.instances import CATALOGUE

NAME = "training-serve-bert"


def made(instance_type="inf2.xlarge", **more):
    instance = CATALOGUE.find(instance_type)
    return ServedModel(NAME, "bcdfg", "training", WHERE, MODEL_DATA, IMAGE, instance, **more)


@pytest.mark.parametrize("instance_type", ["inf2.xlarge", "trn1.32xlarge", "p5.48xlarge", "c5.xlarge"])
@pytest.mark.parametrize("more", [{}, {"instances": 2, "engine": "transformers", "field": "body"}])
def test_serving_requests_are_valid_for_botocore(instance_type, more):
    model = made(instance_type, **more)
    check("CreateModel", serving.model_request(model))
    check("CreateEndpointConfig", serving.configuration_request(model))
    check("CreateEndpoint", serving.endpoint_request(model, exists=False))
    check("UpdateEndpoint", serving.endpoint_request(model, exists=True))
    if instance_type != "p5.48xlarge":
        target = "s3://acme-data/sagemaker/predicted"
        check("CreateTransformJob", serving.transform_request(model, "s3://acme-data/in/reviews.jsonl", target))


def test_containers_are_isolated_in_private_subnets_with_the_stacks_key():
    request = serving.model_request(made("inf2.xlarge"))
    assert request["EnableNetworkIsolation"] is True
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-0a1b2c3d"], "Subnets": [*WHERE.subnet_ids]}
    assert request["ExecutionRoleArn"] == WHERE.role_arn
    environment = request["PrimaryContainer"]["Environment"]
    assert environment == {"TRN_BACKEND": "xla", "SAGEMAKER_MODEL_SERVER_WORKERS": "2"}
    # SageMaker refuses a key for local disks.
    configurations = [serving.configuration_request(made(each)) for each in ("inf2.xlarge", "trn1.32xlarge")]
    assert [each.get("KmsKeyId") for each in configurations] == [WHERE.kms_key_arn, None]
    job = serving.transform_request(made("inf2.xlarge"), "s3://acme-data/in/", "s3://acme-data/sagemaker/out/")
    assert (job["BatchStrategy"], job["TransformInput"]["SplitType"]) == ("MultiRecord", "Line")
    assert job["TransformOutput"]["KmsKeyId"] == job["TransformResources"]["VolumeKmsKeyId"] == WHERE.kms_key_arn


def test_foreign_types_models_and_files_are_refused_by_their_option():
    for where, wanted, batch, path in (
        (None, "", False, "--on"),
        (WHERE.model_copy(update={"serving_types": ()}), "", False, "--on"),
        (WHERE, "inf2.48xlarge", False, "--instance-type"),
        (WHERE, "ml.p5.48xlarge", True, "--instance-type"),
        (WHERE, "ml.p5.48xlarge", False, ""),
        (WHERE, "", True, ""),
    ):
        found = serving.admitted(where, wanted, CATALOGUE, batch=batch)
        assert ([each.path for each in found] if isinstance(found, list) else []) == ([path] if path else [])
    for changed, paths in (
        *(({}, []), ({"name": f"training-{'b' * 49}"}, ["--name"])),
        ({"image": "docker.io/library/python:3.12"}, ["--image"]),
        *(({"engine": "vllm"}, ["--engine"]), ({"data": "s3://payroll/model.tar.gz"}, ["MODEL"])),
    ):
        assert [each.path for each in serving.problems(replace(made(), **changed))] == paths
    for source, target, paths in (
        *((f"s3://acme-data/in/{each}", "s3://acme-data/sagemaker/out", []) for each in ("a.jsonl", "")),
        ("s3://acme-data/in/a.csv", "s3://acme-data/sagemaker/out", ["INPUT"]),
        ("/data/in/a.jsonl", "s3://acme-data/elsewhere/out", ["INPUT", "--to"]),
    ):
        assert [each.path for each in serving.file_problems(source, target, WHERE)] == paths


@pytest.fixture
def cloud(moto_cloud):
    return boto3.client("sagemaker", "us-west-2")


def versions(cloud):
    names = {each["EndpointConfigName"] for each in cloud.list_endpoint_configs()["EndpointConfigs"]}
    assert names == {each["ModelName"] for each in cloud.list_models()["Models"]}
    return names


def test_endpoint_is_made_listed_and_deleted_by_its_own_stack(cloud):
    services, jobs = SageMakerServing("us-west-2", WHERE), SageMakerJobs("us-west-2", WHERE, "training")
    services.serve(made("c5.xlarge"), exists=False)
    found = jobs.find(NAME)
    assert (found.kind, found.state, found.status) == ("sagemaker-endpoint", "Running", "InService")
    assert [each.name for each in jobs.endpoints()] == [NAME]
    assert SageMakerJobs("us-west-2", WHERE, "research").endpoints() == []
    # Another endpoint, whose name begins like it, keeps its model.
    services.serve(replace(made("c5.xlarge"), name=f"{NAME}-bcdfg", unique="hjklm"), exists=False)
    assert versions(cloud) == {f"{NAME}-bcdfg", f"{NAME}-bcdfg-hjklm"}
    services.delete(NAME)
    assert versions(cloud) == {f"{NAME}-bcdfg-hjklm"}
    assert jobs.find(NAME) is None
    services.serve(made("c5.xlarge"), exists=False)
    other = SageMakerServing("us-west-2", WHERE.model_copy(update={"role_arn": f"{WHERE.role_arn}2"}))
    with pytest.raises(AwsError, match="is another stack's"):
        other.delete(NAME)
    with pytest.raises(AwsError, match=f"cannot make the endpoint {NAME}"):
        # moto knows no such type.
        services.serve(replace(made("inf2.xlarge"), unique="hjklm"), exists=False)
    assert versions(cloud) == {f"{NAME}-bcdfg", f"{NAME}-bcdfg-hjklm"}


PREDICT = "training-predict-b"
ABSENT = {f"Describe{each}": Refused("ValidationException", MISSING) for each in ("TrainingJob", "TransformJob")}


def test_serving_states_use_the_common_words_and_lines_have_their_group(doubled):
    for answer, state in (
        (transform(PREDICT, "InProgress"), "Pending"),
        (transform(PREDICT, "InProgress", TransformStartTime=BEGUN), "Running"),
        (transform(PREDICT, "Stopping"), "Terminating"),
        (transform(PREDICT, "Failed", FailureReason="no"), "Failed"),
        (endpoint(PREDICT, "Creating", "b"), "Pending"),
        (endpoint(PREDICT, "Updating", "b"), "Running"),
        (endpoint(PREDICT, "RollingBack", "b"), "Restarting"),
        (endpoint(PREDICT, "OutOfService", "b"), "Failed"),
    ):
        kind = "DescribeTransformJob" if "TransformJobName" in answer else "DescribeEndpoint"
        found = doubled(**{**ABSENT, kind: answer})[0].find(PREDICT)
        assert (found.state, found.reason) == (state, answer.get("FailureReason", ""))
    listed = {"TrainingJobSummaries": [summary("TrainingJob", "training-bert-bcdfg", "InProgress")]}
    _, double = doubled(ListTrainingJobs=listed, DescribeTrainingJob=training("InProgress", "Training"))
    jobs = SageMakerJobs("us-west-2", WHERE.model_copy(update={"serving_types": ()}), "training")
    assert ([each.name for each in jobs.jobs(None)], jobs.endpoints()) == (["training-bert-bcdfg"], [])
    assert {name for name, _ in double.asked} == {"sagemaker:ListTrainingJobs", "sagemaker:DescribeTrainingJob"}
    events = [
        {"logStreamName": f"{stream}/i-{number}", "eventId": str(number), "timestamp": 1000, "message": stream}
        for number, stream in enumerate(("all", "all", PREDICT))
    ]
    described = {"DescribeEndpoint": endpoint(PREDICT, "InService", "b")}
    jobs, double = doubled(**ABSENT, **described, FilterLogEvents={"events": events})
    found = jobs.find(PREDICT)
    assert [(place, line.text) for _, place, _, line in jobs.lines(found, None)] == [(0, "all"), (1, "all")]
    assert [place for _, place, _, _ in jobs.lines(found, 1)] == [1]
    assert double.asked[-1][1]["logGroupName"] == f"/aws/sagemaker/Endpoints/{PREDICT}"
    assert [place for _, place, _, _ in jobs.lines(replace(found, kind="sagemaker-batch"), None)] == [0]
    assert double.asked[-1][1]["logGroupName"] == "/aws/sagemaker/TransformJobs"
