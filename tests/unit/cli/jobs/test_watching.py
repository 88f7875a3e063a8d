"""`trn jobs`, `status`, `wait` and `cancel`, over HTTP against recorded scenes."""

import itertools
import json

import pytest
from cluster_snapshots import outputs
from recorded_scenes import now, snapshot

from trainium_eks.aws.sessions import Aws
from trainium_eks.cli.jobs import jobs, status
from trainium_eks.client import ending, job_status, team
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects import capacity_block
from trainium_eks.jobs.watch.useful_time import JobFigures
from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.model.catalogue.instances import CATALOGUE

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs"


def steps(stub, pod, *numbers, at, every=1.0):
    stub.logs[pod] = [
        "2026-11-22T05:33:00Z [default0]:" + json.dumps({"step": each, "time": at + every * each, "steps": 100})
        for each in numbers
    ]


def test_jobs_table_keeps_every_important_column_in_a_narrow_terminal(call, api, scene, monkeypatch):
    steps(api, "alpha-trainer-0-0", 1, 2, 3, at=now(scene).timestamp() - 5)
    code, out = call("jobs")
    assert code == 0
    heading, beta, alpha = out.splitlines()[:3]
    assert heading.split() == ["JOB", "KIND", "QUEUE", "STATE", "NODES", "RUN", "RESTARTS", "TIME", "STEP"]
    assert beta.split() == ["beta", "volcano", "test", "Pending", "1", "0/1", "0/3", "4s", "-"]
    assert alpha.split() == ["alpha", "volcano", "test", "Running", "2x2", "2/2", "0/3", "8s", "3/100"]
    monkeypatch.setenv("COLUMNS", "60")
    _, out = call("jobs")
    assert max(map(len, out.splitlines())) <= 60
    assert out.splitlines()[0].split() == ["JOB", "STATE", "NODES", "RUN", "TRY", "TIME", "STEP"]
    assert "volcano · test" in out


def test_jobs_without_any_job_names_the_next_command(call, api):
    for job in api.objects["Job"]:
        job["status"]["state"] = {"phase": "Completed", "lastTransitionTime": "2026-11-21T00:00:00Z"}
    call.ends(0, "jobs", "No job of training is under way; 2 have ended (--all shows them).")
    call.ends(0, "jobs --all", "Completed")
    api.objects["Job"] = []
    call.ends(0, "jobs", "training has no jobs.", "trn train")
    api.refuses |= dict.fromkeys((JOBS, "/apis/batch/v1"), 403)
    call.ends(2, "jobs", "needs the team's access entry")


def test_live_table_survives_an_unreachable_server(call, api, monkeypatch):
    numbers = itertools.count(1)

    def pause(_):
        match next(numbers):
            case 1:
                api.refuses[JOBS] = 500
            case 2:
                del api.refuses[JOBS]
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


def test_status_explains_a_waiting_job_with_the_fix(call):
    waits = "pending for 4s: queue test may use 32 aws.amazon.com/neuron; 32 are in use by alpha (32)"
    call.ends(0, "status beta", "beta volcano · queue test · 1 node", waits, "trn cancel alpha")
    call.ends(2, "status alfa", "namespace training has no job 'alfa': did you mean alpha?")
    for option in ("--watch", "--devices"):
        call.ends(2, f"status {option}", f"{option} needs a job")


@pytest.mark.parametrize("scene", [snapshot("node_deleted")])
def test_status_of_a_job_on_a_lost_node_names_the_node(call):
    call.ends(0, "status lost", "running for 10s: 2 of 2 pods run\nbut its node trn-1 is gone\n→ it restarts")


def test_status_shows_progress_and_a_stall(call, api, scene):
    steps(api, "alpha-trainer-0-0", *range(1, 21), at=now(scene).timestamp() - 21)
    api.named("Job", "alpha")["status"]["running"] = 3  # Volcano counts pods of nodes that are gone, too
    call.ends(0, "status alpha", "running for 8s: 2 of 2 pods run", "step 20 of 100, 1 s a step, 80s left")
    steps(api, "alpha-trainer-0-0", *range(1, 21), at=now(scene).timestamp() - 320)
    call.ends(1, "status alpha", "stalled: no step for 5m00s, usually 1 s a step")


