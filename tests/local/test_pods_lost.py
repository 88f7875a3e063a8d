"""What becomes of pods when something ends that they depend on: the agent, their node, the API server, the stack."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from manifests import manifest, patch
from running_pods import ENDLESS, a_namespace, cpu_nodes, phase, processes_of, state, status
from waiting import SECONDS, until

from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.control_plane.programs import AGENT, NETWORK, SHIM
from trainium_eks.local.paths import Paths

pytestmark = pytest.mark.slow

TICKS = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.1; done"
# What it starts leaves its session, as daemons do.
DAEMON = (
    "trap '' TERM; setsid sh -c 'trap \"\" TERM HUP; echo daemon; while :; do sleep 0.1; done' & "
    "while :; do sleep 0.1; done"
)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return Paths.of(tmp_path_factory.mktemp("lost"), "lost")


@pytest.fixture(scope="module")
def plane(own, binaries):
    plane = ControlPlane(own, binaries, ready_within_seconds=SECONDS)
    plane.start()
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def own_api(plane, own):
    api = Api.connect(own.kubeconfig)
    # Two tests take one of them away each, and twice where they are tried again.
    with cpu_nodes(api, 5):
        yield api


@pytest.fixture
def pods(own_api):
    with a_namespace(own_api) as found:
        yield found


def pid(paths, name):
    return next(each.pid for each in processes.running(paths) if each.name == name)


def is_running(paths, name):
    return name in {each.name for each in processes.running(paths)}


def kill(paths, name):
    os.kill(pid(paths, name), signal.SIGKILL)
    until(lambda: not is_running(paths, name), f"{name} has ended")


def shims(paths):
    """The running shims by the uids of their pods."""
    found = [each for each in processes.running(paths) if each.name == SHIM]
    # The children of a shim, which hold the sandbox and wait for containers, look like it: the oldest is the shim.
    return {Path(each.command[-1]).name: each.pid for each in reversed(found)}


def test_pods_end_with_their_agent_and_restart_by_their_policy(plane, own, pods):
    """As on a node that is lost and comes back."""
    once, again, deleted = pods.make(TICKS), pods.make(TICKS, spec={"restartPolicy": "Always"}), pods.make(TICKS)
    uids = {name: pods.running(name)["metadata"]["uid"] for name in (once, again, deleted)}
    kill(own, AGENT)
    until(lambda: not shims(own), "the pods end with the agent")
    pods.delete(deleted, gracePeriodSeconds=0)
    assert plane.start().started == (AGENT,)
    assert [each.name for each in processes.running(own)].count(NETWORK) <= 1, "one network for one agent"
    ended = state(pods.ended(once))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    pod = pods.when(again, lambda pod: status(pod)["restartCount"] == 1 and "running" in state(pod))
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 137
    until(lambda: not processes_of(own, uids[deleted]) and not (own.pods / uids[deleted]).exists())


def test_terminating_pod_is_removed_after_its_agent_is_lost(plane, own, own_api):
    with a_namespace(own_api) as pods:
        deaf = {"terminationGracePeriodSeconds": ENDLESS}
        name = pods.make("trap '' TERM; echo deaf; while :; do sleep 0.1; done", spec=deaf)
        pods.await_log(name, "deaf")
    pods.when(name, lambda pod: pod["metadata"].get("deletionTimestamp"))
    kill(own, AGENT)
    plane.start()
    pods.await_deleted(name)


def test_killed_shim_ends_its_pod(own, pods):
    """Its pod has failed, or where it may it is started again."""
    once = pods.make(TICKS)
    again = pods.make(TICKS, spec={"restartPolicy": "Always"})
    for name in (once, again):
        uid = pods.running(name)["metadata"]["uid"]
        os.kill(shims(own)[uid], signal.SIGKILL)
    pod = pods.ended(once)
    ended = state(pod)["terminated"]
    assert (phase(pod), ended["exitCode"], ended["reason"]) == ("Failed", 137, "ContainerStatusUnknown")
    until(lambda: not processes_of(own, pod["metadata"]["uid"]), "what the shim ran has ended")
    pod = pods.when(again, lambda pod: status(pod)["restartCount"] == 1 and "running" in state(pod))
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 137


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_recreated_node_has_none_of_the_old_pods(own, pods, policy):
    """Kubernetes collects the pods of a missing node after 40 s, and never those of one that is there again."""
    ran, deleted = (pods.running(pods.make(TICKS, spec={"restartPolicy": policy})) for _ in range(2))
    for pod in (ran, deleted):
        path = f"/api/v1/nodes/{pod['spec']['nodeName']}"
        node = pods.api.request("GET", path)
        pods.api.request("DELETE", path)
        uid = pod["metadata"]["uid"]
        until(lambda: not processes_of(own, uid), "its processes end")  # noqa: B023
        gone = f"node {node['metadata']['name']} is gone, and with it {uid}"  # at once, not when Kubernetes collects it
        assert gone in processes.log_file(own, AGENT).read_text()
        metadata = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
        pods.api.create({**node, "metadata": metadata})
    pods.delete(deleted["metadata"]["name"])
    pods.await_deleted(deleted["metadata"]["name"])
    if policy == "Never":
        ended = state(pods.ended(ran["metadata"]["name"]))["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    else:
        again = pods.when(ran["metadata"]["name"], lambda pod: status(pod)["restartCount"] and "running" in state(pod))
        assert status(again)["lastState"]["terminated"]["exitCode"] == 137


def test_evicted_pod_and_one_that_does_not_tolerate_a_taint_end(own, pods):
    evicted, tainted = (pods.running(pods.make(TICKS)) for _ in range(2))
    name = evicted["metadata"]["name"]
    eviction = manifest("Eviction", name, pods.namespace, api_version="policy/v1")
    pods.api.request("POST", f"/api/v1/namespaces/{pods.namespace}/pods/{name}/eviction", eviction)
    taint = {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}
    patch(pods.api, manifest("Node", tainted["spec"]["nodeName"]), taint)
    for pod in (evicted, tainted):
        pods.await_deleted(pod["metadata"]["name"])
        assert processes_of(own, pod["metadata"]["uid"]) == []


def test_pods_outlive_the_api_server(plane, own, pods):
    name = pods.make(TICKS)
    uid = pods.running(name)["metadata"]["uid"]
    before = shims(own)[uid]
    kill(own, "kube-apiserver")
    plane.start()
    assert shims(own)[uid] == before
    later = pods.make("echo later")
    pods.ended(later)
    pods.delete(name)
    pods.await_deleted(name)


def test_down_leaves_no_process(plane, own, pods):
    """Also when the agent was killed before, and what a pod started does not listen."""
    name = pods.make(DAEMON)
    pods.await_log(name, "daemon")
    uid = pods.running(name)["metadata"]["uid"]
    assert processes_of(own, uid)
    kill(own, AGENT)
    plane.stop()
    assert processes_of(own, uid) == []
    assert processes.running(own) == []
    plane.start()  # for whoever cleans up


def test_down_ends_processes_of_a_killed_shim(binaries, tmp_path, monkeypatch):
    """Without namespaces nothing but its environment says whose a process is."""
    monkeypatch.setenv("TRN_POD_ISOLATION", "plain")
    paths = Paths.of(tmp_path, "plain")
    plane = ControlPlane(paths, binaries, ready_within_seconds=SECONDS)
    plane.start()
    try:
        api = Api.connect(paths.kubeconfig)
        with contextlib.suppress(ClusterError), cpu_nodes(api, 1), a_namespace(api) as pods:
            name = pods.make(DAEMON)
            pods.await_log(name, "daemon")
            uid = pods.running(name)["metadata"]["uid"]
            os.kill(shims(paths)[uid], signal.SIGKILL)
            kill(paths, AGENT)
            until(lambda: not is_running(paths, SHIM))
            left = processes_of(paths, uid)
            plane.stop()  # the API server, too, which the rest of this block asks in vain
    finally:
        plane.stop()
    assert left
    assert processes_of(paths, uid) == []
