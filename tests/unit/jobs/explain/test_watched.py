"""Jobs of several kinds in the same terms."""

import pytest
from recorded_scenes import of as scene_of

from trainium_eks.jobs.explain import watched

CREATED = "2026-11-22T05:00:00Z"
DONE = "2026-11-22T05:10:00Z"


def batch(status, **labels):
    metadata = {"name": "stage-1", "labels": labels, "creationTimestamp": CREATED}
    spec = {"backoffLimit": 4}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status}


def volcano(tasks, **metadata):
    metadata |= {"name": "a", "creationTimestamp": CREATED}
    return watched.of({"apiVersion": "batch.volcano.sh/v1alpha1", "metadata": metadata, "spec": {"tasks": tasks}})


def pytorch(*conditions):
    specs = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
    said = [{"type": each, "status": "True", "lastTransitionTime": DONE} for each in conditions]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "fsdp", "creationTimestamp": CREATED},
        "spec": {"pytorchReplicaSpecs": specs, "nprocPerNode": "8"},
        "status": {"conditions": said, "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 3}}},
    }


@pytest.mark.parametrize(
    ("name", "job", "state", "running", "restarts", "ended"),
    [
        ("running", "alpha", "Running", 2, "0/3", False),
        ("queue_full", "beta", "Pending", 0, "0/3", False),
        ("controllers_down", "rho", "Submitted", 0, "0/3", False),
        ("restarted", "run", "Running", 2, "1/3", False),
        ("restarting", "run", "Restarting", 0, "1/3", False),
        ("completed", "run", "Completed", 0, "0/3", True),
        ("failed", "run", "Failed", 0, "1/1", True),
        ("aborted", "run", "Aborted", 0, "0/3", True),
    ],
)
def test_a_volcano_job_is_told_in_its_own_words(name, job, state, running, restarts, ended):
    found = watched.of(scene_of(name, job).job)
    assert (found.state, found.running, f"{found.restarts}/{found.most_restarts}") == (state, running, restarts)
    assert (found.ended is not None) is ended
    assert found.is_gang


def test_the_duration_of_a_job_that_has_ended_no_longer_grows():
    found = watched.of(scene_of("failed", "run").job)
    assert found.ended is not None
    assert found.seconds(watched.moment("2026-12-01T00:00:00Z")) == (found.ended - found.created).total_seconds()


@pytest.mark.parametrize(
    ("status", "state", "ended"),
    [
        ({}, "Pending", False),
        ({"active": 1}, "Pending", False),
        ({"active": 1, "ready": 1}, "Running", False),
        ({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": DONE}]}, "Completed", True),
        ({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": DONE}]}, "Failed", True),
        ({"conditions": [{"type": "FailureTarget", "status": "True", "lastTransitionTime": DONE}]}, "Pending", False),
    ],
)
def test_a_job_of_kubernetes_is_told_in_the_same_words(status, state, ended):
    found = watched.of(batch(status, **{"trainium-eks/kind": "stage"}))
    assert (found.kind, found.state, found.ended is not None) == ("stage", state, ended)
    assert not found.is_gang


def test_the_newest_comes_first_and_jobs_of_kubernetes_that_are_not_ours_are_left_out():
    old, new = (batch({}, **{"trainium-eks/kind": "stage"}) for _ in range(2))
    new["metadata"] |= {"name": "new", "creationTimestamp": DONE}
    assert [job.name for job in watched.watched([], [old, batch({}), new])] == ["new", "stage-1"]


@pytest.mark.parametrize(
    ("conditions", "state", "ended"),
    [
        ((), "Submitted", False),
        (("Created",), "Pending", False),
        (("Created", "Running"), "Running", False),
        (("Created", "Succeeded"), "Completed", True),
        (("Created", "Failed"), "Failed", True),
    ],
)
def test_a_pytorchjob_is_told_in_the_same_words(conditions, state, ended):
    found = watched.of(pytorch(*conditions))
    assert (found.kind, found.state, found.nodes, found.ranks_per_node) == ("pytorchjob", state, 4, 8)
    assert (found.running, found.ended is not None) == (4, ended)


@pytest.mark.parametrize(
    ("annotations", "command", "ranks"),
    [
        ({"trainium-eks/world-size": "64", "trainium-eks/nodes": "2"}, [], 32),
        ({}, ["bash", "-c", "torchrun --nnodes 2 --nproc_per_node 32 x.py"], 32),
        ({}, ["torchrun", "--nproc-per-node=8", "x.py"], 8),
        ({}, ["torchrun", "--nproc_per_node", "gpu", "x.py"], None),
        ({"trainium-eks/world-size": "64", "trainium-eks/nodes": "0"}, [], None),
    ],
)
def test_ranks_are_what_trn_noted_or_the_command_says(annotations, command, ranks):
    container = {"name": "trainer", "command": command[:1], "args": command[1:]}
    task = {"name": "trainer", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    assert volcano([task], annotations=annotations).ranks_per_node == ranks


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"trainium-eks/kind": "compile", "app.kubernetes.io/managed-by": "torchx.pytorch.org"}, "compile"),
        ({"app.kubernetes.io/managed-by": "torchx.pytorch.org"}, "torchx"),
        ({}, "volcano"),
    ],
)
def test_a_job_says_whose_it_is(labels, kind):
    assert volcano([], labels=labels).kind == kind
