"""`trn doctor`: the pages of alerts, and what a stack's Prometheus says fires."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded_scenes
import watched_team
from small_project import Run
from stub_api import StubApi, answer_http, serving
from watched_team import Call

from trainium_eks.cli.environment.check import examine
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import Failure
from trainium_eks.observe.alerts import alerts, runbook
from trainium_eks.observe.faults import catalogue

POD = {
    "metadata": {
        "name": "prometheus-kube-prometheus-stack-prometheus-0",
        "namespace": "monitoring",
        "labels": {"app.kubernetes.io/name": "prometheus"},
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
PORT = f"{POD['metadata']['name']}/portforward"
IDLE = {
    "labels": {"alertname": "AcceleratorsIdle", "severity": "warning", "node_group": "ng1"},
    "annotations": {
        "summary": "Nodes of ng1 are idle",
        "description": "For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour.",
        "next": "trn scale ng1 0 --stack prod",
    },
    "state": "firing",
    "activeAt": "2026-11-22T10:00:00Z",
    "value": "4.3e+01",
}
STALLED = {
    "labels": {"alertname": "TrainingStalled", "severity": "critical", "namespace": "training", "job_name": "alpha"},
    "annotations": {"summary": "alpha of training makes no steps"},
    "state": "firing",
    "activeAt": "2026-11-22T11:00:00Z",
    "value": "1.2e+03",
}
SOON = {
    "labels": {"alertname": "GangStuck", "severity": "warning"},
    "state": "pending",
    "activeAt": "2026-11-22T11:30:00Z",
}
WATCHDOG = {
    "labels": {"alertname": "Watchdog", "severity": "none"},
    "state": "firing",
    "activeAt": "2026-11-22T09:00:00Z",
}


@pytest.fixture
def api() -> Iterator[StubApi]:
    """A cluster with Prometheus, and nothing else."""
    with serving({"Pod": [POD]}) as stub:
        yield stub


@pytest.fixture
def call(trn: Run, api: StubApi, tmp_path: Path) -> Call:
    return watched_team.researcher(trn, api, tmp_path)


def says(api: StubApi, *found: object) -> None:
    """What Prometheus answers."""
    api.channels[PORT] = answer_http(json.dumps({"status": "success", "data": {"alerts": found}}), 9090)


# --- pages ------------------------------------------------------------------------------------------------------------


def test_all_alerts_with_what_they_mean(trn: Run) -> None:
    shown = trn("doctor", "--list")
    assert shown.exit_code == 0
    names = [line.split()[0] for line in shown.output.splitlines() if line[:1].isalpha()]
    assert [name for name in names if name in alerts.names()] == alerts.names()
    assert [name for name in names if name in catalogue.BY_NAME] == [*catalogue.BY_NAME]
    assert "An exporter does not answer Prometheus." in shown.output
    document = json.loads(trn("doctor", "--list", "--json").stdout)
    assert [each["name"] for each in document["faults"]] == [*catalogue.BY_NAME]
    assert [each["name"] for each in document["alerts"]] == alerts.names()
    assert {each["severity"] for each in document["alerts"]} == {"critical", "warning"}


def test_a_page(trn: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainium_eks.client.failure.shutil.which", lambda _: "/usr/bin/trn")
    shown = trn("doctor", "GangStuck", "--stack", "prod")
    assert (shown.exit_code, shown.stdout) == (0, runbook.page("GangStuck").replace("STACK", "prod"))
    assert "- **queue-closed**: A queue starts no jobs." in shown.stdout, "with the faults behind it"


def test_a_fault_of_the_catalogue(trn: Run) -> None:
    shown = trn("doctor", "queue-closed", "--stack", "prod")
    assert shown.exit_code == 0
    assert "vcctl queue operate --name QUEUE --action open" in shown.stdout
    document = json.loads(trn("doctor", "queue-closed", "--stack", "prod", "--json").stdout)
    assert document["fault"]["name"] == "queue-closed"


def test_a_page_for_one_stack_as_json(trn: Run) -> None:
    document = json.loads(trn("doctor", "gangstuck", "--stack", "prod", "--json").output)
    assert document["alert"]["name"] == "GangStuck"
    assert document["alert"]["severity"] == "warning"
    assert "trn status JOB --namespace TEAM --stack prod" in document["alert"]["text"]
    assert "STACK" not in document["alert"]["text"]


def test_a_name_that_is_nearly_one(trn: Run) -> None:
    shown = trn("doctor", "GangStuk")
    assert shown.exit_code == 2
    said = "there is no alert, fault or job 'GangStuk': did you mean GangStuck?"
    assert shown.output.endswith(f"{said}\n")
    (problem,) = json.loads(trn("doctor", "GangStuk", "--json").stdout)["problems"]
    assert problem["reason"] == said


def test_a_name_like_none(trn: Run) -> None:
    assert "trn doctor --list` lists them" in trn("doctor", "XYZ").output


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.fixture
def team(trn: Run, tmp_path: Path) -> Iterator[tuple[Call, StubApi]]:
    """A team with a gang that waits for its queue, and another that has it."""
    with watched_team.cluster(recorded_scenes.snapshot("queue_full")) as stub:
        yield watched_team.researcher(trn, stub, tmp_path), stub


def test_a_job_that_waits_has_a_finding_with_object_cause_and_remedy(team: tuple[Call, StubApi]) -> None:
    call, _ = team
    code, out = call("doctor", "beta", "--no-color")
    assert code == 1
    said = " ".join(out.split())
    assert "✗ queue-full job beta of training queue test may use 32 aws.amazon.com/neuron" in said
    assert f"{catalogue.BY_NAME['queue-full'].cause} → wait for alpha, or end it: ./trn cancel alpha" in said
    assert "✗ beta: 1 fault. Looked at" in said
    [finding] = json.loads(call("doctor", "beta", "--json")[1])["findings"]
    assert (finding["fault"], finding["remedy"]) == ("queue-full", "wait for alpha, or end it: trn cancel alpha")


def test_a_job_that_runs_has_none_and_an_unknown_one_is_no_job(team: tuple[Call, StubApi]) -> None:
    call, _ = team
    code, out = call("doctor", "alpha")
    assert code == 0
    assert "✓ alpha: no fault found. Looked at" in out
    code, out = call("doctor", "bata")
    assert code == 2
    assert "training has no job 'bata', and no fault or alert is called so: did you mean beta?" in out


def test_the_stack_is_examined_and_what_may_not_be_read_is_said(team: tuple[Call, StubApi]) -> None:
    call, api = team
    code, out = call("doctor", "--json")
    found = json.loads(out)
    assert code == 1
    assert "nodes-missing" in {each["fault"] for each in found["findings"]}, "the stack has groups without nodes"
    assert "queue-full" not in {each["fault"] for each in found["findings"]}, "a job may wait for its turn"
    api.refuses["/api/v1/pods"] = 403
    code, out = call("doctor", "--json")
    assert "DaemonSet" not in json.loads(out)["lookedAt"], "only what a researcher may read"
    api.refuses["/api/v1/nodes"] = 403
    code, out = call("doctor", "--namespace", "training")
    assert "Not looked at: Node, which your user may not list." in out
    assert "Not compared with the state of the stack: objects of the stack (an administrator's" in " ".join(out.split())


def test_a_cluster_that_does_not_answer_is_a_finding(team: tuple[Call, StubApi]) -> None:
    call, api = team
    api.refuses["/version"] = 401
    code, out = call("doctor", "--json")
    assert code == 1
    assert [each["fault"] for each in json.loads(out)["findings"]] == ["api-unauthorized"]


def test_a_command_that_ran_out_of_time_ends_with_findings(team: tuple[Call, StubApi], tmp_path: Path) -> None:
    assert team
    failure = Failure(1, "beta did not start", detail="after 600 s")
    options = ClusterOptions("", outputs=tmp_path / "outputs.json")
    said = examine.with_closing(failure, options, "training", "beta").text()
    assert said.startswith("beta did not start\nafter 600 s\nThe doctor finds:\n  queue-full: job beta of training: ")
    assert said.endswith("\n  → wait for alpha, or end it: ./trn cancel alpha")
    assert examine.with_closing(failure, options, "no-team", "beta").text() == failure.text()


# --- what fires -------------------------------------------------------------------------------------------------------


def test_what_fires_the_most_urgent_first(call: Call, api: StubApi) -> None:
    says(api, WATCHDOG, IDLE, SOON, STALLED)
    code, out = call("doctor", "--alerts", "--no-color")
    assert code == 1
    assert out.rstrip().splitlines() == [
        "critical  TrainingStalled  since 2026-11-22T11:00:00Z",
        "  alpha of training makes no steps",
        "",
        "warning  AcceleratorsIdle  since 2026-11-22T10:00:00Z",
        "  Nodes of ng1 are idle",
        "  For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour.",
        "  Next: ./trn scale ng1 0 --stack prod",
        "",
        "Will fire if nothing changes: GangStuck",
    ]


def test_what_fires_as_json(call: Call, api: StubApi) -> None:
    says(api, IDLE, SOON)
    code, out = call("doctor", "--alerts", "--json")
    assert code == 1
    idle, soon = json.loads(out)["alerts"]
    assert idle == {
        "name": "AcceleratorsIdle",
        "state": "firing",
        "severity": "warning",
        "since": "2026-11-22T10:00:00Z",
        "labels": {"node_group": "ng1"},
        "summary": IDLE["annotations"]["summary"],
        "description": IDLE["annotations"]["description"],
        "next": "trn scale ng1 0 --stack prod",
    }
    assert (soon["name"], soon["state"], soon["summary"]) == ("GangStuck", "pending", "GangStuck")


def test_nothing_fires(call: Call, api: StubApi) -> None:
    says(api, WATCHDOG)
    assert call("doctor", "--alerts") == (0, "Nothing fires.\n\n")


def test_what_will_fire_is_no_failure(call: Call, api: StubApi) -> None:
    says(api, SOON)
    code, out = call("doctor", "--alerts")
    assert code == 0
    assert out.rstrip().splitlines() == ["Nothing fires.", "Will fire if nothing changes: GangStuck"]


def test_a_cluster_without_prometheus(call: Call, api: StubApi) -> None:
    api.objects["Pod"] = []
    code, out = call("doctor", "--alerts")
    assert code == 1
    assert "there is no Prometheus in the cluster" in out
    assert "`observability.metrics` in the config installs it" in out


def test_prometheus_is_not_ready(call: Call, api: StubApi) -> None:
    api.objects["Pod"][0]["status"] = {"phase": "Pending"}
    code, out = call("doctor", "--alerts")
    assert code == 1
    assert "kubectl describe pods --namespace monitoring" in out


@pytest.mark.parametrize("path", ["pods", f"pods/{PORT}"])
def test_who_may_not_ask(path: str, call: Call, api: StubApi) -> None:
    says(api)
    api.refuses[f"/api/v1/namespaces/monitoring/{path}"] = 403
    code, out = call("doctor", "--alerts")
    assert code == 1
    assert "may not reach pods of the namespace monitoring" in out
    assert "--kubeconfig" in out


def test_something_else_answers(call: Call, api: StubApi) -> None:
    api.channels[PORT] = answer_http("[]", 9090)
    code, out = call("doctor", "--alerts")
    assert code == 1
    assert "answered something else" in out


def test_what_stops_it_is_json_where_json_was_asked_for(call: Call, api: StubApi) -> None:
    api.objects["Pod"] = []
    code, out = call("doctor", "--alerts", "--json")
    assert code == 1
    assert json.loads(out)["problems"][0]["reason"].startswith("there is no Prometheus")
