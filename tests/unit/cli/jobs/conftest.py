"""A team's seat before a recorded scene, at the time when it was recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import watched_team
from recorded_scenes import Snapshot, now, snapshot
from small_project import Run
from stub_api import StubApi
from watched_team import Call

from trainium_eks.client import ending, reading


@pytest.fixture
def scene() -> Snapshot:
    """alpha runs on two nodes with two ranks each, beta waits for it."""
    found = snapshot("queue_full")
    found["Job"][0]["metadata"]["annotations"] = {"trainium-eks/world-size": "4", "trainium-eks/nodes": "2"}
    return found


@pytest.fixture
def api(scene: Snapshot, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubApi]:
    """The cluster."""
    monkeypatch.setattr(reading, "now", lambda: now(scene))
    monkeypatch.setattr(ending, "LOOK_SECONDS", 0.01)
    with watched_team.cluster(scene) as stub:
        yield stub


@pytest.fixture
def call(trn: Run, api: StubApi, tmp_path: Path) -> Call:
    """Calls a command of the team."""
    return watched_team.researcher(trn, api, tmp_path)