def test_status_shows_useful_time_interval_and_capacity_block_end(call, api, scene, monkeypatch):
    steps(api, "alpha-trainer-0-0", 1, 2, at=now(scene).timestamp() - 5)
    monkeypatch.setattr(job_status, "measure_job", lambda *_: JobFigures(0.975, 12.0, 14400.0, 1200.0))
    useful = "97.5 % of the time since it first ran was useful"
    better = f"{useful}; a checkpoint takes 12s: --checkpoint-seconds 1200 would be better than 14400"
    call.ends(0, "status alpha", better)
    assert json.loads(call("status", "alpha", "--json")[1])["measured"]["betterIntervalSeconds"] == 1200
    monkeypatch.setattr(job_status, "measure_job", lambda *_: JobFigures(0.975, 12.0, 1200.0, None))
    call.ends(0, "status alpha", f"{useful}\n")
    for ends, said in (
        ("2026-11-22T08:33:04Z", "its Capacity Block ends in 3h00m (2026-11-22 08:33 UTC)"),
        ("2026-11-22T02:33:04Z", "its Capacity Block ended at 2026-11-22 02:33 UTC"),
    ):
        api.objects["Job"][0]["metadata"]["annotations"] = {"trainium-eks/capacity-block-ends": ends}
        call.ends(0, "status alpha", said)


def test_status_names_a_block_extension_unknown_to_the_ranks(call, api, scene, monkeypatch):
    steps(api, "alpha-trainer-0-0", 1, 2, at=now(scene).timestamp() - 5)
    noted = {"capacity-block-ends": "2026-11-22T08:33:04Z", "capacity-block": "cr-1"}
    api.objects["Job"][0]["metadata"]["annotations"] = {f"trainium-eks/{key}": text for key, text in noted.items()}
    monkeypatch.setattr(Aws, "capacity_ends", lambda *_: "2026-11-29T11:30:00Z")
    shown = call.ends(
        0, "status alpha", "by EC2 its block ends at 2026-11-29T11:30:00Z, which its ranks do not know yet"
    )
    assert "kubectl -n training create configmap capacity-block-cr-1 --from-literal=ends=2026-11-29T11:30:00Z" in shown
    api.objects["ConfigMap"] = [capacity_block.config_map("training", "cr-1", "2026-11-29T11:30:00Z")]
    assert "2026-11-29 11:30 UTC" in (shown := call.ends(0, "status alpha"))
    assert "do not know" not in shown
    # The stack keeps the end for a group with dates, in its next block, too.
    api.objects["Job"][0]["metadata"]["annotations"]["trainium-eks/capacity-block-group"] = "ng1"
    metadata = {"name": "capacity-blocks", "namespace": "training"}
    api.objects["ConfigMap"] = [{"metadata": metadata, "data": {"ng1": "2026-11-28T11:30:00Z"}}]
    shown = call.ends(0, "status alpha", "2026-11-28 11:30 UTC", "to tell them: set capacity.ends of ng1 to it")
    assert "kubectl" not in shown


@pytest.mark.parametrize("scene", [snapshot("failed")])
@pytest.mark.parametrize("phase", ["Failed", "Terminated"])
def test_failed_job_shows_its_node_exit_code_and_last_lines_once(call, api, phase):
    api.objects["Job"][0]["status"]["state"]["phase"] = phase
    log = api.logs["run-trainer-1-0"] = ["Traceback (most recent call last):", "ValueError: no data"]
    first = f"{phase.lower()} after 4s: node 1 (run-trainer-1-0) ended first with exit code 1"
    call.ends(1, "status run", first, "ValueError: no data", "restarts: 1/1")
    for pod in api.objects["Pod"]:
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "\n".join(log)
    assert call("status", "run")[1].count("ValueError: no data") == 1
    assert "SIGTERM" not in call.ends(0, "cancel run", "run has ended and is removed.")


@pytest.mark.parametrize(("state", "code"), [("Completed", 0), ("Failed", 1)])
def test_a_wait_ends_with_the_job(call, api, state, code, monkeypatch):
    def pause(_):
        ended = {"phase": state, "lastTransitionTime": "2026-11-22T05:40:00Z"}
        api.named("Job", "alpha")["status"]["state"] = ended

    monkeypatch.setattr(team.time, "sleep", pause)
    assert call("wait", "alpha") == (code, f"The job alpha is {state}.\n")
    assert json.loads(call("wait", "alpha", "--json")[1]) == {"schemaVersion": 1, "job": "alpha", "state": state}


