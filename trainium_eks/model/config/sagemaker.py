"""The SageMaker section: training jobs beside the cluster."""

from typing import Annotated

from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, LooseStr, OutputText
from trainium_eks.model.validation.limits import Length
from trainium_eks.model.validation.problems import Problem

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Log group of all training jobs of an account and region (SageMaker developer guide, logged events)."""


class SageMakerConfig(ConfigModel):
    """SageMaker training jobs in the stack's network, with an execution role that writes to one prefix of one
    bucket."""

    bucket: OutputText | None = None
    """Name of an existing bucket for data, checkpoints and models. Unset: the bucket behind the file system, else a new
    one."""
    bucket_key_arn: OutputText | None = None
    """ARN of the KMS key that encrypts the existing bucket. Unset: the bucket has no key of its own."""
    prefix: Annotated[LooseStr, Length(900, "SageMaker")] = "sagemaker"
    """Key prefix of checkpoints and models, without slashes at its ends; the role may write nowhere else."""
    log_retention_days: formats.RetentionDays | None = None
    """Days that logs of training jobs are kept: the stack makes the log group ``/aws/sagemaker/TrainingJobs``, which
    all jobs of an account and region share. 365 or more (rule R08). Unset: SageMaker makes it, without an end and
    without the stack's key."""


def validate(section: SageMakerConfig) -> list[Problem]:
    """Return the problems of the section. Paths are relative to it."""
    found = formats.bucket("bucket", section.bucket) if isinstance(section.bucket, str) else []
    if section.bucket_key_arn is not None:
        found += formats.bucket_key("bucket_key_arn", section.bucket_key_arn, "bucket", section.bucket)
    if section.prefix.strip("/") != section.prefix or not section.prefix:
        good = section.prefix.strip("/") or "sagemaker"
        found.append(Problem("prefix", "it is empty, or has a slash at an end", value=section.prefix, good=good))
    return found
