"""Answers of SageMaker about jobs and endpoints, for a stack with training and serving; and the bounds of requests."""

import re
from datetime import UTC, datetime

import botocore.session  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from trainium_eks.model.outputs import SageMakerOutput

WHERE = SageMakerOutput(
    role_arn="arn:aws:iam::123456789012:role/trn-dev-sagemaker-execution",
    bucket="acme-data",
    prefix="sagemaker",
    kms_key_arn="arn:aws:kms:us-west-2:123456789012:key/0a1b2c3d",
    security_group_ids=("sg-0a1b2c3d",),
    subnet_ids=("subnet-0a1b2c3d", "subnet-1a2b3c4d"),
    serving_types=("ml.inf2.xlarge", "ml.trn1.32xlarge", "ml.p5.48xlarge", "ml.c5.xlarge"),
)
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trn-dev/training:1"
BEGUN = datetime(2026, 11, 20, 8, tzinfo=UTC)
JOB = "training-bert-bcdfg"
ARN = "arn:aws:sagemaker:us-west-2:123456789012"
MODEL_DATA = f"s3://acme-data/sagemaker/training/bert/output/{JOB}/output/model.tar.gz"
MISSING = "Requested resource not found."
_MODEL = botocore.session.get_session().get_service_model("sagemaker")


def summary(what, name, status, **more):
    """An entry of a list of jobs, ``TrainingJob`` or ``TransformJob``."""
    named = {f"{what}Name": name, f"{what}Arn": f"{ARN}:job/{name}", f"{what}Status": status}
    return {**named, "CreationTime": BEGUN, **more}


def training(status, second, **more):
    return {
        **summary("TrainingJob", JOB, status),
        "ModelArtifacts": {"S3ModelArtifacts": MODEL_DATA},
        "SecondaryStatus": second,
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceType": "ml.trn1.32xlarge", "InstanceCount": 2, "VolumeSizeInGB": 500},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "RoleArn": WHERE.role_arn,
        "OutputDataConfig": {"S3OutputPath": "s3://acme-data/sagemaker/training/bert/output"},
        "CheckpointConfig": {"S3Uri": "s3://acme-data/sagemaker/training/bert/checkpoints"},
        **more,
    }


def transform(name, status, **more):
    return {
        **summary("TransformJob", name, status),
        "ModelName": name,
        "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://acme-data/in"}}},
        "TransformOutput": {"S3OutputPath": "s3://acme-data/sagemaker/predicted"},
        "TransformResources": {"InstanceType": "ml.inf2.xlarge", "InstanceCount": 1},
        **more,
    }


def endpoint(name, status, version, **more):
    return {
        **summary("Endpoint", name, status),
        "EndpointConfigName": version,
        "ProductionVariants": [{"VariantName": "all", "CurrentInstanceCount": 1}],
        "LastModifiedTime": BEGUN,
        **more,
    }


def check(operation, request):
    """Hold a request against botocore's model: its fields, and the bounds, patterns and words that botocore's own
    validator leaves to AWS."""
    shape = _MODEL.operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    assert [*_faults(shape, request)] == []


def _faults(shape, value, path=""):
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    size = value if shape.type_name in ("integer", "long") else len(value) if hasattr(value, "__len__") else 0
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"{path}: {size}"
    if shape.type_name == "string":
        pattern = shape.metadata.get("pattern", "")
        # Python has no properties of characters (\\p), as tags have.
        if pattern and "\\p" not in pattern and not re.fullmatch(pattern, value):
            yield f"{path}: {value} is not {pattern}"
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value} is none of {shape.enum}"
    if shape.type_name == "structure":
        for name, each in value.items():
            yield from _faults(shape.members[name], each, f"{path}.{name}")
    if shape.type_name == "list":
        for each in value:
            yield from _faults(shape.member, each, path)
