"""A pod's status, from what its shim says."""

import asyncio
import contextlib

import pytest

from trainium_eks.local.agent import statuses
from trainium_eks.local.agent.worker import Worker
from trainium_eks.local.spec.known import UnmetError
from trainium_eks.local.spec.plan import PodDirectory


def pod(**status):
    containers = [{"name": name, "image": "local/python"} for name in ("a", "b")]
    return {"metadata": {"uid": "u"}, "spec": {"containers": containers}, "status": status}


def status_of(state="running", **more):
    made = {"state": state, "reason": "", "message": "", "startedAt": 1.0, "restartCount": 0}
    up = state == "running"
    return {**made, "started": up, "ready": up, "last": None, "exitCode": 0, "finishedAt": 2.0, **more}


def state(a, b, **more):
    return {"containers": {"a": a, "b": b}, "initialized": True, "ended": False, "reason": "", **more}


def made(said, unmet=None, gates=(), **before):
    body = pod(**before)
    body["spec"]["readinessGates"] = [{"conditionType": gate} for gate in gates]
    return statuses.status(body, said, host_ip="h", address="100.127.0.2", image_ids={}, unmet=unmet)


def is_so(status, kind):
    return next(each["status"] for each in status["conditions"] if each["type"] == kind)


WAITS = status_of("waiting", reason="CrashLoopBackOff", restartCount=2)


@pytest.mark.parametrize(
    ("said", "phase", "ready"),
    [
        (None, "Pending", "False"),
        (state(status_of(), status_of()), "Running", "True"),
        (state(status_of(), status_of(ready=False)), "Running", "False"),
        (state(status_of("waiting"), status_of("waiting")), "Pending", "False"),
        (state(WAITS, WAITS), "Running", "False"),
        (state(status_of("terminated"), status_of("terminated"), ended=True), "Succeeded", "False"),
        (state(status_of("terminated"), status_of("terminated", exitCode=1), ended=True), "Failed", "False"),
        (
            state(status_of("terminated"), status_of("terminated"), ended=True, reason="DeadlineExceeded"),
            "Failed",
            "False",
        ),
        (state(status_of("terminated", exitCode=1), status_of()), "Running", "False"),
        # After an init container that failed for good.
        (state(status_of("waiting"), status_of("waiting"), ended=True), "Failed", "False"),
    ],
)
def test_phase_and_ready_follow_from_the_containers(said, phase, ready):
    found = made(said)
    assert (found["phase"], is_so(found, "Ready")) == (phase, ready)


def test_missing_object_is_named_and_a_gate_keeps_a_pod_unready():
    found = made(None, UnmetError("CreateContainerConfigError", "no m", "a"))
    waiting = [each["state"]["waiting"] for each in found["containerStatuses"]]
    assert waiting == [{"reason": "CreateContainerConfigError", "message": "no m"}, {"reason": "ContainerCreating"}]
    assert is_so(found, "Initialized") == "False"
    up = state(status_of(), status_of(), initialized=False)
    assert is_so(made(up), "Initialized") == "True", "it has no init containers"
    for gate in ("True", "False"):
        found = made(up, gates=["gate"], conditions=[{"type": "gate", "status": gate}])
        assert (is_so(found, "Ready"), is_so(found, "ContainersReady")) == (gate, "True")


def test_condition_keeps_its_transition_time_until_it_changes():
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "then"}
    for ready in (True, False):
        found = made(state(status_of(), status_of(ready=ready)), conditions=[before])
        [since] = [each["lastTransitionTime"] for each in found["conditions"] if each["type"] == "Ready"]
        assert (since == "then") is ready


TIMES = {"creationTimestamp": "2026-11-22T05:33:04Z", "deletionTimestamp": "2026-11-22T05:33:05Z"}
POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1", **TIMES},
    "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "local/python"}]},
    "status": {"phase": "Succeeded"},
}


class Around:
    """As much of the agent as ending a pod takes."""

    def __init__(self, root):
        self.client = self
        self.forgotten = []
        self.worker = None
        self._root = root

    def directory(self, uid):
        return PodDirectory(self._root / uid)

    async def request(self, method, *_):
        assert method == "DELETE"
        # The watch tells that the pod is gone before the answer is here.
        assert self.worker is not None
        self.worker.remove()
        return {}

    def forget(self, uid):
        self.forgotten.append(uid)

    def hosts_changed(self):
        pass


def test_pod_deleted_during_its_deletion_request_is_cleaned_up(tmp_path):
    around = Around(tmp_path)

    async def run():
        around.worker = Worker(POD, around)
        await asyncio.wait_for(around.worker.run(), 5)

    # Not asyncio.run: it would leave this thread without a loop, which Pulumi's mocks in other tests look for.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run())
    assert around.forgotten == ["u"]
