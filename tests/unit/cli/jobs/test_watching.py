"""`trn jobs`, `status`, `wait` and `cancel`, over HTTP against recorded scenes."""

import json
from pathlib import Path

import cluster_snapshots
import pytest
from recorded_scenes import Snapshot, now, snapshot
from stub_api import StubApi
from watched_team import Call

from trainium_eks.cli.jobs import jobs, status
from trainium_eks.client import ending, job_status, submitting
from trainium_eks.client.session import Session
from trainium_eks.jobs.watch.measured import JobFigures
from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.model.catalogue.instances import CATALOGUE


def steps(stub: StubApi, pod: str, *numbers: int, at: float, every: float = 1.0) -> None:
    stub.logs[pod] = [
        "2026-11-22T05:33:00Z [default0]:" + json.dumps({"step": each, "time": at + every * each, "steps": 100})
        for each in numbers
    ]


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_jobs_are_a_table(call: Call, api: StubApi, scene: Snapshot) -> None:
    steps(api, "alpha-trainer-0-0", 1, 2, 3, at=now(scene).timestamp() - 5)
    code, out = call("jobs")
    assert code == 0
    heading, beta, alpha = out.splitlines()[:3]
    assert heading.split() == ["JOB", "KIND", "QUEUE", "STATE", "NODES", "RUN", "RESTARTS", "TIME", "STEP"]
    assert beta.split() == ["beta", "volcano", "test", "Pending", "1", "0/1", "0/3", "4s", "-"]
    assert alpha.split() == ["alpha", "volcano", "test", "Running", "2", "2/2", "0/3", "8s", "3/100"]