def test_wait_ends_at_its_limit_and_jobs_of_all_teams_are_shown(call, api, tmp_path):
    call.ends(1, "wait beta --timeout 0s", "beta has not ended after 0 s", "queue-full: job beta")
    call.ends(2, "wait gamma")
    call.ends(2, "wait beta --timeout soon", "--timeout soon: give a duration")
    """Two teams, of which the second's jobs may not be read."""
    file = tmp_path / "outputs.json"
    known = json.loads(file.read_text())
    [team] = known["namespaces"]
    file.write_text(json.dumps({**known, "namespaces": [team, {**team, "name": "b"}]}))
    api.refuses |= dict.fromkeys((JOBS.replace("training", "b"), "/apis/batch/v1"), 403)
    out = call.ends(0, "jobs --all-namespaces", "the jobs of namespace b may not be read")
    assert out.index("training") < out.index("alpha")


def test_status_watch_in_a_pipe_prints_each_new_state(call, api, monkeypatch):
    def pause(_):
        state = {"phase": "Completed", "lastTransitionTime": "2026-11-22T05:33:30Z"}
        api.named("Job", "alpha")["status"]["state"] = state

    monkeypatch.setattr(status.time, "sleep", pause)
    out = call.ends(0, "status alpha --watch")
    assert out.index("running for") < out.index("completed after 34s")


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_ends_one_job_or_all_after_confirmation(call, api):
    container = api.objects["Job"][0]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "TRN_OUTPUT_DIR", "value": "/data/output/alpha"}]
    api.logs["alpha-trainer-0-0"] = ['{"step": 12, "time": 1763000000.0, "checkpoint_step": 10}']
    ended = json.loads(json.dumps(api.named("Job", "beta")).replace('"beta"', '"ended"'))
    ended["status"]["state"] = {"phase": "Completed", "lastTransitionTime": "2026-11-22T05:40:00Z"}
    api.objects["Job"].append(ended)
    call.ends(2, "cancel")
    call.ends(2, "cancel alpha --all")
    call.ends(2, "cancel --all", "End 2 jobs of training, your colleagues' too (beta, alpha)? --yes confirms it")
    assert api.deleted == []
    signal = "2 pods of alpha get SIGTERM and up to 30 s"
    left = "on the volume: /data/output/alpha, checkpoint of step 10"
    call.ends(0, "cancel alpha", signal, "alpha has ended and is removed.", left)
    assert api.deleted == [f"{JOBS}/alpha"]
    call.ends(2, "cancel alpha", "has no job 'alpha'")
    call.ends(0, "cancel --all --yes")
    assert len(api.deleted) == 2
    call.ends(0, "cancel --all", "Nothing to end")


def test_cancel_reports_pods_that_outlive_their_grace_period(call, api, monkeypatch):
    monkeypatch.setattr(ending, "MARGIN_SECONDS", -29.9)  # of the grace period of 30
    monkeypatch.setattr(api, "delete", lambda _: (200, {}))
    call.ends(1, "cancel alpha", "2 of its pods are still there after their grace period")


PRICE = CATALOGUE.find("trn1.32xlarge").hourly_usd or 0.0


def idle_nodes():
    """Nodes of the group `ng1` of the outputs, of which two have pods."""
    found = snapshot("queue_full")
    type_label, group = "node.kubernetes.io/instance-type", outputs().node_groups[0].eks_name
    found["Node"] = [each for each in found["Node"] if each["metadata"]["labels"].get(type_label) == "trn1.32xlarge"]
    for node in found["Node"]:
        node["metadata"]["labels"][GROUP_LABEL] = group
    return found


@pytest.mark.parametrize("scene", [idle_nodes()])
def test_status_shows_idle_nodes_with_cost_and_fix(call, api, scene, monkeypatch):
    nodes = len(scene["Node"])
    idle, wasted = f"{nodes - 2} of {nodes} nodes idle", f"{(nodes - 2) * PRICE:,.2f} USD an hour"
    now_ = f"{nodes * PRICE:,.2f} USD an hour now, at list prices"
    unknown = "without everything else, whose price is not known"
    call.ends(0, "status", now_, unknown, f"ng1: {idle}: {wasted} for nothing", "scale ng1 2\n")
    # Simulated nodes cost nothing, so that none is to be saved.
    with monkeypatch.context() as patch:
        patch.setattr(Session, "is_local", True)
        out = call.ends(0, "status", f"{idle}; on AWS that would be {wasted}")
    assert [each for each in ("for nothing", "trn scale") if each in out] == []
    api.refuses["/api/v1/pods"] = 403
    assert "for nothing" not in call.ends(0, "status", "pods of other teams may not be read")
