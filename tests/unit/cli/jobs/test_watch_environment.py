"""`trn status` without a job, from its options to what it prints."""

import json
from collections.abc import Iterator
from pathlib import Path

import cluster_snapshots
import pytest
import watched_team
from recorded_scenes import Snapshot, now, snapshot
from small_project import Run
from stub_api import StubApi
from watched_team import Call

from trainium_eks.client import reading
from trainium_eks.client.session import Session
from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.model.catalogue.instances import CATALOGUE

PODS = "/api/v1/pods"
PRICE = CATALOGUE.find("trn1.32xlarge").hourly_usd or 0.0


@pytest.fixture
def scene() -> Snapshot:
    """Nodes of the group `ng1` of the outputs, of which two have pods."""
    found = snapshot("queue_full")
    found["Node"] = [
        node
        for node in found["Node"]
        if node["metadata"]["labels"].get("node.kubernetes.io/instance-type") == "trn1.32xlarge"
    ]
    for node in found["Node"]:
        node["metadata"]["labels"][GROUP_LABEL] = cluster_snapshots.outputs().node_groups[0].eks_name
    return found


@pytest.fixture
def api(scene: Snapshot, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubApi]:
    monkeypatch.setattr(reading, "now", lambda: now(scene))
    with watched_team.cluster(scene) as stub:
        yield stub


@pytest.fixture
def call(trn: Run, api: StubApi, tmp_path: Path) -> Call:
    return watched_team.researcher(trn, api, tmp_path)


def test_it_shows_what_is_idle_what_it_costs_and_what_mends_it(call: Call, scene: Snapshot) -> None:
    nodes = len(scene["Node"])
    code, out = call("status")
    assert code == 0
    assert f"{nodes * PRICE:,.2f} USD an hour now, at list prices" in out
    assert "without everything else, whose price is not known" in out
    idle = f"ng1: {nodes - 2} of {nodes} nodes idle: {(nodes - 2) * PRICE:,.2f} USD an hour for nothing"
    assert idle in " ".join(out.split())
    assert "scale ng1 2\n" in out


def test_simulated_nodes_cost_nothing_so_that_none_is_to_be_saved(
    call: Call, scene: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "is_local", True)
    idle = len(scene["Node"]) - 2
    code, out = call("status")
    assert code == 0
    assert f"{idle} of {idle + 2} nodes idle; on AWS that would be {idle * PRICE:,.2f} USD an hour" in " ".join(
        out.split()
    )
    assert "for nothing" not in out
    assert "trn scale" not in out


def test_a_researcher_is_told_what_may_not_be_read(call: Call, api: StubApi) -> None:
    api.refuses[PODS] = 403
    code, out = call("status")
    assert code == 0
    assert "pods of other teams may not be read" in " ".join(out.split())
    assert "for nothing" not in out


def test_as_json_it_is_one_document(call: Call, scene: Snapshot) -> None:
    code, out = call("status", "--json")
    found = json.loads(out)
    assert (code, found["schemaVersion"], found["unknownPrices"]) == (0, 1, ["everything else"])
    ng1 = found["groups"][0]
    assert (ng1["name"], ng1["nodes"], ng1["idle"]) == ("ng1", len(scene["Node"]), len(scene["Node"]) - 2)
    assert found["hourlyUsd"] == pytest.approx(ng1["hourlyUsd"])


def test_watching_needs_a_job(call: Call) -> None:
    code, out = call("status", "--watch")
    assert code == 2
    assert "--watch needs a job" in out
