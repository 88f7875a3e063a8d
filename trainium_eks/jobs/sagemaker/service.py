"""SageMaker's training jobs at AWS: submitted, listed, watched, stopped. By boto3, with the caller's credentials."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainium_eks.aws.sessions import AwsError, client, saying
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.sagemaker.job import SageMakerJob, namespace_uri
from trainium_eks.jobs.sagemaker.request import ARCHIVE, LAUNCH, launch_script, training_request
from trainium_eks.jobs.watch.cloudwatch_logs import ATTEMPTS, line_of
from trainium_eks.jobs.watch.log_lines import LogLine
from trainium_eks.model.config.sagemaker import LOG_GROUP
from trainium_eks.model.outputs import SageMakerOutput

KIND = "sagemaker"
"""Kind of its jobs in ``trn jobs``."""

LISTED_DAYS = 30
"""Age up to which jobs are listed: SageMaker keeps them for ever."""

_ENDED = {"Completed": "Completed", "Failed": "Failed", "Stopped": "Terminated"}
_RUNNING = ("Training", "Uploading")
_RESTARTING = ("Interrupted", "Restarting")


@dataclass(frozen=True)
class SageMakerTraining(WatchedJob):
    """A training job as SageMaker describes it, in the terms of all jobs."""

    type_name: str = ""
    """``ml.trn1.32xlarge``."""
    billable_seconds: int | None = None
    """Seconds that each instance is paid for; None until the job has ended."""
    checkpoints: str = ""
    """S3 URI of its checkpoints; empty for none."""
    reason: str = ""
    """SageMaker's reason for a failure."""

    @property
    def instance_type(self) -> str:
        """Return the instance type, as SageMaker calls it."""
        return self.type_name

    def seconds(self, now: datetime) -> float:
        """Return the billable seconds, or the seconds since its submission while it goes on."""
        return super().seconds(now) if self.billable_seconds is None else float(self.billable_seconds)

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {**super().to_json(), "checkpoints": self.checkpoints or None, "reason": self.reason or None}


