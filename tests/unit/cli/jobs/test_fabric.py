"""``trn fabric`` as it is typed, on an API server that only remembers; the gang's log is given."""

import json

import pytest
from cluster_snapshots import NEURON, group, outputs
from outcome import ends
from remembering_api import RememberingApi, take_seat, trn

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
def api(monkeypatch):
    made = RememberingApi(JOB_API)
    take_seat(monkeypatch, StackAccess("dev", STACK), made)
    return made


def _trn(monkeypatch, command, report=REPORT):
    line = json.dumps({"fabric": report}, separators=(",", ":"))
    lines = ["[default0]:begins", *([f"[default0]:{line}"] if report else [])]
    monkeypatch.setattr(fabric, "_follow", lambda *_: (lines, {"pod-0": "ip-10-0-0-1"}))
    return trn(command)


def _script(api):
    (container,) = api.objects[0]["spec"]["tasks"][0]["template"]["spec"]["containers"]
    return str(container["command"][-1])


def test_benchmark_uses_the_devices_and_a_failure_exits_1(monkeypatch, api):
    assert _trn(monkeypatch, "fabric --tool nccom-test -- --inject slow:1").exit_code == 0
    assert "--nproc_per_node 1" in _script(api)
    assert "--tool nccom-test --inject slow:1" in _script(api)
    assert "no node group with nodes has the devices" in _trn(monkeypatch, "fabric --tool nccl-tests").stderr
    finding = {"check": "slow-node", "ok": False, "detail": "node 0 (pod-0) is slow: 3 s", "node": 0}
    result = _trn(monkeypatch, "fabric --group ng1 --json", {**REPORT, "ok": False, "findings": [finding]})
    (tested,) = json.loads(result.stdout)["groups"]
    assert (result.exit_code, tested["ok"]) == (1, False)
    assert tested["findings"][0]["text"] == "node 0 (ip-10-0-0-1, pod pod-0) is slow: 3 s"


def test_each_group_with_nodes_gets_a_fabric_gang_and_is_compared(monkeypatch, api, tmp_path):
    ends(0, _trn(monkeypatch, "fabric"), "✓ fabric")
    (job,) = api.objects
    assert (job["spec"]["maxRetry"], len(job["spec"]["tasks"])) == (1, 4)
    for text in ("torchrun", "--nproc_per_node 32", "-m trainium_workloads.fabric", "--label ng1"):
        assert text in _script(api)
    assert '"efa":8,"memlock":true' in _script(api)
    earlier = tmp_path / "report.json"
    faster = {**REPORT["collectives"][0], "gigabytesPerSecond": 90.0}
    earlier.write_text(json.dumps({**REPORT, "collectives": [faster]}))
    ends(1, _trn(monkeypatch, f"fabric --against {earlier}"), "was 90 (-33%)")
    assert "no report" in _trn(monkeypatch, "fabric --against last").stdout
    ends(2, _trn(monkeypatch, "fabric --against nowhere.json"), "give `last` or a report")
    ends(1, _trn(monkeypatch, "fabric", None), "ended without a report")
