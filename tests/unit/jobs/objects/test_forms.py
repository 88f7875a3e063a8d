"""The objects of Kubeflow's controllers: the same gang as Volcano's, with the additions of each kind."""

import subprocess
from dataclasses import replace

import pytest
from training_jobs import job

from trainium_eks.jobs.objects import forms, identity, volcano_job
from trainium_eks.jobs.objects.command import place_by_label, shell
from trainium_eks.jobs.objects.job import Program, Topology, TrainingJob
from trainium_eks.jobs.observed.watched import of

KUBEFLOW = ("pytorchjob", "trainjob")


def _job(form, **changes):
    return job("p4d.24xlarge", form=form, submission="x7k2f", user_id=1007, **changes)


def _template(made):
    spec = made[0]["spec"]
    if made[0]["kind"] == "PyTorchJob":
        return spec["pytorchReplicaSpecs"]["Worker"]["template"]
    [nodes] = spec["template"]["spec"]["replicatedJobs"]
    return nodes["template"]["spec"]["template"]


@pytest.mark.parametrize("form", KUBEFLOW)
def test_pods_equal_those_of_the_volcano_job(form):
    wanted = _job(form, has_workspace=True, priority="training-high")
    pod, volcanos = _template(forms.objects(wanted)), volcano_job.manifest(wanted)["spec"]["tasks"][1]["template"]
    container, theirs = pod["spec"]["containers"][0], volcanos["spec"]["containers"][0]
    for field in ("image", "volumeMounts", "securityContext", "workingDir", "terminationMessagePolicy", "resources"):
        assert container[field] == theirs[field]
    # The PodGroup is reckoned by them.
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"
    for field in ("volumes", "initContainers", "nodeSelector", "serviceAccountName", "securityContext"):
        assert pod["spec"][field] == volcanos["spec"][field]
    own = {"schedulerName": "volcano", "priorityClassName": "training-high"}
    assert pod["spec"].items() >= {**own, "terminationGracePeriodSeconds": wanted.grace_seconds}.items()
    labels = {"trainium-eks/kind": "train", "trainium-eks/metrics": "true"}
    assert pod["metadata"]["labels"].items() >= labels.items()
    assert container["ports"][1:] == theirs["ports"][1:] == [{"containerPort": 9600, "name": "trn-metrics"}]
    variables = {each["name"] for each in theirs["env"]} - {"TORCHX_JOB_ID", "TRN_ATTEMPT"}
    assert variables <= {each["name"] for each in container["env"]}


