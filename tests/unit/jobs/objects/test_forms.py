"""The objects of Kubeflow's controllers: the same gang as Volcano's, and what each of them needs besides."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_jobs import job

from trainium_eks.jobs.explain.watched import of
from trainium_eks.jobs.objects import forms, identity, volcano_job
from trainium_eks.jobs.objects.command import place_by_label, shell
from trainium_eks.jobs.objects.job import Program, Topology, TrainingJob
from trainium_eks.jobs.objects.options import Form

KUBEFLOW: tuple[Form, ...] = ("pytorchjob", "trainjob")


def _job(form: Form, **changes: Any) -> TrainingJob:
    return job("p4d.24xlarge", form=form, submission="x7k2f", user_id=1007, **changes)


def _template(made: list[dict[str, Any]]) -> dict[str, Any]:
    spec = made[0]["spec"]
    if made[0]["kind"] == "PyTorchJob":
        return spec["pytorchReplicaSpecs"]["Worker"]["template"]  # type: ignore[no-any-return]
    [nodes] = spec["template"]["spec"]["replicatedJobs"]
    return nodes["template"]["spec"]["template"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", KUBEFLOW)
def test_its_pods_are_those_of_the_volcano_job(form: Form) -> None:
    wanted = _job(form, has_workspace=True, priority="training-high")
    pod, volcanos = _template(forms.objects(wanted)), volcano_job.manifest(wanted)["spec"]["tasks"][1]["template"]
    container, theirs = pod["spec"]["containers"][0], volcanos["spec"]["containers"][0]
    same = ("image", "volumeMounts", "securityContext", "workingDir", "terminationMessagePolicy")
    assert [container[field] for field in same] == [theirs[field] for field in same]
    assert container["resources"] == theirs["resources"]
    # The PodGroup is reckoned by them.
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"
    same = ("volumes", "initContainers", "nodeSelector", "serviceAccountName", "securityContext")
    assert [pod["spec"][field] for field in same] == [volcanos["spec"][field] for field in same]
    assert pod["spec"]["terminationGracePeriodSeconds"] == wanted.grace_seconds
    assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == ("volcano", "training-high")
    assert pod["metadata"]["labels"]["trainium-eks/kind"] == "train"
    assert pod["metadata"]["labels"]["trainium-eks/metrics"] == "true"
    assert container["ports"][1:] == theirs["ports"][1:] == [{"containerPort": 9600, "name": "trn-metrics"}]
    variables = {each["name"] for each in theirs["env"]} - {"TORCHX_JOB_ID", "TRN_ATTEMPT"}
    assert variables <= {each["name"] for each in container["env"]}


@pytest.mark.parametrize("form", KUBEFLOW)
def test_it_goes_by_its_queue_as_a_whole(form: Form) -> None:
    made = forms.objects(_job(form, priority="training-high"))
    if form == "pytorchjob":
        policy = made[0]["spec"]["runPolicy"]["schedulingPolicy"]
        assert policy == {"minAvailable": 2, "queue": "test", "priorityClass": "training-high"}
    else:
        spec = made[0]["spec"]
        assert spec["podGroupPolicy"] == {"volcano": {}}
        assert spec["template"]["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "test"}


def test_trainer_keeps_the_nodes_near_each_other() -> None:
    made = forms.objects(_job("trainjob", topology=Topology("hard", 2)))
    topology = {"mode": "hard", "highestTierAllowed": 2}
    assert made[0]["spec"]["podGroupPolicy"] == {"volcano": {"networkTopology": topology}}


def test_jobset_restarts_the_gang_and_counts() -> None:
    [nodes] = forms.objects(_job("trainjob", retries=3))[0]["spec"]["template"]["spec"]["replicatedJobs"]
    assert nodes["template"]["spec"]["backoffLimit"] == 0
    [rule] = nodes["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [78]
    made = forms.objects(_job("trainjob", retries=3))[0]["spec"]["template"]["spec"]["failurePolicy"]
    assert made["maxRestarts"] == 2
    assert made["rules"][0]["action"] == "FailJobSet"


@pytest.mark.parametrize("form", forms.KINDS)
def test_every_form_is_watched(form: Form) -> None:
    made = forms.objects(_job(form))[-1]
    made["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    seen = of(made)
    assert (seen.name, seen.state, seen.nodes, seen.ranks_per_node) == ("bert-x7k2f", "Submitted", 2, 8)
    assert seen.queue == "test"
    assert seen.pod_selector.endswith("=bert-x7k2f")
    assert made["metadata"]["annotations"]["trainium-eks/launcher"] == "torchrun"


@pytest.mark.parametrize("label", [identity.REPLICA_INDEX_LABEL, identity.COMPLETION_INDEX_LABEL])
def test_node_ranks_of_their_pods(label: str) -> None:
    assert identity.node_rank({"metadata": {"name": "any", "labels": {label: "11"}}}) == 11


@pytest.mark.parametrize(
    ("status", "state", "ended"),
    [
        ({}, "Submitted", False),
        ({"conditions": [], "jobsStatus": [{"name": "node", "ready": 0, "active": 1}]}, "Pending", False),
        ({"jobsStatus": [{"name": "node", "ready": 1, "active": 1}]}, "Running", False),
        ({"conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": "-"}]}, "Pending", False),
        ({"conditions": [{"type": "Complete", "status": "True"}], "jobsStatus": [{"succeeded": 1}]}, "Completed", True),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "Failed", True),
    ],
)
def test_states_of_a_trainjob(status: dict[str, Any], state: str, ended: bool) -> None:
    for each in status.get("conditions") or ():
        each["lastTransitionTime"] = "2026-11-21T10:01:00Z"
    made = forms.objects(_job("trainjob"))[-1] | {"status": status}
    made["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    seen = of(made)
    assert (seen.state, seen.ended is not None) == (state, ended)


# --- Command ----------------------------------------------------------------------------------------------------------


def _run(wanted: TrainingJob, node: int, code: int = 0) -> "subprocess.CompletedProcess[str]":
    script = shell(wanted, place_by_label("j-worker-0"))
    stand_in = f'torchrun() {{ echo "torchrun $*"; return {code}; }}\npython3() {{ echo "gang $*"; return {code}; }}\n'
    environment = {"PATH": "/usr/bin:/bin", "TRN_NODE_RANK": str(node)}
    return subprocess.run(
        ["bash", "-c", stand_in + script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("form", KUBEFLOW)
@pytest.mark.parametrize(("node", "host"), [(0, "localhost"), (1, "j-worker-0")])
def test_nodes_meet_at_the_first(form: Form, node: int, host: str) -> None:
    wanted = _job(form, program=Program(module="m"))
    assert f"--rdzv_endpoint {host}:29500" in _run(wanted, node).stdout
    gang = _run(replace(wanted, launcher="gang"), node).stdout
    assert (
        f"--rdzv_endpoint j-worker-0:29500 --rdzv_id bert-x7k2f --nnodes 2 --nproc_per_node 8 --node_rank {node}"
        in gang
    )


def _counting(tmp_path: Path, **changes: Any) -> TrainingJob:
    """A job whose output is in a directory of this machine."""

    class Here(TrainingJob):
        @property
        def output(self) -> str:
            return f"{tmp_path}/output"

    wanted = _job("pytorchjob", program=Program(module="m"), **changes)
    return Here(**{name: getattr(wanted, name) for name in TrainingJob.__dataclass_fields__})


@pytest.mark.parametrize("code", [1, 134, 137])
def test_a_fault_restarts_the_pod_until_there_have_been_as_many_as_allowed(tmp_path: Path, code: int) -> None:
    wanted = _counting(tmp_path, retries=3)
    found = [_run(wanted, 1, code) for _ in range(3)]
    assert [each.returncode for each in found] == [138, 138, 78]
    assert "fault 3 of this node; --retries 3: the job ends" in found[-1].stderr
    assert _run(wanted, 0, code).returncode == 138, "each node counts its own"
    assert _run(replace(wanted, submission="other"), 1, code).returncode == 138, "a new job of the name begins anew"


@pytest.mark.parametrize("code", [0, 78, 143])
def test_other_endings_are_no_faults(tmp_path: Path, code: int) -> None:
    wanted = _counting(tmp_path, retries=1)
    assert _run(wanted, 1, code).returncode == code
    assert not (tmp_path / "output").exists()


def test_without_a_volume_nothing_is_counted() -> None:
    assert _run(_job("pytorchjob", program=Program(module="m"), claim="", retries=1), 0, 1).returncode == 138


def test_jobset_gets_the_exit_codes_as_they_are() -> None:
    assert _run(_job("trainjob", program=Program(module="m")), 0, 3).returncode == 3
