"""A pod's status, from what its shim says."""

from typing import Any

import pytest

from trainium_eks.local.agent import statuses
from trainium_eks.local.spec.known import UnmetError


def pod(**status: Any) -> dict[str, Any]:
    containers = [{"name": name, "image": "local/python"} for name in ("a", "b")]
    return {"metadata": {"uid": "u"}, "spec": {"containers": containers}, "status": status}


def told(state: str = "running", **more: Any) -> dict[str, Any]:
    made = {"state": state, "reason": "", "message": "", "startedAt": 1.0, "restartCount": 0}
    up = state == "running"
    return {**made, "started": up, "ready": up, "last": None, "exitCode": 0, "finishedAt": 2.0, **more}


def state(a: dict[str, Any], b: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": {"a": a, "b": b}, "initialized": True, "ended": False, "reason": "", **more}


def made(said: dict[str, Any] | None, unmet: UnmetError | None = None, **before: Any) -> dict[str, Any]:
    return statuses.status(pod(**before), said, host_ip="h", address="100.127.0.2", image_ids={}, unmet=unmet)


def is_so(status: dict[str, Any], kind: str) -> str:
    return next(each["status"] for each in status["conditions"] if each["type"] == kind)


WAITS = told("waiting", reason="CrashLoopBackOff", restartCount=2)


@pytest.mark.parametrize(
    ("said", "phase", "ready"),
    [
        (None, "Pending", "False"),
        (state(told(), told()), "Running", "True"),
        (state(told(), told(ready=False)), "Running", "False"),
        (state(told("waiting"), told("waiting")), "Pending", "False"),
        (state(WAITS, WAITS), "Running", "False"),
        (state(told("terminated"), told("terminated"), ended=True), "Succeeded", "False"),
        (state(told("terminated"), told("terminated", exitCode=1), ended=True), "Failed", "False"),
        (state(told("terminated"), told("terminated"), ended=True, reason="DeadlineExceeded"), "Failed", "False"),
        (state(told("terminated", exitCode=1), told()), "Running", "False"),
    ],
)
def test_phase_and_ready_follow_from_the_containers(said: dict[str, Any] | None, phase: str, ready: str) -> None:
    found = made(said)
    assert (found["phase"], is_so(found, "Ready")) == (phase, ready)


def test_what_is_unmet_is_said_of_the_container_that_it_concerns() -> None:
    found = made(None, UnmetError("ErrImageNeverPull", "why", "b"))
    waiting = [each["state"]["waiting"] for each in found["containerStatuses"]]
    assert waiting == [{"reason": "ContainerCreating"}, {"reason": "ErrImageNeverPull", "message": "why"}]


def test_a_condition_keeps_its_time_while_it_stays_the_same() -> None:
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "then"}
    for ready in (True, False):
        found = made(state(told(), told(ready=ready)), conditions=[before])
        [since] = [each["lastTransitionTime"] for each in found["conditions"] if each["type"] == "Ready"]
        assert (since == "then") is ready


def test_what_ran_when_its_shim_was_lost_has_ended_with_137() -> None:
    lost = statuses.lost(state(told(), told("terminated", exitCode=0)), 9.0)
    found = made(lost)
    codes = [each["state"]["terminated"]["exitCode"] for each in found["containerStatuses"]]
    assert (found["phase"], codes) == ("Failed", [137, 0])
    assert found["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
