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
    """Two jobs, of which one waits for the other."""
    return snapshot("queue_full")


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
