"""``trn fabric`` as it is typed, on an API server that only remembers; the gang's log is given."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_snapshots import NEURON, group, outputs
from remembering_api import RememberingApi, take_seat, trn
from typer.testing import Result

from trainium_eks.client import fabric
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.jobs.objects.identity import JOB_API

STACK = outputs(nodeGroups=[group("ng1", NEURON, 8, 4), group("rest", NEURON, 8, 0)], imageRepository="r/train")
REPORT = {
    "schemaVersion": 1,
    "time": "2026-11-23T10:00:00Z",
    "ok": True,
    "nodes": [{"name": "pod-0"}, {"name": "pod-1"}],
    "collectives": [{"operation": "all-reduce", "bytes": 1 << 30, "gigabytesPerSecond": 60.0}],
    "findings": [{"check": "efa", "ok": True, "detail": "fi_info shows 8", "node": 0}],
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RememberingApi:
    made = RememberingApi(JOB_API)
    take_seat(monkeypatch, StackAccess("dev", STACK), made)
    return made


def _trn(monkeypatch: pytest.MonkeyPatch, command: str, report: Mapping[str, Any] | None = REPORT) -> Result:
    line = json.dumps({"fabric": report}, separators=(",", ":"))
    lines = ["[default0]:begins", *([f"[default0]:{line}"] if report else [])]
    monkeypatch.setattr(fabric, "_follow", lambda *_: (lines, {"pod-0": "ip-10-0-0-1"}))
    return trn(command)


def test_each_group_with_nodes_gets_a_gang_by_the_launchers_own_path(
    monkeypatch: pytest.MonkeyPatch, api: RememberingApi
) -> None:
    result = _trn(monkeypatch, "fabric")
    assert result.exit_code == 0, result.output
    assert "✓ fabric" in result.stdout
    (job,) = api.objects
    tasks = job["spec"]["tasks"]
    assert len(tasks) == 4
    (container,) = tasks[0]["template"]["spec"]["containers"]
    script = container["command"][-1]
    assert "torchrun" in script
    assert "--nproc_per_node 32" in script
    assert "-m trainium_workloads.fabric" in script
    assert '"efa":8,"memlock":true' in script
    assert "--label ng1" in script
    assert job["spec"]["maxRetry"] == 1


def test_a_benchmark_takes_the_devices_itself(monkeypatch: pytest.MonkeyPatch, api: RememberingApi) -> None:
    assert _trn(monkeypatch, "fabric --tool nccom-test -- --inject slow:1").exit_code == 0
    script = api.objects[0]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"][-1]
    assert "--nproc_per_node 1" in script
    assert "--tool nccom-test --inject slow:1" in script
    assert "no node group with nodes has the devices" in _trn(monkeypatch, "fabric --tool nccl-tests").stderr


def test_a_failure_ends_with_1_and_its_remedy(monkeypatch: pytest.MonkeyPatch, api: RememberingApi) -> None:
    finding = {"check": "slow-node", "ok": False, "detail": "node 0 (pod-0) is slow: 3 s", "node": 0}
    result = _trn(monkeypatch, "fabric --group ng1 --json", {**REPORT, "ok": False, "findings": [finding]})
    assert result.exit_code == 1
    (tested,) = json.loads(result.stdout)["groups"]
    assert tested["ok"] is False
    assert tested["findings"][0]["text"] == "node 0 (ip-10-0-0-1, pod pod-0) is slow: 3 s"


def test_a_file_is_compared_with(monkeypatch: pytest.MonkeyPatch, api: RememberingApi, tmp_path: Path) -> None:
    earlier = tmp_path / "report.json"
    faster = {**REPORT["collectives"][0], "gigabytesPerSecond": 90.0}  # type: ignore[index, dict-item]
    earlier.write_text(json.dumps({**REPORT, "collectives": [faster]}))
    result = _trn(monkeypatch, f"fabric --against {earlier}")
    assert result.exit_code == 1
    assert "was 90 (-33%)" in result.stdout
    assert "no report" in _trn(monkeypatch, "fabric --against last").stdout
    wrong = _trn(monkeypatch, "fabric --against nowhere.json")
    assert (wrong.exit_code, "give `last` or a report" in wrong.stderr) == (2, True)


def test_a_gang_without_a_report_is_a_failure(monkeypatch: pytest.MonkeyPatch, api: RememberingApi) -> None:
    result = _trn(monkeypatch, "fabric", None)
    assert result.exit_code == 1
    assert "ended without a report" in result.stderr
