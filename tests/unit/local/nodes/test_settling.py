"""The end of an `up`: until nothing that can start is still starting."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from trainium_eks.local.nodes import settling
from trainium_eks.local.nodes.settling import settle


def daemon_set(name: str, wanted: int, available: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "kube-system", "generation": 1}
    status = {"observedGeneration": 1, "desiredNumberScheduled": wanted, "updatedNumberScheduled": wanted}
    return {"metadata": metadata, "status": {**status, "numberAvailable": available}}


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(settling, "time", made)
    return made


def server(clock: Clock, available: Callable[[float], int]) -> Callable[[str], Mapping[str, Any]]:
    def get(path: str) -> Mapping[str, Any]:
        assert path == "/apis/apps/v1/daemonsets"
        return {"items": [daemon_set("agent", 5, available(clock.now)), daemon_set("other", 5, 5)]}

    return get


def test_pods_that_start_are_awaited_and_told_after_a_moment(clock: Clock) -> None:
    told: list[str] = []
    assert settle(server(clock, lambda _: 5), told.append) == ()
    assert (clock.now, told) == (0, []), "a cluster that is whole is not waited for"
    assert settle(server(clock, lambda now: min(5, int(now))), told.append) == ()
    assert 5 <= clock.now < 6
    assert "Waiting for the agents of the nodes: DaemonSet kube-system/agent: 3 of 5 pods are available" in told


def test_what_does_not_move_is_given_up_and_said(clock: Clock) -> None:
    (note,) = settle(server(clock, lambda now: 4 if now > 10 else 2), lambda _: None)
    assert note == "still not running: DaemonSet kube-system/agent: 4 of 5 pods are available"
    assert 10 + settling.UNMOVED_SECONDS <= clock.now < 12 + settling.UNMOVED_SECONDS
