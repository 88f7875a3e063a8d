"""A job that is run again under the profiler."""

import copy

from training_jobs import job as training_job

from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.watch.profiling import problems, profiled

OUTPUT, PREFIX = "/data/output/alpha", "NEURON_RT_INSPECT_"


def job(nodes=2, **changes):
    """The job as the API server has it, with changes of its containers."""
    made = copy.deepcopy(volcano_job.manifest(training_job(name="alpha", nodes=nodes)))
    for task in made["spec"]["tasks"]:
        task["template"]["spec"]["containers"][0] |= changes
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    made["metadata"]["annotations"] |= {"other/annotation": "x"}
    return {**made, "status": {"state": {"phase": "Running"}}}


def env(made, task):
    found = made["spec"]["tasks"][task]["template"]["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value") for each in found}


def test_profiling_job_is_the_same_gang_with_another_name_and_output():
    source = job()
    made = profiled(source, 0, 10)
    metadata, before = made["metadata"], source["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("alpha-profile", "training")
    renamed = {"trainium-eks/kind": "profile", "app.kubernetes.io/instance": "alpha-profile"}
    assert metadata["labels"] == {**before["labels"], **renamed}
    kept = {key: value for key, value in before["annotations"].items() if key != "other/annotation"}
    assert metadata["annotations"] == {**kept, "trainium-eks/profile-of": "alpha"}
    assert not {"uid", "resourceVersion"} & metadata.keys() | {"status"} & made.keys()
    assert (made["spec"]["queue"], made["spec"]["maxRetry"]) == ("test", 1)
    template = made["spec"]["tasks"][0]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "alpha-profile"
    assert (env(made, 0)["TRN_JOB"], env(made, 1)["TRN_OUTPUT_DIR"]) == ("alpha-profile", "/data/profiles/alpha/output")
    assert (OUTPUT in str(source), OUTPUT in str(made)) == (True, False)
    assert source == job()
    made = profiled(job(), 1, 10)
    assert f"{PREFIX}ENABLE" not in env(made, 0)
    found = {name.removeprefix(PREFIX): value for name, value in env(made, 1).items() if PREFIX in name}
    switches = {"ENABLE": "1", "DEVICE_PROFILE": "1", "DEVICE_PROFILE_NUM_WARMUP": "5"}
    assert found == {**switches, "OUTPUT_DIR": "/data/profiles/alpha"}
    command = profiled(job(500), 2, 10)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"]
    assert (command[:2], command[3:6]) == (["/bin/sh", "-c"], ["trn-profile", "bash", "-c"])
    assert command[2].startswith('if [ "$VC_TASK_INDEX" = 2 ]; then export NEURON_RT_INSPECT_ENABLE=1 ')
    assert command[2].endswith('; fi; exec "$@"')
    own_entry_point = profiled(job(500, command=None), 2, 10)
    assert env(own_entry_point, 0)[f"{PREFIX}ENABLE"] == "1"


def test_unprofilable_job_is_refused():
    for source, claim, running, reasons in (
        (job(1), "fsx-claim", True, []),
        (job(1, resources={"limits": {"nvidia.com/gpu": "8"}}), "fsx-claim", False, ["asks for no Neuron device"]),
        (job(1), "", False, ["no shared volume at /data"]),
        (job(1, volumeMounts=[]), "fsx-claim", False, ["no shared volume at /data"]),
        (job(1, env=[]), "fsx-claim", True, ["does not say by TRN_OUTPUT_DIR where it writes"]),
        (job(1, env=[]), "fsx-claim", False, []),
    ):
        found = problems(source, claim, is_running=running)
        assert len(found) == len(reasons)
        assert all(reason in problem.reason and problem.fix for problem, reason in zip(found, reasons, strict=True))
