"""Jobs of several kinds in the same terms."""

import pytest
from recorded_scenes import of as scene_of

from trainium_eks.jobs.observed import watched

CREATED = "2026-11-22T05:00:00Z"
DONE = "2026-11-22T05:10:00Z"


def condition(type_):
    return {"type": type_, "status": "True", "lastTransitionTime": DONE}


def batch(status, **labels):
    metadata = {"name": "stage-1", "labels": labels, "creationTimestamp": CREATED}
    spec = {"backoffLimit": 4}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status}


def volcano(tasks, **metadata):
    metadata |= {"name": "a", "creationTimestamp": CREATED}
    return watched.of({"apiVersion": "batch.volcano.sh/v1alpha1", "metadata": metadata, "spec": {"tasks": tasks}})


def test_volcano_job_state_is_read():
    for name, job, state, running, restarts in (
        ("queue_full", "beta", "Pending", 0, "0/3"),
        ("controllers_down", "rho", "Submitted", 0, "0/3"),
        ("restarted", "run", "Running", 2, "1/3"),
        ("restarting", "run", "Restarting", 0, "1/3"),
        ("completed", "run", "Completed", 0, "0/3"),
        ("failed", "run", "Failed", 0, "1/1"),
        ("aborted", "run", "Aborted", 0, "0/3"),
    ):
        found = watched.of(scene_of(name, job).job)
        assert (found.state, found.running, f"{found.restarts}/{found.most_restarts}") == (state, running, restarts)
        assert found.is_gang
        assert (found.ended is not None) is (state in ("Completed", "Failed", "Aborted"))
        if found.ended:  # the duration no longer grows
            lasted = (found.ended - found.created).total_seconds()
            assert found.seconds(watched.moment("2026-12-01T00:00:00Z")) == lasted


def test_kubernetes_job_state_and_ranks_are_read():
    for status, state in (
        *(({}, "Pending"), ({"active": 1}, "Pending"), ({"active": 1, "ready": 1}, "Running")),
        ({"conditions": [condition("Complete")]}, "Completed"),
        ({"conditions": [condition("Failed")]}, "Failed"),
        ({"conditions": [condition("FailureTarget")]}, "Pending"),
        ({"conditions": [{**condition("Failed"), "status": "False"}]}, "Pending"),
    ):
        found = watched.of(batch(status, **{"trainium-eks/kind": "stage"}))
        assert (found.kind, found.state, found.ended is None) == ("stage", state, state in ("Pending", "Running"))
        assert not found.is_gang
    old, new = (batch({}, **{"trainium-eks/kind": "stage"}) for _ in range(2))
    new["metadata"] |= {"name": "new", "creationTimestamp": DONE}
    assert [job.name for job in watched.watched([], [old, batch({}), new])] == ["new", "stage-1"]
    torchx, compiling = {"app.kubernetes.io/managed-by": "torchx.pytorch.org"}, {"trainium-eks/kind": "compile"}
    labels = (torchx | compiling, torchx, {})
    assert [volcano([], labels=each).kind for each in labels] == ["compile", "torchx", "volcano"]
    for annotations, command, ranks in (
        ({"trainium-eks/world-size": "64", "trainium-eks/nodes": "2"}, [], 32),
        ({}, ["bash", "-c", "torchrun --nnodes 2 --nproc_per_node 32 x.py"], 32),
        ({}, ["torchrun", "--nproc-per-node=8", "x.py"], 8),
        ({}, ["torchrun", "--nproc_per_node", "gpu", "x.py"], None),
        ({"trainium-eks/world-size": "64", "trainium-eks/nodes": "0"}, [], None),
    ):
        container = {"name": "trainer", "command": command[:1], "args": command[1:]}
        task = {"name": "trainer", "replicas": 2, "template": {"spec": {"containers": [container]}}}
        assert volcano([task], annotations=annotations).ranks_per_node == ranks


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        *(((), "Submitted"), (("Created",), "Pending"), (("Created", "Running"), "Running")),
        *((("Created", "Succeeded"), "Completed"), (("Created", "Failed"), "Failed")),
    ],
)
def test_pytorch_job_state_is_read(conditions, state):
    replicas = {"Master": 1, "Worker": 3}
    specs = {name: {"replicas": count} for name, count in replicas.items()}
    statuses = {name: {"active": count} for name, count in replicas.items()}
    source = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "fsdp", "creationTimestamp": CREATED},
        "spec": {"pytorchReplicaSpecs": specs, "nprocPerNode": "8"},
        "status": {"conditions": [condition(each) for each in conditions], "replicaStatuses": statuses},
    }
    found = watched.of(source)
    assert (found.kind, found.state, found.nodes, found.ranks_per_node) == ("pytorchjob", state, 4, 8)
    assert (found.running, found.ended is not None) == (4, state in ("Completed", "Failed"))
