"""What becomes of pods when something ends that they depend on: the agent, their node, the API server, the stack."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from running_pods import Pods, a_namespace, cpu_nodes, phase, processes_of, state, status

from trainium_eks.local.changes import LocalError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.objects.api import Api
from trainium_eks.local.paths import Paths
from trainium_eks.local.pods.programs import AGENT, SHIM

TICKS = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.1; done"
# What it starts leaves its session, as daemons do.
DAEMON = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' & trap '' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return Paths.of(tmp_path_factory.mktemp("lost"), "lost")


@pytest.fixture(scope="module")
def plane(own: Paths, binaries: Mapping[str, Path]) -> Iterator[ControlPlane]:
    plane = ControlPlane(own, binaries)
    plane.start()
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def own_api(plane: ControlPlane, own: Paths) -> Iterator[Api]:
    api = Api.connect(own.kubeconfig)
    with cpu_nodes(api, 3):
        yield api


@pytest.fixture
def pods(own_api: Api) -> Iterator[Pods]:
    with a_namespace(own_api) as found:
        yield found


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 40
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pid(paths: Paths, name: str) -> int:
    return next(each.pid for each in processes.running(paths) if each.name == name)


def shim(paths: Paths, uid: str) -> int:
    return next(
        each.pid for each in processes.running(paths) if each.name == SHIM and each.command[-1].endswith(f"/{uid}")
    )


def test_pods_go_on_without_their_agent_and_the_next_one_adopts_them(
    plane: ControlPlane, own: Paths, pods: Pods
) -> None:
    stays = pods.make(TICKS)
    ends = pods.make("sleep 2; echo done; exit 4")
    deleted = pods.make(TICKS)
    uids = {name: pods.running(name)["metadata"]["uid"] for name in (stays, ends, deleted)}
    before = shim(own, uids[stays])
    os.kill(pid(own, AGENT), signal.SIGKILL)
    pods.delete(deleted, gracePeriodSeconds=0)
    until(lambda: not psutil.pid_exists(shim_or(own, uids[ends])))
    assert plane.start().started == (AGENT,)
    pod = pods.ended(ends)
    assert (state(pod)["terminated"]["exitCode"], pods.log(ends)) == (4, "done\n")
    assert shim(own, uids[stays]) == before
    count = pods.log(stays).count("\n")
    until(lambda: pods.log(stays).count("\n") > count)
    assert status(pods.running(stays))["restartCount"] == 0
    until(lambda: not processes_of(own, uids[deleted]) and not (own.pods / uids[deleted]).exists())


def shim_or(paths: Paths, uid: str) -> int:
    try:
        return shim(paths, uid)
    except StopIteration:
        return 2**22 + 1


def test_a_shim_that_is_killed_takes_its_pod_along(own: Paths, pods: Pods) -> None:
    """Its pod has failed, or where it may it is started again."""
    once = pods.make(TICKS)
    again = pods.make(TICKS, spec={"restartPolicy": "Always"})
    for name in (once, again):
        uid = pods.running(name)["metadata"]["uid"]
        os.kill(shim(own, uid), signal.SIGKILL)
    pod = pods.ended(once)
    ended = state(pod)["terminated"]
    assert (phase(pod), ended["exitCode"], ended["reason"]) == ("Failed", 137, "ContainerStatusUnknown")
    assert processes_of(own, pod["metadata"]["uid"]) == []
    pod = pods.when(again, lambda pod: status(pod)["restartCount"] == 1 and "running" in state(pod))
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 137


def test_a_pod_ends_with_its_node(own: Paths, pods: Pods) -> None:
    pod = pods.running(pods.make(TICKS))
    pods.api.request("DELETE", f"/api/v1/nodes/{pod['spec']['nodeName']}")
    begun = time.monotonic()
    until(lambda: not processes_of(own, pod["metadata"]["uid"]))
    assert time.monotonic() - begun < 5


def test_an_evicted_pod_ends_as_one_that_is_deleted(own: Paths, pods: Pods) -> None:
    name = pods.make("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    pods.said(name, "ready")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": pods.namespace}}
    pods.api.request("POST", f"/api/v1/namespaces/{pods.namespace}/pods/{name}/eviction", eviction)
    pods.gone(name)


def test_a_taint_that_nobody_bears_ends_pods(own: Paths, pods: Pods) -> None:
    pod = pods.running(pods.make(TICKS))
    taint = {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}
    path = f"/api/v1/nodes/{pod['spec']['nodeName']}"
    pods.api.request("PATCH", path, taint, content_type="application/merge-patch+json")
    pods.gone(pod["metadata"]["name"])
    assert processes_of(own, pod["metadata"]["uid"]) == []


def test_pods_outlive_the_api_server(plane: ControlPlane, own: Paths, pods: Pods) -> None:
    name = pods.make(TICKS)
    uid = pods.running(name)["metadata"]["uid"]
    before = shim(own, uid)
    os.kill(pid(own, "kube-apiserver"), signal.SIGKILL)
    until(lambda: "kube-apiserver" not in {each.name for each in processes.running(own)})
    plane.start()
    assert shim(own, uid) == before
    later = pods.make("echo later")
    pods.ended(later)
    pods.delete(name)
    pods.gone(name)


def test_down_leaves_no_process(plane: ControlPlane, own: Paths, pods: Pods) -> None:
    """Also when the agent was killed before, and what a pod started does not listen."""
    uid = pods.running(pods.make(DAEMON))["metadata"]["uid"]
    assert len(processes_of(own, uid)) >= 3
    os.kill(pid(own, AGENT), signal.SIGKILL)
    assert SHIM in plane.stop()
    assert processes_of(own, uid) == []
    assert processes.running(own) == []
    plane.start()  # for whoever cleans up


def test_down_ends_what_a_killed_shim_has_left_behind(
    binaries: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without namespaces nothing but its environment says whose a process is."""
    monkeypatch.setenv("TRN_POD_ISOLATION", "plain")
    paths = Paths.of(tmp_path, "plain")
    plane = ControlPlane(paths, binaries)
    plane.start()
    try:
        api = Api.connect(paths.kubeconfig)
        with contextlib.suppress(LocalError), cpu_nodes(api, 1), a_namespace(api) as pods:
            uid = pods.running(pods.make(DAEMON))["metadata"]["uid"]
            until(lambda: len(processes_of(paths, uid)) >= 4)
            os.kill(pid(paths, AGENT), signal.SIGKILL)
            os.kill(shim(paths, uid), signal.SIGKILL)
            until(lambda: SHIM not in {each.name for each in processes.running(paths)})
            left = processes_of(paths, uid)
            plane.stop()  # the API server, too, which the rest of this block asks in vain
    finally:
        plane.stop()
    assert left
    assert processes_of(paths, uid) == []
