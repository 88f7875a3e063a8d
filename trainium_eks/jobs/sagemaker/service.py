"""SageMaker's jobs and endpoints at AWS: submitted, listed, watched, stopped. By boto3, with the caller's
credentials."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from trainium_eks.aws.sessions import AwsError, client, saying
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.sagemaker.job import SageMakerJob, namespace_uri
from trainium_eks.jobs.sagemaker.request import ARCHIVE, LAUNCH, launch_script, training_request
from trainium_eks.jobs.sagemaker.serving import VARIANT
from trainium_eks.jobs.watch import cloudwatch_logs
from trainium_eks.jobs.watch.log_lines import LogLine
from trainium_eks.model.config.sagemaker import BATCH_LOG_GROUP, ENDPOINT_LOG_GROUPS, LOG_GROUP
from trainium_eks.model.outputs import SageMakerOutput

KIND, BATCH, ENDPOINT = "sagemaker", "sagemaker-batch", "sagemaker-endpoint"
"""Kinds in ``trn jobs``: training jobs, batch transform, endpoints."""

LISTED_DAYS = 30
"""Age up to which jobs are listed: SageMaker keeps them for ever."""

_ENDED = {"Completed": "Completed", "Failed": "Failed", "Stopped": "Terminated"}
_ENDPOINT_STATES = {
    "Creating": "Pending", "InService": "Running", "RollingBack": "Restarting", "SystemUpdating": "Running",
    "Updating": "Running", "Deleting": "Terminating",
}  # fmt: skip
"""The others are faults."""
_RUNNING = ("Training", "Uploading")
_RESTARTING = ("Interrupted", "Restarting")


@dataclass(frozen=True)
class SageMakerWork(WatchedJob):
    """A training job, batch transform or endpoint as SageMaker describes it, in the terms of all jobs."""

    type_name: str = ""
    billable_seconds: int | None = None
    """Seconds that each instance is paid for; None until the job has ended."""
    checkpoints: str = ""
    """S3 URI of a training's checkpoints, or of a batch transform's output; empty for none."""
    model: str = ""
    """S3 URI of the model that a training writes at its end."""
    reason: str = ""
    """SageMaker's reason for a failure."""
    status: str = ""
    """An endpoint's state in SageMaker's words."""

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
    """The jobs and endpoints of a namespace."""

    def __init__(self, region: str, where: SageMakerOutput, namespace: str) -> None:
        self._region, self._where, self._namespace = region, where, namespace

    def submit(self, made: SageMakerJob, archive: str = "") -> None:
        """Upload the launch script and the workspace, and create the job. It is also an error if a job with the same
        ``--name`` is running, because this job would overwrite its checkpoints."""
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
            fix = f"trn cancel {other.name} stops it; another --name has separate checkpoints"
            raise AwsError(f"the job {other.name} is running and writes to {mine}: {fix}")

    def jobs(self, ended_since: datetime | None) -> list[SageMakerWork]:
        """Return the namespace's running jobs, and jobs that ended after a time. None: only running jobs."""
        with saying("list SageMaker's training jobs"):
            sagemaker = self._client()
            found = [self._training(sagemaker, name) for name in self._names(sagemaker, "TrainingJob", ended_since)]
            if self._where.serving_types:
                names = self._names(sagemaker, "TransformJob", ended_since)
                found += [self._batch(sagemaker, name) for name in names]
        return [each for each in found if each is not None]

    def endpoints(self) -> list[SageMakerWork]:
        """Return the namespace's endpoints."""
        if not self._where.serving_types:
            return []
        with saying("list SageMaker's endpoints"):
            sagemaker = self._client()
            pages = sagemaker.get_paginator("list_endpoints").paginate(NameContains=f"{self._namespace}-")
            names = [each["EndpointName"] for page in pages for each in page["Endpoints"]]
            found = [self._endpoint(sagemaker, each) for each in names if each.startswith(f"{self._namespace}-")]
        return [each for each in found if each is not None]

    def _names(self, sagemaker: Any, what: str, ended_since: datetime | None) -> list[str]:
        """Return the names of jobs of a kind, ``TrainingJob`` or ``TransformJob``."""
        lists = {"TrainingJob": "list_training_jobs", "TransformJob": "list_transform_jobs"}
        pages = sagemaker.get_paginator(lists[what]).paginate(
            NameContains=f"{self._namespace}-",
            CreationTimeAfter=datetime.now().astimezone() - timedelta(days=LISTED_DAYS),
            SortBy="CreationTime",
            SortOrder="Descending",
        )
        found = []
        for each in chain.from_iterable(page[f"{what}Summaries"] for page in pages):
            ended = each.get("TrainingEndTime") or each.get("TransformEndTime") or each["CreationTime"]
            is_listed = each[f"{what}Status"] not in _ENDED or (ended_since is not None and ended >= ended_since)
            if is_listed and each[f"{what}Name"].startswith(f"{self._namespace}-"):
                found.append(str(each[f"{what}Name"]))
        return found

    def find(self, name: str) -> SageMakerWork | None:
        """Return the namespace's job or endpoint of a name; None without one."""
        if not name.startswith(f"{self._namespace}-"):
            return None
        reads = [self._training, *((self._batch, self._endpoint) if self._where.serving_types else ())]
        with saying(f"read {name}"):
            sagemaker = self._client()
            return next((found for read in reads if (found := read(sagemaker, name)) is not None), None)

    def stop(self, job: SageMakerWork) -> None:
        """Stop a job: SIGTERM, and for a training SIGKILL two minutes later."""
        with saying(f"stop the job {job.name}"):
            if job.kind == BATCH:
                self._client().stop_transform_job(TransformJobName=job.name)
            else:
                self._client().stop_training_job(TrainingJobName=job.name)

    def lines(self, job: SageMakerWork, node: int | None, since_ms: int = 0) -> Iterator[tuple[str, int, int, LogLine]]:
        """Yield event id, node, time (ms) and line of a job's log, in the order of time. Instances of endpoints and
        batch transform are numbered as they appear."""
        group, prefix = {
            KIND: (LOG_GROUP, f"{job.name}/algo-" if node is None else f"{job.name}/algo-{node + 1}-"),
            BATCH: (BATCH_LOG_GROUP, f"{job.name}/"),
            ENDPOINT: (f"{ENDPOINT_LOG_GROUPS}/{job.name}", f"{VARIANT}/"),
        }[job.kind]
        seen: dict[str, int] = {}
        try:
            for event in chain.from_iterable(cloudwatch_logs.pages_of(self._region, group, prefix, since_ms)):
                stream = event["logStreamName"]
                if job.kind == KIND:
                    place = int(stream.removeprefix(f"{job.name}/algo-").partition("-")[0]) - 1
                else:
                    place = seen.setdefault(stream, len(seen))
                if node in (None, place):
                    yield event["eventId"], place, event["timestamp"], cloudwatch_logs.line_of(event)
        except AwsError as error:
            # SageMaker makes the group with the first line of the first job.
            if error.code != "ResourceNotFoundException":
                raise

    def _client(self) -> Any:
        return client("sagemaker", self._region)

    def _training(self, sagemaker: Any, name: str) -> SageMakerWork | None:
        """Return a training job; None for no job, or a job of another stack or namespace."""
        found = _described(sagemaker.describe_training_job, TrainingJobName=name)
        own = f"{namespace_uri(self._where, self._namespace)}/"
        if not str(found.get("OutputDataConfig", {}).get("S3OutputPath", "")).startswith(own):
            return None
        return watched(found) if found.get("RoleArn") == self._where.role_arn else None

    def _batch(self, sagemaker: Any, name: str) -> SageMakerWork | None:
        """Return a job of batch transform; None for no job, or another stack's."""
        found = _described(sagemaker.describe_transform_job, TransformJobName=name)
        output = str(found.get("TransformOutput", {}).get("S3OutputPath", ""))
        if not output.startswith(f"s3://{self._where.bucket}/{self._where.prefix}/"):
            return None
        status, resources = found["TransformJobStatus"], found["TransformResources"]
        begun = found.get("TransformStartTime")
        state = _ENDED.get(status) or ("Terminating" if status == "Stopping" else "Running" if begun else "Pending")
        ended = found.get("TransformEndTime", found["CreationTime"]) if status in _ENDED else None
        return SageMakerWork(
            **_common(name, BATCH, state, resources["InstanceCount"], found["CreationTime"], ended),
            type_name=resources["InstanceType"],
            checkpoints=output,
            reason=found.get("FailureReason", ""),
        )

    def _endpoint(self, sagemaker: Any, name: str) -> SageMakerWork | None:
        """Return an endpoint; None for none."""
        found = _described(sagemaker.describe_endpoint, EndpointName=name)
        if not found:
            return None
        instances = sum(each.get("CurrentInstanceCount", 0) for each in found.get("ProductionVariants", ()))
        state = _ENDPOINT_STATES.get(found["EndpointStatus"], "Failed")
        work = _common(name, ENDPOINT, state, instances, found["CreationTime"], None)
        return SageMakerWork(**work, reason=found.get("FailureReason", ""), status=found["EndpointStatus"])