def test_gang_policy_has_queue_topology_and_jobset_restarts():
    policy = forms.objects(_job("pytorchjob", priority="training-high"))[0]["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy == {"minAvailable": 2, "queue": "test", "priorityClass": "training-high"}
    spec = forms.objects(_job("trainjob", topology=Topology("hard", 2)))[0]["spec"]
    topology = {"mode": "hard", "highestTierAllowed": 2}
    assert spec["podGroupPolicy"] == {"volcano": {"networkTopology": topology}}
    assert spec["template"]["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "test"}
    assert forms.objects(_job("trainjob"))[0]["spec"]["podGroupPolicy"] == {"volcano": {}}
    spec = forms.objects(_job("trainjob", retries=3))[0]["spec"]["template"]["spec"]
    [nodes] = spec["replicatedJobs"]
    assert nodes["template"]["spec"]["backoffLimit"] == 0
    [rule] = nodes["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [78]
    assert (spec["failurePolicy"]["maxRestarts"], spec["failurePolicy"]["rules"][0]["action"]) == (2, "FailJobSet")


@pytest.mark.parametrize("form", forms.KINDS)
def test_every_job_kind_is_watched(form):
    made = forms.objects(_job(form))[-1]
    made["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    seen = of(made)
    assert (seen.name, seen.state, seen.nodes, seen.ranks_per_node) == ("bert-x7k2f", "Submitted", 2, 8)
    assert (seen.queue, seen.pod_selector.partition("=")[2]) == ("test", "bert-x7k2f")
    assert made["metadata"]["annotations"]["trainium-eks/launcher"] == "torchrun"


def test_trainjob_state_is_read():
    for jobs, condition, state, ended in (
        (None, None, "Submitted", False),
        ({"ready": 0, "active": 1}, None, "Pending", False),
        ({"ready": 1, "active": 1}, None, "Running", False),
        (None, "Suspended", "Pending", False),
        ({"succeeded": 1}, "Complete", "Completed", True),
        (None, "Failed", "Failed", True),
    ):
        at = "2026-11-21T10:01:00Z"
        status = {"jobsStatus": [{"name": "node", **jobs}]} if jobs else {}
        status |= {"conditions": [{"type": condition, "status": "True", "lastTransitionTime": at}]} if condition else {}
        made = forms.objects(_job("trainjob"))[-1] | {"status": status}
        made["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
        seen = of(made)
        assert (seen.state, seen.ended is not None) == (state, ended)


# --- Command ----------------------------------------------------------------------------------------------------------


def _run(wanted, node, code=0):
    stand_in = f'torchrun() {{ echo "torchrun $*"; return {code}; }}\npython3() {{ echo "gang $*"; return {code}; }}\n'
    command = ["bash", "-c", stand_in + shell(wanted, place_by_label("j-worker-0"))]
    env = {"PATH": "/usr/bin:/bin", "TRN_NODE_RANK": str(node)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("form", KUBEFLOW)
@pytest.mark.parametrize(("node", "host"), [(0, "localhost"), (1, "j-worker-0")])
def test_nodes_rendezvous_at_the_first(form, node, host):
    wanted = _job(form, program=Program(module="m"))
    assert f"--rdzv_endpoint {host}:29500" in _run(wanted, node).stdout
    gang = _run(replace(wanted, launcher="gang"), node).stdout
    at = "--rdzv_endpoint j-worker-0:29500 --rdzv_id bert-x7k2f --nnodes 2 --nproc_per_node 8"
    assert f"{at} --node_rank {node}" in gang


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """A job whose output is in a directory of this machine."""
    monkeypatch.setattr(TrainingJob, "output", f"{tmp_path}/output")
    return _job("pytorchjob", program=Program(module="m"), retries=3)


@pytest.mark.parametrize("code", [1, 134, 137])
def test_pod_restarts_until_its_fault_limit(counting, code):
    found = [_run(counting, 1, code) for _ in range(3)]
    assert [each.returncode for each in found] == [138, 138, 78]
    assert "fault 3 of this node; --retries 3: the job ends" in found[-1].stderr
    assert _run(counting, 0, code).returncode == 138, "each node counts its own"
    assert _run(replace(counting, submission="other"), 1, code).returncode == 138, "a new job of the name begins anew"


def test_other_exit_codes_do_not_count_as_faults(tmp_path, counting):
    for code in (0, 78, 143):
        assert _run(counting, 1, code).returncode == code
    assert not (tmp_path / "output").exists()


def test_fault_count_is_empty_without_a_record():
    without_volume = _job("pytorchjob", program=Program(module="m"), claim="", retries=1)
    assert _run(without_volume, 0, 1).returncode == 138
    assert _run(_job("trainjob", program=Program(module="m")), 0, 3).returncode == 3, "JobSet gets the code as it is"


# --- Which pod is which -----------------------------------------------------------------------------------------------


def _pod(name, **labels):
    return {"metadata": {"name": name, "labels": labels}, "spec": {"hostname": name}}


def test_node_rank_is_read_from_each_job_kind():
    for pod, rank in (
        # In TorchX's shape each task has one pod, so Volcano's own number is 0 on all of them.
        (_pod("bert-trainer-3-0", **{identity.REPLICA_LABEL: "3", identity.TASK_INDEX_LABEL: "0"}), 3),
        (_pod("bert-trainer-12", **{identity.TASK_INDEX_LABEL: "12"}), 12),
        (_pod("any", **{identity.REPLICA_INDEX_LABEL: "11"}), 11),
        (_pod("any", **{identity.COMPLETION_INDEX_LABEL: "11"}), 11),
        ({"metadata": {"name": "bert-trainer-10"}}, 10),
    ):
        assert identity.node_rank(pod) == rank
    for name in ("bert-trainer-x", "trainer-1"):
        with pytest.raises(ValueError, match=name):
            identity.node_rank(_pod(name))


@pytest.mark.parametrize("shape", ["bert-trainer-{}-0", "bert-trainer-{}"])
def test_ranks_follow_host_names_under_torchrun_and_node_ranks_without_it(shape):
    pods = [_pod(shape.format(node)) for node in (10, 2, 1, 0, 11)]
    orders = (identity.by_process_rank(pods), identity.by_process_rank(pods, "gang"))
    found = [[identity.node_rank(pod) for pod in order] for order in orders]
    assert found == [[0, 1, 10, 11, 2], [0, 1, 2, 10, 11]]
