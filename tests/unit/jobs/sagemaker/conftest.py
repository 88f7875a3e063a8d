"""SageMaker by moto, and by a double whose answers a test gives."""

import boto3
import pytest
from aws_double import AwsDouble
from moto import mock_aws
from sagemaker_answers import WHERE

from trainium_eks.jobs.sagemaker import service, serving
from trainium_eks.jobs.sagemaker.service import SageMakerJobs


@pytest.fixture
def moto_cloud(monkeypatch):
    # boto3's own session would keep these credentials for later tests.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


@pytest.fixture
def doubled(monkeypatch):
    def make(**answers):
        named = {f"{'logs' if 'Log' in name else 'sagemaker'}:{name}": answer for name, answer in answers.items()}
        session = (double := AwsDouble(named)).session()
        for module in (service, serving, service.cloudwatch_logs):
            monkeypatch.setattr(module, "client", lambda name, region, **_: session.client(name, region_name=region))
        return SageMakerJobs("us-west-2", WHERE, "training"), double

    return make
