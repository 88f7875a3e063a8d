"""A team's jobs from Python, over HTTP against a recorded scene."""

import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import watched_team
from recorded_scenes import now, snapshot
from watched_team import end

from trainium_eks.client import ending, follow, reading, team
from trainium_eks.client.failure import CommandError
from trainium_eks.client.submitting import read_options
from trainium_eks.client.team import TrainOptions, connect
from trainium_eks.jobs.objects.options import Option
from trainium_eks.kube.api import Api

IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/train:2.9"


@pytest.fixture
def scene():
    """Two jobs, of which one waits for the other."""
    return snapshot("queue_full")


@pytest.fixture
def api(scene, monkeypatch):
    """The cluster, at the time when the scene was recorded."""
    monkeypatch.setattr(reading, "now", lambda: now(scene))
    for module in (team, ending, follow):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    with watched_team.cluster(scene) as stub:
        yield stub


@pytest.fixture
def training(api, tmp_path):
    """The team ``training``."""
    with connect(outputs=watched_team.outputs_file(api, tmp_path)) as opened:
        yield opened


@pytest.fixture
def alpha(training):
    """A job that runs, on two nodes with a rank each."""
    return training.find("alpha")


def test_a_job_is_found_by_its_name(training, alpha):
    assert training.namespace == "training"
    assert [job.name for job in training.jobs()] == ["beta", "alpha"]
    assert training.find("gamma") is None
    assert (alpha.state().state, alpha.state().nodes) == ("Running", 2)


@pytest.mark.parametrize("state", ["Completed", "Failed"])
def test_wait_survives_a_short_outage_of_the_api_server(alpha, api, state, monkeypatch):
    with pytest.raises(TimeoutError, match=r"alpha has not ended after 0\.05 s"):
        alpha.wait(timeout_seconds=0.05)
    get, away = Api.get, iter([True] * 3 + [False] * 2)

    def looked(self, job):
        if next(away, True):
            raise team.ClusterError("no answer")
        end(api, state=state)
        return get(self, job)

    monkeypatch.setattr(Api, "get", looked)
    assert alpha.wait() == state
    away = iter([])
    monkeypatch.setattr(team, "AWAY_SECONDS", 0.05)
    with pytest.raises(team.ClusterError, match="no answer"):
        alpha.wait()


def test_job_has_log_steps_and_last_metrics(alpha, api, scene):
    assert alpha.metrics() is None
    assert alpha.steps() == []
    begun = now(scene).timestamp() - 5
    said = [json.dumps({"step": each, "time": begun + each, "loss": 1 / each}) for each in (1, 2, 4)]
    api.logs["alpha-trainer-0-0"] = [f"2026-11-22T05:33:0{at}Z [default0]:{line}" for at, line in enumerate(said)]
    assert [(step.number, step.loss) for step in alpha.steps()] == [(1, 1.0), (2, 0.5), (4, 0.25)]
    measured = alpha.metrics()
    assert (measured.last.number, measured.last.loss) == (4, 0.25)
    log = api.logs.pop("alpha-trainer-0-0")
    assert alpha.metrics() is None
    threading.Timer(0.1, api.logs.__setitem__, ("alpha-trainer-0-0", log)).start()
    assert alpha.metrics(wait_seconds=60) is not None, "the log could be read later"
    assert [*alpha.logs()] == [f"[default0]:{line}" for line in said]
    with pytest.raises(CommandError, match="--rank 4: alpha"):
        [*alpha.logs(rank=4)]


def test_log_and_steps_are_followed_to_the_end(alpha, api):
    def log_line(second, line):
        return f"2026-11-22T05:33:0{second}Z [default0]:{json.dumps(line)}"

    log = api.logs["alpha-trainer-0-0"] = [log_line(1, "begins"), log_line(2, {"step": 1, "time": 1.0, "loss": 0.5})]
    steps, lines = alpha.follow_steps(), alpha.logs(follow=True)
    first = next(steps)
    assert (first.number, first.loss) == (1, 0.5)
    assert next(lines) == '[default0]:"begins"'
    log.append(log_line(3, {"step": 2, "time": 2.0}))
    threading.Timer(0.3, end, [api]).start()
    assert [(step.number, step.loss) for step in steps] == [(2, None)]
    assert [*lines] == [line.partition(" ")[2] for line in log[1:]]


def test_cancel_deletes_the_job_once(alpha, api):
    ended = alpha.cancel()
    assert (ended.name, ended.pods_left) == ("alpha", 0)
    assert api.named("Job", "alpha") is None
    assert alpha.cancel() is None
    with pytest.raises(CommandError, match="has no job 'alpha'"):
        alpha.state()


def test_a_job_is_submitted_once_under_its_name(training, api, monkeypatch):
    monkeypatch.setattr("trainium_eks.client.train_facts.registry_image", lambda *_: (IMAGE, None, True))
    asked = TrainOptions(module="team.train", name="trial-7", nodes=1, scale=False)
    job = training.submit(asked)
    assert job.name == "trial-7"
    assert api.named("Job", "trial-7") is not None
    with pytest.raises(CommandError) as refused:
        training.submit(asked)
    assert [problem.path for problem in refused.value.problems] == ["--name"]
    assert len(training.jobs()) == 3


def test_field_has_the_name_of_its_option():
    for each in fields(TrainOptions):
        [option] = [note for note in get_args(each.type) if isinstance(note, Option)]
        assert not option.names or option.names[0].split("/")[0] == f"--{each.name.replace('_', '-')}"


def test_options_accept_common_spellings():
    for field, written, meant in (
        ("script", Path("train.py"), "train.py"),
        ("workspace", "src", Path("src")),
        ("nodes", "2", 2),
        ("arguments", ("--lr", 0.1), ("--lr", "0.1")),
        ("arguments", "--name 'two words'", ("--name", "two words")),
        ("env", {"A": 1}, ("A=1",)),
        ("data", "bert", ("bert",)),
    ):
        assert getattr(read_options(TrainOptions(**{field: written})), field) == meant


def test_invalid_options_are_all_named_at_once(training, api):
    wrong = {"nodes": "two", "arguments": ("a\0",), "ranks_per_node": 2.5, "topology": "near", "scale": 7}
    with pytest.raises(CommandError) as refused:
        training.submit(TrainOptions(module="m", **wrong))
    paths = ["--nodes", "--ranks-per-node", "--scale/--no-scale", "--topology", "arguments"]
    assert sorted(each.path for each in refused.value.problems) == paths
    for asked in (TrainOptions(on="sagemaker"), TrainOptions(torchx=True)):
        with pytest.raises(CommandError, match="only `trn train` submits to SageMaker and by TorchX"):
            training.submit(asked)
