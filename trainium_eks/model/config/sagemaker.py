"""The SageMaker sections: training jobs, and endpoints, beside the cluster."""

import re
from typing import Annotated

from trainium_eks.model.catalogue import sagemaker_hosting
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, LooseStr, OutputText, StrictInt
from trainium_eks.model.validation.limits import Bounds, Length
from trainium_eks.model.validation.problems import Problem, join

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Log group of all training jobs of an account and region (SageMaker developer guide, logged events)."""

BATCH_LOG_GROUP = "/aws/sagemaker/TransformJobs"
"""The same of all jobs of batch transform."""

ENDPOINT_LOG_GROUPS = "/aws/sagemaker/Endpoints"
"""Beginning of the log groups of endpoints, ``<beginning>/<endpoint>``."""

LONGEST_NAME = 63
"""Longest name of a job or an endpoint (botocore)."""

_INSTANCES = Bounds(1, 1000, "instances")


class SageMakerConfig(ConfigModel):
    """SageMaker training jobs in the stack's network, with an execution role that writes to one prefix of one
    bucket."""

    bucket: OutputText | None = None
    """Name of an existing bucket for data, checkpoints and models. Unset: the bucket behind the file system, else a new
    one."""
    bucket_key_arn: OutputText | None = None
    """ARN of the KMS key that encrypts the existing bucket. Unset: the bucket uses no KMS key."""
    prefix: Annotated[LooseStr, Length(900, "SageMaker")] = "sagemaker"
    """Key prefix of checkpoints and models, without slashes at its ends; the role may write nowhere else."""
    log_retention_days: formats.RetentionDays | None = None
    """Days that logs of training jobs are kept: the stack makes the log group ``/aws/sagemaker/TrainingJobs``, which
    all jobs of an account and region share. 365 or more (rule R08). Unset: SageMaker makes it, without an end and
    without the stack's key."""
    serving_types: tuple[LooseStr, ...] = ()
    """Instance types on which researchers may serve models (`trn serve --on sagemaker`) and transform files (`trn
    predict --on sagemaker`), the default first: ``[ml.inf2.xlarge]``. Empty: none."""


class SageMakerEndpointConfig(ConfigModel):
    """A SageMaker endpoint of the stack, which answers in real time with one model; needs ``sageMaker``."""

    name: LooseStr
    """Name after the stack's: lower-case letters, digits and dashes."""
    model: OutputText
    """Key of the ``model.tar.gz`` in the bucket of ``sageMaker``."""
    image: OutputText
    """Image in ECR with the command ``serve``; training images of `trn image build` have it."""
    instance_type: LooseStr
    """``ml.inf2.xlarge``."""
    instances: Annotated[StrictInt, _INSTANCES] = 1
    """Instances, at first where ``max_instances`` is set. With two or more, one answers alone after a change, before
    all do."""
    max_instances: Annotated[StrictInt | None, _INSTANCES] = None
    """Most instances of automatic scaling. Unset: the number stays."""
    calls_per_minute: Annotated[StrictInt, Bounds(1, 1_000_000, "calls")] = 60
    """Calls a minute and instance that automatic scaling aims at."""
    capture_percent: Annotated[StrictInt, Bounds(0, 100, "%")] = 0
    """Part of the calls and answers that are kept in the bucket; 0 for none."""
    most_errors: Annotated[StrictInt, Bounds(1, 1_000_000, "calls")] = 5
    """Calls a minute that end with an error of the server (5xx), from which on the alarm rings: a change is rolled
    back."""
    log_retention_days: formats.RetentionDays = 365
    """Days that the endpoint's logs are kept."""


def validate(section: SageMakerConfig, catalogue: Catalogue = CATALOGUE) -> list[Problem]:
    """Return the problems of the section. Paths are relative to it."""
    found = formats.bucket("bucket", section.bucket) if isinstance(section.bucket, str) else []
    if section.bucket_key_arn is not None:
        found += formats.bucket_key("bucket_key_arn", section.bucket_key_arn, "bucket", section.bucket)
    if section.prefix.strip("/") != section.prefix or not section.prefix:
        good = section.prefix.strip("/") or "sagemaker"
        found.append(Problem("prefix", "it is empty, or has a slash at an end", value=section.prefix, good=good))
    for index, name in enumerate(section.serving_types):
        found += sagemaker_hosting.problems(join("serving_types", index), name, catalogue)
    return found


def validate_endpoint(section: SageMakerEndpointConfig, catalogue: Catalogue = CATALOGUE) -> list[Problem]:
    """Return the problems of an endpoint. Paths are relative to it."""
    found = formats.derived_name("name", section.name)
    if isinstance(section.model, str) and not re.fullmatch(r"[^/:][^:]*\.tar\.gz", section.model):
        fix = "give the part of the URI after s3://<bucket>/"
        found.append(Problem("model", "it is not the key of a model.tar.gz in the bucket", fix, value=section.model))
    if isinstance(section.image, str) and not sagemaker_hosting.ECR_IMAGE.fullmatch(section.image):
        fix = "push one: trn image push"
        found.append(Problem("image", "SageMaker pulls images from ECR alone", fix, value=section.image))
    found += sagemaker_hosting.problems("instance_type", section.instance_type, catalogue)
    if section.max_instances is not None and section.max_instances < section.instances:
        reason = "it is less than `instances`"
        found.append(Problem("max_instances", reason, value=section.max_instances, good=section.instances))
    return found
