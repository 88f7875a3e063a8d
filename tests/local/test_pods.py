"""Pods with local images on a real control plane: they run, and are shown as a kubelet would show them."""

import time

import pytest
from manifests import manifest
from running_pods import ENDLESS, condition, phase, processes_of, state, status
from waiting import until

from trainium_eks.kube.api import ApiError


def is_waiting(reason):
    return lambda pod: (state(pod).get("waiting") or {}).get("reason") == reason


def test_a_pod_runs_and_ends_with_its_exit_code(pods):
    name = pods.make("echo hello; sleep 0.3; echo bye >&2; exit 3")
    pod = pods.ended(name)
    assert (phase(pod), state(pod)["terminated"]["exitCode"]) == ("Failed", 3)
    assert state(pod)["terminated"]["reason"] == "Error"
    assert pods.log(name) == "hello\nbye\n"
    assert pods.log(name, tailLines="1", limitBytes="2") == "by"
    with pytest.raises(ApiError, match="previous terminated container"):
        pods.log(name, previous="true")
    assert pod["status"]["podIP"].startswith("100.127.")
    assert pod["status"]["qosClass"]
    assert condition(pod, "Ready") == "False"


def test_other_pods_stay_simulated(pods):
    name = pods.make("exit 3", image="example.com/none")
    assert phase(pods.running(name)) == "Running"
    assert pods.log(name) == "This pod is simulated: no container runs, so there is no output.\n"
    mixed = pods.make("exit 3", spec={"initContainers": [{"name": "i", "image": "example.com/none"}]})
    pods.running(mixed)
    pods.delete(name)
    pods.await_deleted(name)


def test_log_of_the_previous_container_is_readable_after_a_restart(pods):
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "v", "emptyDir": {}}]}
    mount = [{"name": "v", "mountPath": "/data"}]
    name = pods.make(
        "cd /data; [ -e x ] && echo second && exit 0; touch x; echo first; exit 1", spec=spec, volumeMounts=mount
    )
    pod = pods.ended(name)
    assert (phase(pod), status(pod)["restartCount"]) == ("Succeeded", 1)
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert pods.log(name) == "second\n"
    assert pods.log(name, previous="true") == "first\n"


def test_missing_command_is_a_start_error(pods):
    pod = pods.ended(pods.make(command=["no-such-command"]))
    ended = state(pod)["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert 'exec: "no-such-command": executable file not found in $PATH' in ended["message"]


def test_missing_image_is_named_with_the_command_that_makes_it(pods):
    name = pods.make("true", image="local/none-such", spec={"terminationGracePeriodSeconds": ENDLESS})
    pod = pods.when(name, is_waiting("ErrImageNeverPull"))
    assert "trn local images make none-such" in state(pod)["waiting"]["message"]
    assert phase(pod) == "Pending"
    pods.delete(name)
    pods.await_deleted(name)  # nothing runs that could be waited for


def test_pod_waits_for_its_config_map(pods):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]
    name = pods.make('echo "$A"', env=env)
    pod = pods.when(name, is_waiting("CreateContainerConfigError"))
    assert state(pod)["waiting"]["message"] == 'configmap "later" not found'
    pods.api.create(manifest("ConfigMap", "later", pods.namespace, data={"a": "now"}))
    pods.ended(name)
    assert pods.log(name) == "now\n"


def test_sigterm_comes_first_and_sigkill_after_the_grace_period(pods, paths):
    gentle = pods.make(
        "trap 'echo asked; sleep 0.3; echo done; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
        spec={"terminationGracePeriodSeconds": ENDLESS},
    )
    deaf = pods.make("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    pods.await_log(gentle, "ready")
    pods.await_log(deaf, "ready")
    follow = pods.followed(gentle)
    assert next(follow) == "ready"
    uid = (pods.get(deaf) or {})["metadata"]["uid"]
    pods.delete(gentle)
    assert list(follow) == ["asked", "done"]
    pods.await_deleted(gentle)  # long before its grace period is over
    begun = time.monotonic()
    pods.delete(deaf)
    pods.await_deleted(deaf)
    assert time.monotonic() - begun > 1.5
    assert processes_of(paths, uid) == []


def test_force_deleted_pod_ends_at_once(pods, paths):
    name = pods.make("trap '' TERM; while :; do sleep 0.1; done", spec={"terminationGracePeriodSeconds": ENDLESS})
    uid = pods.running(name)["metadata"]["uid"]
    assert processes_of(paths, uid)
    pods.delete(name, gracePeriodSeconds=0)
    pods.await_deleted(name)
    until(lambda: not processes_of(paths, uid) and not (paths.pods / uid).exists(), "its processes and files go")