class SageMakerJobs:
    """The training jobs of a namespace.

    Args:
        region: of the stack.
        where: the stack's output about SageMaker.
        namespace: name of the team's namespace, which the jobs' names begin with.
    """

    def __init__(self, region: str, where: SageMakerOutput, namespace: str) -> None:
        self._region, self._where, self._namespace = region, where, namespace

    def submit(self, made: SageMakerJob, archive: str = "") -> None:
        """Upload the launch script and the workspace, and create the job.

        Args:
            made: the job.
            archive: the workspace, a ``tar.gz`` in base64; empty for none.

        Raises:
            AwsError: refused, or a job of the same ``--name`` goes on, whose checkpoints this job would overwrite.
        """
        self._check_alone(made)
        bucket, _, prefix = made.uri("code", made.job.name).removeprefix("s3://").partition("/")
        files = {LAUNCH: launch_script(made).encode()} | ({ARCHIVE: base64.b64decode(archive)} if archive else {})
        with saying(f"write the job's files to s3://{bucket}/{prefix}"):
            s3 = client("s3", self._region)
            for name, content in files.items():
                s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=content)
        with saying(f"create the training job {made.job.name}"):
            self._client().create_training_job(**training_request(made))

    def _check_alone(self, made: SageMakerJob) -> None:
        mine = made.uri("checkpoints")
        other = next((each for each in self.jobs(None) if each.checkpoints == mine), None)
        if other is not None:
            fix = f"trn cancel {other.name} stops it; another --name has checkpoints of its own"
            raise AwsError(f"the job {other.name} goes on and writes to {mine}: {fix}")

    def jobs(self, ended_since: datetime | None) -> list[SageMakerTraining]:
        """Return the namespace's jobs that go on, and jobs that ended after a time; the newest first.

        Args:
            ended_since: time, with its zone; None for jobs that go on alone.

        Raises:
            AwsError: they cannot be read.
        """
        with saying("list SageMaker's training jobs"):
            sagemaker = self._client()
            after = datetime.now().astimezone() - timedelta(days=LISTED_DAYS)
            pages = sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=f"{self._namespace}-",
                CreationTimeAfter=after,
                SortBy="CreationTime",
                SortOrder="Descending",
            )
            names = [
                each["TrainingJobName"]
                for page in pages
                for each in page["TrainingJobSummaries"]
                if each["TrainingJobName"].startswith(f"{self._namespace}-")
                and (each["TrainingJobStatus"] not in _ENDED or _is_since(each, ended_since))
            ]
            described = [self._describe(sagemaker, name) for name in names]
        return [each for each in described if each is not None]

    def find(self, name: str) -> SageMakerTraining | None:
        """Return the namespace's job of a name; None without one.

        Raises:
            AwsError: it cannot be read.
        """
        if not name.startswith(f"{self._namespace}-"):
            return None
        with saying(f"read the training job {name}"):
            return self._describe(self._client(), name)

    def stop(self, name: str) -> None:
        """Stop a job: SIGTERM, and SIGKILL two minutes later.

        Raises:
            AwsError: refused.
        """
        with saying(f"stop the training job {name}"):
            self._client().stop_training_job(TrainingJobName=name)

    def lines(self, name: str, node: int | None, since_ms: int = 0) -> Iterator[tuple[str, int, int, LogLine]]:
        """Yield event id, node, time (ms) and line of a job's log, in the order of time.

        Args:
            name: of the job.
            node: its number; None for all.
            since_ms: time of the earliest line, milliseconds since 1970.

        Raises:
            AwsError: the log cannot be read.
        """
        prefix = f"{name}/algo-" if node is None else f"{name}/algo-{node + 1}-"
        try:
            with saying(f"read the log group {LOG_GROUP}"):
                pages = (
                    client("logs", self._region, attempts=ATTEMPTS)
                    .get_paginator("filter_log_events")
                    .paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=prefix, startTime=since_ms)
                )
                for page in pages:
                    for event in page["events"]:
                        stream = event["logStreamName"]
                        # A stand-in for AWS, such as moto, may not know prefixes.
                        if stream.startswith(prefix):
                            place = int(stream.removeprefix(f"{name}/algo-").partition("-")[0]) - 1
                            yield event["eventId"], place, event["timestamp"], line_of(event)
        except AwsError as error:
            # SageMaker makes the group with the first line of the first job.
            if error.code != "ResourceNotFoundException":
                raise

    def _client(self) -> Any:
        return client("sagemaker", self._region)

    def _describe(self, sagemaker: Any, name: str) -> SageMakerTraining | None:
        """Return a job; None for no job, or a job of another stack or namespace."""
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]

        try:
            found = sagemaker.describe_training_job(TrainingJobName=name)
        except ClientError as error:
            # AWS answers a malformed request by the same code; moto has its own words.
            missing = re.search("not found|not find", error.response["Error"]["Message"], re.IGNORECASE)
            if error.response["Error"]["Code"] in ("ValidationException", "ResourceNotFound") and missing:
                return None
            raise
        own = f"{namespace_uri(self._where, self._namespace)}/"
        is_own = str(found.get("OutputDataConfig", {}).get("S3OutputPath", "")).startswith(own)
        return watched(found) if is_own and found.get("RoleArn") == self._where.role_arn else None


def _is_since(summary: dict[str, Any], moment: datetime | None) -> bool:
    """Return whether a job ended after a moment; False without one."""
    return moment is not None and bool(summary.get("TrainingEndTime", summary["CreationTime"]) >= moment)


def watched(found: dict[str, Any]) -> SageMakerTraining:
    """Return a job from the answer of DescribeTrainingJob."""
    status, second = found["TrainingJobStatus"], found.get("SecondaryStatus", "")
    instances = found["ResourceConfig"]
    begun: datetime = found["CreationTime"]
    nodes = int(instances.get("InstanceCount", 1))
    steps = [each["Status"] for each in found.get("SecondaryStatusTransitions", ())]
    state = _state(status, second)
    return SageMakerTraining(
        name=found["TrainingJobName"],
        kind=KIND,
        queue="",
        state=state,
        nodes=nodes,
        ranks_per_node=None,
        running=nodes if state == "Running" else 0,
        restarts=steps.count("Restarting"),
        most_restarts=found.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
        created=begun,
        # A job that is stopped before its instances start has no end of a training.
        ended=found.get("TrainingEndTime", found.get("LastModifiedTime", begun)) if status in _ENDED else None,
        source={"apiVersion": KIND, "metadata": {"name": found["TrainingJobName"]}, "spec": {}},
        type_name=instances.get("InstanceType", ""),
        billable_seconds=found.get("BillableTimeInSeconds") if status in _ENDED else None,
        checkpoints=found.get("CheckpointConfig", {}).get("S3Uri", ""),
        reason=found.get("FailureReason", ""),
    )


def _state(status: str, second: str) -> str:
    """Return the state in the terms of all jobs (:attr:`WatchedJob.state`)."""
    if second in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return "Failed"
    if status in _ENDED:
        return _ENDED[status]
    if status == "Stopping":
        return "Terminating"
    if second in _RESTARTING:
        return "Restarting"
    return "Running" if second in _RUNNING else "Pending"
