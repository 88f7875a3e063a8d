"""A team's seat before a recorded scene, at the time when it was recorded."""

import pytest
import watched_team
from recorded_scenes import now, snapshot

from trainium_eks.client import ending, reading


@pytest.fixture
def scene():
    """alpha runs on two nodes with two ranks each, beta waits for it."""
    found = snapshot("queue_full")
    found["Job"][0]["metadata"]["annotations"] = {"trainium-eks/world-size": "4", "trainium-eks/nodes": "2"}
    return found


@pytest.fixture
def api(scene, monkeypatch):
    """The cluster."""
    monkeypatch.setattr(reading, "now", lambda: now(scene))
    monkeypatch.setattr(ending, "LOOK_SECONDS", 0.01)
    with watched_team.cluster(scene) as stub:
        yield stub


@pytest.fixture
def call(trn, api, tmp_path):
    """Calls a command of the team."""
    return watched_team.researcher(trn, api, tmp_path)
