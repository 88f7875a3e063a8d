"""A job that is run again under the profiler."""

import pytest

from trainium_eks.jobs.watch.profiling import problems, profiled

OUTPUT = "/data/output/alpha"


def container(**rest):
    return {
        "name": "trainer",
        "command": ["bash", "-c", f"exec torchrun train.py --out {OUTPUT}/x"],
        "env": [{"name": "TRN_OUTPUT_DIR", "value": OUTPUT}, {"name": "TRN_JOB", "value": "alpha"}],
        "resources": {"limits": {"aws.amazon.com/neuron": "16"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        **rest,
    }


def job(*replicas, **rest):
    labels, note = {"app.kubernetes.io/instance": "alpha"}, {"trainium-eks/world-size": "64", "other/annotation": "x"}
    tasks = [
        {
            "name": f"trainer-{at}" if len(replicas) > 1 else "trainer",
            "replicas": count,
            "template": {"metadata": {"labels": {**labels}}, "spec": {"containers": [container(**rest)]}},
        }
        for at, count in enumerate(replicas)
    ]
    metadata = {"name": "alpha", "namespace": "training", "uid": "u", "resourceVersion": "7", "annotations": note}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {**metadata, "labels": {"trainium-eks/kind": "train", **labels}},
        "spec": {"queue": "test", "maxRetry": 20, "tasks": tasks},
        "status": {"state": {"phase": "Running"}},
    }


def env(made, task):
    found = made["spec"]["tasks"][task]["template"]["spec"]["containers"][0]["env"]
    return {each["name"]: each["value"] for each in found}


def test_it_is_the_same_gang_under_another_name_and_writes_nothing_where_the_job_writes():
    source = job(1, 1)
    made = profiled(source, 0, 10)
    assert made["metadata"] == {
        "name": "alpha-profile",
        "namespace": "training",
        "labels": {"trainium-eks/kind": "profile", "app.kubernetes.io/instance": "alpha-profile"},
        "annotations": {"trainium-eks/world-size": "64", "trainium-eks/profile-of": "alpha"},
    }
    assert ("status" in made, made["spec"]["queue"], made["spec"]["maxRetry"]) == (False, "test", 1)
    template = made["spec"]["tasks"][0]["template"]
    assert template["metadata"]["labels"] == {"app.kubernetes.io/instance": "alpha-profile"}
    assert env(made, 0)["TRN_JOB"] == "alpha-profile"
    assert OUTPUT not in str(made)
    assert env(made, 1)["TRN_OUTPUT_DIR"] == "/data/profiles/alpha/output"
    assert source == job(1, 1)


def test_in_torchxs_shape_the_nodes_own_task_is_profiled():
    made, prefix = profiled(job(1, 1), 1, 10), "NEURON_RT_INSPECT_"
    assert f"{prefix}ENABLE" not in env(made, 0)
    found = {name.removeprefix(prefix): value for name, value in env(made, 1).items() if prefix in name}
    switches = {"ENABLE": "1", "DEVICE_PROFILE": "1", "DEVICE_PROFILE_NUM_WARMUP": "5"}
    assert found == {**switches, "OUTPUT_DIR": "/data/profiles/alpha"}
    own_entry_point = profiled(job(4, command=None), 2, 10)
    assert env(own_entry_point, 0)[f"{prefix}ENABLE"] == "1"


def test_in_one_task_the_container_knows_which_node_it_is():
    command = profiled(job(4), 2, 10)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"]
    assert (command[:2], command[3:6]) == (["/bin/sh", "-c"], ["trn-profile", "bash", "-c"])
    assert command[2].startswith('if [ "$VC_TASK_INDEX" = 2 ]; then export NEURON_RT_INSPECT_ENABLE=1 ')
    assert command[2].endswith('; fi; exec "$@"')


@pytest.mark.parametrize(
    ("source", "claim", "running", "reasons"),
    [
        (job(1), "fsx-claim", True, []),
        (job(1, resources={"limits": {"nvidia.com/gpu": "8"}}), "fsx-claim", False, ["asks for no Neuron device"]),
        (job(1), "", False, ["no shared volume at /data"]),
        (job(1, volumeMounts=[]), "fsx-claim", False, ["no shared volume at /data"]),
        (job(1, env=[]), "fsx-claim", True, ["does not say by TRN_OUTPUT_DIR where it writes"]),
        (job(1, env=[]), "fsx-claim", False, []),
    ],
)
def test_what_cannot_be_profiled_is_refused(source, claim, running, reasons):
    found = problems(source, claim, is_running=running)
    assert len(found) == len(reasons)
    assert all(reason in problem.reason and problem.fix for problem, reason in zip(found, reasons, strict=True))
