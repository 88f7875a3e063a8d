"""``trn train --on sagemaker``, and SageMaker's jobs in ``trn jobs``, ``logs`` and ``cancel``."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sagemaker_answers
from aws_double import AwsDouble, AwsError
from cluster_snapshots import outputs
from recorded_scenes import now, snapshot
from sagemaker_answers import IMAGE, JOB, MISSING, summary, training
from small_project import Run
from stub_api import StubApi
from watched_team import Call

from trainium_eks.jobs.sagemaker import service

SCENE = snapshot("queue_full")
NAME = JOB
TRAIN = ("train", "--on", "sagemaker", "--example", "bert", "--instance-type", "trn1.32xlarge", "--image", IMAGE)


class Cloud:
    """SageMaker with one job, whose status each look moves on."""

    def __init__(self, *states: tuple[str, str]) -> None:
        self.states = list(states)
        self.double = AwsDouble(
            {
                "sagemaker:ListTrainingJobs": self.list,
                "sagemaker:ListTransformJobs": {"TransformJobSummaries": []},
                "sagemaker:ListEndpoints": {"Endpoints": []},
                "sagemaker:DescribeTransformJob": AwsError("ValidationException", MISSING),
                "sagemaker:DescribeEndpoint": AwsError("ValidationException", MISSING),
                "sagemaker:DescribeTrainingJob": self.describe,
                "sagemaker:CreateTrainingJob": {"TrainingJobArn": f"arn:aws:sagemaker:us-west-2:123456789012:{NAME}"},
                "sagemaker:StopTrainingJob": {},
                "s3:PutObject": {},
                "logs:FilterLogEvents": {
                    "events": [
                        {"logStreamName": f"{NAME}/algo-1-17", "eventId": "1", "timestamp": 1000, "message": "step 1"},
                        {"logStreamName": f"{NAME}/algo-2-17", "eventId": "2", "timestamp": 2000, "message": "step 2"},
                    ]
                },
            }
        )

    def list(self, _: object) -> dict[str, Any]:
        found = summary("TrainingJob", NAME, self.states[0][0], CreationTime=now(SCENE) - timedelta(minutes=5))
        return {"TrainingJobSummaries": [found]}

    def describe(self, asked: Any) -> Any:
        if asked["TrainingJobName"] != NAME:
            return AwsError("ValidationException", MISSING)
        status, second = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        ended = (
            {"TrainingEndTime": now(SCENE), "BillableTimeInSeconds": 90} if status in ("Completed", "Failed") else {}
        )
        return training(status, second, CreationTime=now(SCENE) - timedelta(minutes=5), **ended)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubApi]:
    yield from sagemaker_answers.cluster(SCENE, monkeypatch)


@pytest.fixture
def call(trn: Run, api: StubApi, tmp_path: Path) -> Call:
    return sagemaker_answers.researcher(trn, api, tmp_path)


def use(monkeypatch: pytest.MonkeyPatch, *states: tuple[str, str]) -> Cloud:
    cloud = Cloud(*states)
    session = cloud.double.session()

    def client(name: str, region: str, **_: object) -> Any:
        return session.client(name, region_name=region)

    monkeypatch.setattr(service, "client", client)
    return cloud


def test_jobs_of_both_kinds_are_one_table(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ("InProgress", "Training"))
    code, out = call("jobs")
    assert code == 0
    rows = [line.split() for line in out.splitlines()[1:4]]
    assert {row[0]: row[1:4] for row in rows} == {
        "beta": ["volcano", "test", "Pending"],
        "alpha": ["volcano", "test", "Running"],
        NAME: ["sagemaker", "-", "Running"],
    }
    found = {each["name"]: each for each in json.loads(call("jobs", "--json")[1])["jobs"]}
    assert (found[NAME]["instanceType"], found[NAME]["nodes"]) == ("ml.trn1.32xlarge", 2)


def test_jobs_of_the_cluster_are_shown_if_aws_does_not_answer(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ("InProgress", "Training")).double.answers.pop("sagemaker:ListTrainingJobs")
    code, out = call("jobs")
    assert code == 0
    assert "alpha" in out
    assert "SageMaker's jobs are not shown: cannot list SageMaker's training jobs" in out


def test_logs_are_of_node_0_of_one_node_or_of_all(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = use(monkeypatch, ("InProgress", "Training"))
    assert call("logs", NAME) == (0, "step 1\n")
    assert call("logs", NAME, "--node", "1") == (0, "step 2\n")
    assert call("logs", NAME, "--all", "--tail", "1") == (0, "node 1 | step 2\n")
    assert call("logs", NAME, "--node", "2")[0] == 2
    cloud.double.answers["logs:FilterLogEvents"] = {"events": []}
    code, out = call("logs", NAME)
    assert (code, "has no log yet: it is Running" in out) == (1, True)


def test_followed_logs_end_with_the_job_and_show_each_line_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    running, done = ("InProgress", "Training"), ("Completed", "Completed")
    use(monkeypatch, running, running, running, done)
    code, out = call("logs", NAME, "--follow")
    assert (code, out.count("step 1")) == (0, 1)
    use(monkeypatch, running, ("Failed", "Failed"))
    assert call("logs", NAME, "--follow")[0] == 1


def test_a_job_is_stopped_and_its_checkpoints_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = use(monkeypatch, ("InProgress", "Training"))
    code, out = call("cancel", NAME)
    assert (code, cloud.double.asked[-1]) == (0, ("sagemaker:StopTrainingJob", {"TrainingJobName": NAME}))
    assert "is being stopped: SIGTERM, and SIGKILL after 120 s" in out
    assert "s3://acme-data/sagemaker/training/bert/checkpoints" in out
    ended = use(monkeypatch, ("Completed", "Completed"))
    assert "has ended already" in call("cancel", NAME)[1]
    assert "sagemaker:StopTrainingJob" not in dict(ended.double.asked)


def test_a_job_is_shown_without_being_submitted(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = use(monkeypatch, ("InProgress", "Training"))
    code, out = call(*TRAIN, "--dry-run", "--json", "--script-args", "--steps 5")
    found = json.loads(out)
    assert (code, found["request"]["ResourceConfig"]["InstanceType"]) == (0, "ml.trn1.32xlarge")
    assert "trainium_workloads.bert.pretrain --steps 5" in found["script"]
    assert cloud.double.asked == []


def test_a_submitted_job_is_created_after_its_files(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = use(monkeypatch, ("Completed", "Completed"))
    code, out = call(*TRAIN, "--spot", "--detach", "--json")
    assert (code, json.loads(out)["instanceType"]) == (0, "ml.trn1.32xlarge")
    assert [name for name, _ in cloud.double.asked] == [
        "sagemaker:ListTrainingJobs",
        "sagemaker:ListTransformJobs",
        "s3:PutObject",
        "sagemaker:CreateTrainingJob",
    ]


def test_options_of_eks_and_a_stack_without_sagemaker_are_refused(call: Call, trn: Run, tmp_path: Path) -> None:
    code, out = call(*TRAIN, "--queue", "test", "--kind", "trainjob")
    assert (code, "--queue" in out, "--kind" in out) == (2, True, True)
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(outputs().model_dump(by_alias=True)))
    result = trn(*TRAIN, "--outputs", file)
    assert (result.exit_code, "sageMaker: {} in the stack's config" in result.output) == (2, True)