def test_a_narrow_terminal_keeps_every_column_that_matters(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out = call("jobs")
    assert max(map(len, out.splitlines())) <= 60
    assert out.splitlines()[0].split() == ["JOB", "STATE", "NODES", "RUN", "TRY", "TIME", "STEP"]
    assert "volcano · test" in out


def test_no_jobs_say_what_makes_one(call: Call, api: StubApi) -> None:
    api.objects["Job"] = []
    code, out = call("jobs")
    assert code == 0
    assert "training has no jobs." in out
    assert "trn train" in out


def test_jobs_that_ended_long_ago_are_shown_only_when_asked_for(call: Call, api: StubApi) -> None:
    state = {"phase": "Completed", "lastTransitionTime": "2026-11-21T00:00:00Z"}
    for job in api.objects["Job"]:
        job["status"]["state"] = state
    assert "No job of training is under way; 2 have ended (--all shows them)." in call("jobs")[1]
    assert "Completed" in call("jobs", "--all")[1]


def test_who_may_not_read_jobs_is_told_what_is_missing(call: Call, api: StubApi) -> None:
    api.refuses["/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs"] = 403
    api.refuses["/apis/batch/v1"] = 403
    code, out = call("jobs")
    assert code == 2
    assert "needs the team's access entry" in out
    code, out = call("jobs", "--json")
    assert code == 2
    assert "access entry" in json.loads(out)["problems"][0]["reason"]


def test_a_live_table_goes_on_while_the_server_does_not_answer(
    call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs"

    def pause(_: float) -> None:
        seen.append(1)
        match len(seen):
            case 1:
                api.refuses[path] = 500
            case 2:
                del api.refuses[path]
                api.objects["Job"][0]["status"]["retryCount"] = 2
            case 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(jobs.time, "sleep", pause)
    code, out = call("jobs", "--watch", "--json")
    documents = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert code == 130
    assert "Interrupted" not in out
    assert [document["jobs"][1]["restarts"] for document in documents] == [0, 2]


# --- status -----------------------------------------------------------------------------------------------------------


def test_status_says_why_a_job_waits_and_what_mends_it(call: Call) -> None:
    code, out = call("status", "beta")
    assert code == 0
    flat = " ".join(out.split())
    assert "beta volcano · queue test · 1 node" in flat
    assert "pending for 4s: queue test may use 32 aws.amazon.com/neuron; 32 are in use by alpha (32)" in flat
    assert "trn cancel alpha" in flat


@pytest.mark.parametrize("scene", [snapshot("node_deleted")])
def test_a_run_whose_node_is_gone_says_so(call: Call) -> None:
    code, out = call("status", "lost")
    assert (code, "running for 10s: 2 of 2 pods run\nbut its node trn-1 is gone\n→ it restarts" in out) == (0, True)


def test_status_of_a_run_says_where_it_is(call: Call, api: StubApi, scene: Snapshot) -> None:
    steps(api, "alpha-trainer-0-0", *range(1, 21), at=now(scene).timestamp() - 21)
    code, out = call("status", "alpha")
    assert code == 0
    assert "running for 8s: 2 of 2 pods run" in out
    assert "step 20 of 100, 1 s a step, 80s left" in out


def test_status_says_what_was_useful_and_a_better_interval(
    call: Call, api: StubApi, scene: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(api, "alpha-trainer-0-0", 1, 2, at=now(scene).timestamp() - 5)
    monkeypatch.setattr(job_status, "measured", lambda *_: JobFigures(0.975, 12.0, 14400.0, 1200.0))
    shown = " ".join(call("status", "alpha")[1].split())
    assert (
        "97.5 % of the time since it first ran was useful; a checkpoint takes 12s: --checkpoint-seconds 1200" in shown
    )
    assert "would be better than 14400" in shown
    assert json.loads(call("status", "alpha", "--json")[1])["measured"]["betterIntervalSeconds"] == 1200
    monkeypatch.setattr(job_status, "measured", lambda *_: JobFigures(0.975, 12.0, 1200.0, None))
    assert "97.5 % of the time since it first ran was useful\n" in call("status", "alpha")[1]


def test_a_run_that_stands_still_is_said_and_fails_the_command(call: Call, api: StubApi, scene: Snapshot) -> None:
    steps(api, "alpha-trainer-0-0", *range(1, 21), at=now(scene).timestamp() - 320)
    code, out = call("status", "alpha")
    assert code == 1
    assert "stalled: no step for 5m00s, usually 1 s a step" in out


def test_the_end_of_a_capacity_block_is_said(call: Call, api: StubApi) -> None:
    annotations = {"trainium-eks/capacity-block-ends": "2026-11-22T08:33:04Z"}
    api.objects["Job"][0]["metadata"]["annotations"] = annotations
    assert "its Capacity Block ends in 3h00m (2026-11-22 08:33 UTC)" in call("status", "alpha")[1]
    annotations["trainium-eks/capacity-block-ends"] = "2026-11-22T02:33:04Z"
    assert "its Capacity Block ended at 2026-11-22 02:33 UTC" in call("status", "alpha")[1]


def test_a_misspelt_job_is_answered_with_the_nearest(call: Call) -> None:
    code, out = call("status", "alfa")
    assert code == 2
    assert "namespace training has no job 'alfa': did you mean alpha?" in out


@pytest.mark.parametrize("scene", [snapshot("failed")])
@pytest.mark.parametrize("phase", ["Failed", "Terminated"])
def test_a_job_that_failed_names_the_node_its_exit_code_and_its_last_words(
    call: Call, api: StubApi, phase: str
) -> None:
    api.objects["Job"][0]["status"]["state"]["phase"] = phase
    api.logs["run-trainer-1-0"] = ["Traceback (most recent call last):", "ValueError: no data"]
    code, out = call("status", "run")
    assert code == 1
    assert f"{phase.lower()} after 4s: node 1 (run-trainer-1-0) ended first with exit code 1" in out
    assert "ValueError: no data" in out
    assert "restarts: 1/1" in out


@pytest.mark.parametrize("scene", [snapshot("failed")])
def test_the_end_of_its_log_is_shown_once(call: Call, api: StubApi) -> None:
    log = ["Traceback (most recent call last):", "ValueError: no data"]
    api.logs["run-trainer-1-0"] = log
    for pod in api.objects["Pod"]:
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "\n".join(log)
    assert call("status", "run")[1].count("ValueError: no data") == 1


@pytest.mark.parametrize(("state", "code"), [("Completed", 0), ("Failed", 1)])
def test_a_wait_ends_with_the_job(
    call: Call, api: StubApi, state: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: float) -> None:
        job = api.named("Job", "alpha") or {}
        job["status"]["state"] = {"phase": state, "lastTransitionTime": "2026-11-22T05:40:00Z"}

    monkeypatch.setattr(submitting.time, "sleep", pause)
    assert call("wait", "alpha") == (code, f"The job alpha is {state}.\n")
    assert json.loads(call("wait", "alpha", "--json")[1]) == {"schemaVersion": 1, "job": "alpha", "state": state}


def test_a_wait_ends_after_its_time_with_what_holds_the_job(call: Call) -> None:
    code, out = call("wait", "beta", "--timeout", "0s")
    assert code == 1
    assert "beta has not ended after 0 s" in out
    assert "queue-full: job beta" in out
    assert call("wait", "gamma")[0] == 2
    assert "--timeout soon: give a duration" in call("wait", "beta", "--timeout", "soon")[1]


def test_jobs_of_all_teams(call: Call, api: StubApi, tmp_path: Path) -> None:
    """Two teams, of which the second's jobs may not be read."""
    file = tmp_path / "outputs.json"
    known = json.loads(file.read_text())
    [team] = known["namespaces"]
    file.write_text(json.dumps({**known, "namespaces": [team, {**team, "name": "b"}]}))
    api.refuses |= dict.fromkeys(("/apis/batch.volcano.sh/v1alpha1/namespaces/b/jobs", "/apis/batch/v1"), 403)
    code, out = call("jobs", "--all-namespaces")
    assert code == 0
    assert out.index("training") < out.index("alpha")
    assert "the jobs of namespace b may not be read" in out


def test_status_watched_in_a_pipe_says_each_new_state_until_the_end(
    call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: float) -> None:
        api.named("Job", "alpha")["status"]["state"] = {  # type: ignore[index]
            "phase": "Completed",
            "lastTransitionTime": "2026-11-22T05:33:30Z",
        }

    monkeypatch.setattr(status.time, "sleep", pause)
    code, out = call("status", "alpha", "--watch")
    assert code == 0
    assert out.index("running for") < out.index("completed after 34s")


def test_json_steers_no_terminal_and_means_the_same(call: Call, api: StubApi) -> None:
    api.objects["Job"][0]["spec"]["queue"] = hostile = "\x7f\x9b31m\u202e"
    out = call("jobs", "--json")[1]
    assert out.isascii()
    assert hostile in [job["queue"] for job in json.loads(out)["jobs"]]


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_ends_a_job_and_again_finds_none(call: Call, api: StubApi) -> None:
    code, out = call("cancel", "alpha")
    assert code == 0
    assert "2 pods of alpha get SIGTERM and up to 30 s" in out
    assert "alpha has ended and is removed." in out
    assert api.deleted == ["/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs/alpha"]
    code, out = call("cancel", "alpha")
    assert code == 2
    assert "has no job 'alpha'" in out


@pytest.mark.parametrize("scene", [snapshot("completed")])
def test_cancel_of_an_ended_job_speaks_of_no_signal(call: Call) -> None:
    code, out = call("cancel", "run")
    assert code == 0
    assert "SIGTERM" not in out
    assert "run has ended and is removed." in out


def test_cancel_says_what_stays_on_the_volume(call: Call, api: StubApi) -> None:
    job = api.objects["Job"][0]
    variables = [{"name": "TRN_OUTPUT_DIR", "value": "/data/output/alpha"}]
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = variables
    api.logs["alpha-trainer-0-0"] = ['{"step": 12, "time": 1763000000.0, "checkpoint_step": 10}']
    assert "on the volume: /data/output/alpha, checkpoint of step 10" in call("cancel", "alpha")[1]


def test_pods_that_stay_are_said(call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MARGIN_SECONDS", -29.9)  # of the grace period of 30
    monkeypatch.setattr(api, "delete", lambda _: (200, {}))
    code, out = call("cancel", "alpha")
    assert code == 1
    assert "2 of its pods are still there after their grace period" in out


def test_ending_all_asks_first(call: Call, api: StubApi) -> None:
    code, out = call("cancel", "--all")
    assert code == 2
    assert "End 2 jobs of training, your colleagues' too (beta, alpha)? --yes says so" in out
    assert api.deleted == []
    code, _ = call("cancel", "--all", "--yes")
    assert (code, len(api.deleted)) == (0, 2)
    assert "Nothing to end" in call("cancel", "--all")[1]


def test_cancel_wants_a_name_or_all(call: Call) -> None:
    assert call("cancel")[0] == 2
    assert call("cancel", "alpha", "--all")[0] == 2


# --- status without a job ---------------------------------------------------------------------------------------------

PRICE = CATALOGUE.find("trn1.32xlarge").hourly_usd or 0.0


def idle_nodes() -> Snapshot:
    """Nodes of the group `ng1` of the outputs, of which two have pods."""
    found = snapshot("queue_full")
    found["Node"] = [
        node
        for node in found["Node"]
        if node["metadata"]["labels"].get("node.kubernetes.io/instance-type") == "trn1.32xlarge"
    ]
    for node in found["Node"]:
        node["metadata"]["labels"][GROUP_LABEL] = cluster_snapshots.outputs().node_groups[0].eks_name
    return found


@pytest.mark.parametrize("scene", [idle_nodes()])
def test_it_shows_what_is_idle_what_it_costs_and_what_mends_it(call: Call, scene: Snapshot) -> None:
    nodes = len(scene["Node"])
    code, out = call("status")
    assert code == 0
    assert f"{nodes * PRICE:,.2f} USD an hour now, at list prices" in out
    assert "without everything else, whose price is not known" in out
    idle = f"ng1: {nodes - 2} of {nodes} nodes idle: {(nodes - 2) * PRICE:,.2f} USD an hour for nothing"
    assert idle in " ".join(out.split())
    assert "scale ng1 2\n" in out


@pytest.mark.parametrize("scene", [idle_nodes()])
def test_simulated_nodes_cost_nothing_so_that_none_is_to_be_saved(
    call: Call, scene: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "is_local", True)
    idle = len(scene["Node"]) - 2
    code, out = call("status")
    assert code == 0
    assert f"{idle} of {idle + 2} nodes idle; on AWS that would be {idle * PRICE:,.2f} USD an hour" in " ".join(
        out.split()
    )
    assert "for nothing" not in out
    assert "trn scale" not in out


@pytest.mark.parametrize("scene", [idle_nodes()])
def test_a_researcher_is_told_what_may_not_be_read(call: Call, api: StubApi) -> None:
    api.refuses["/api/v1/pods"] = 403
    code, out = call("status")
    assert code == 0
    assert "pods of other teams may not be read" in " ".join(out.split())
    assert "for nothing" not in out


@pytest.mark.parametrize("option", ["--watch", "--devices"])
def test_an_option_of_a_job_needs_one(call: Call, option: str) -> None:
    code, out = call("status", option)
    assert code == 2
    assert f"{option} needs a job" in out