def _described(operation: Any, **name: str) -> dict[str, Any]:
    """Return the answer of an operation that describes one resource, or an empty dictionary for an unknown name."""
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]

    try:
        found: dict[str, Any] = operation(**name)
    except ClientError as error:
        # AWS answers a malformed request by the same code; moto has its own words.
        missing = re.search("not found|not find", error.response["Error"]["Message"], re.IGNORECASE)
        if error.response["Error"]["Code"] in ("ValidationException", "ResourceNotFound") and missing:
            return {}
        raise
    return found


def _common(name: str, kind: str, state: str, nodes: int, created: datetime, ended: datetime | None) -> dict[str, Any]:
    """Return the fields that all kinds have."""
    return {
        "name": name,
        "kind": kind,
        "queue": "",
        "state": state,
        "nodes": nodes,
        "ranks_per_node": None,
        "running": nodes if state == "Running" else 0,
        "restarts": 0,
        "most_restarts": None,
        "created": created,
        "ended": ended,
        "source": {"apiVersion": KIND, "metadata": {"name": name}, "spec": {}},
    }


def watched(found: dict[str, Any]) -> SageMakerWork:
    """Return a job from the answer of DescribeTrainingJob."""
    status, second = found["TrainingJobStatus"], found.get("SecondaryStatus", "")
    instances = found["ResourceConfig"]
    begun: datetime = found["CreationTime"]
    nodes = int(instances.get("InstanceCount", 1))
    steps = [each["Status"] for each in found.get("SecondaryStatusTransitions", ())]
    # A job that is stopped before its instances start has no end of a training.
    ended = found.get("TrainingEndTime", found.get("LastModifiedTime", begun)) if status in _ENDED else None
    common = _common(found["TrainingJobName"], KIND, _state(status, second), nodes, begun, ended)
    common |= {
        "restarts": steps.count("Restarting"),
        "most_restarts": found.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
    }
    return SageMakerWork(
        **common,
        type_name=instances.get("InstanceType", ""),
        billable_seconds=found.get("BillableTimeInSeconds") if status in _ENDED else None,
        checkpoints=found.get("CheckpointConfig", {}).get("S3Uri", ""),
        model=found.get("ModelArtifacts", {}).get("S3ModelArtifacts", ""),
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
