"""The fabric test as the library sees it: expectations of a group, judgement of a report, comparison of two."""

import json
import re

import pytest
from cluster_snapshots import outputs
from moto.ec2.models.instance_types import INSTANCE_TYPES

from trainium_eks.model.catalogue.fabric_floors import LINE_RATES, floor_of
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.finding import Status
from trainium_eks.operate.verify import fabric
from trainium_eks.operate.verify.fabric import ReportFaultError


def _report(bandwidth=60.0, findings=(), **changes):
    collectives = [
        {"operation": "all-reduce", "bytes": 8, "gigabytesPerSecond": 0.0001},
        {"operation": "all-reduce", "bytes": 1 << 30, "gigabytesPerSecond": bandwidth},
    ]
    storage = {"writeMBs": 90.0, "readMBs": 100.0, "filesPerSecond": 400.0}
    nodes = [{"name": f"pod-{number}", "storage": storage} for number in range(2)]
    base = {"schemaVersion": 1, "time": "2026-11-23T10:00:00Z", "job": "fabric-a", "ok": not findings}
    return {**base, "nodes": nodes, "collectives": collectives, "findings": list(findings), **changes}


def _finding(check, detail, node, ok=False):
    return {"check": check, "ok": ok, "detail": detail, "node": node}


def _checks(*findings):
    return fabric.checks(_report(findings=findings), "ng1", {"pod-1": "ip-10-0-0-1"}, is_local=False)


def _expected(claim, *, is_local, rate=None):
    shared = outputs().model_dump(by_alias=True)["sharedVolume"]
    stack = outputs(sharedVolume={**shared, "writeMegabytesPerSecond": rate})
    return fabric.expectation(stack.node_groups[0], CATALOGUE["trn1.32xlarge"], stack, claim=claim, is_local=is_local)


def test_trainium_group_must_show_its_hardware_and_reach_its_floor():
    expected = _expected("fsx-claim", is_local=False, rate=300.0)
    assert expected["floor"] == {"gigabytes_per_second": 50.0, "latency_seconds": 0.005}
    hardware = {"devices": 16, "deviceTool": "neuron-ls", "efa": 8, "memlock": True}
    assert hardware.items() <= expected.items()
    storage = expected["storage"]
    assert (storage["mount"], storage["type"]) == ("/data", "lustre")
    # Half of the file system's rate is asked of all nodes together.
    assert (storage["writeMBs"], storage["writeMBsPerNode"]) == (150.0, 100.0)
    assert _expected("fsx-claim", is_local=False)["storage"]["writeMBs"] == 0
    # On the local cloud floors are judged, and hardware is not.
    assert set(_expected("", is_local=True)) == {"instanceType", "floor"}
    (first, *_) = fabric.checks(_report(), "ng1", {}, is_local=True)
    assert first.status is Status.NOT_APPLICABLE


def test_last_report_of_a_log_is_used_and_a_malformed_one_is_refused():
    line = json.dumps({"fabric": _report()}, separators=(",", ":"))
    assert fabric.find_report(["[default0]:ok", f"[default0]:{line}"]) == _report()
    assert fabric.find_report(["nothing"]) is None
    newer = json.dumps(_report(schemaVersion=2))
    for text, says in (('{"fabric":{"sch', "not JSON"), ("[]", "not a report of the fabric"), (newer, "version 2")):
        with pytest.raises(ReportFaultError, match=says):
            fabric.read_report(text)


def test_findings_of_a_kind_are_one_check_with_the_faulty_nodes():
    (check,) = _checks(_finding("slow-node", "node 1 (pod-1) is slow: 3 s", 1))
    assert (check.id, check.status) == ("fabric/ng1/slow-node", Status.FAIL)
    assert check.text == "node 1 (ip-10-0-0-1, pod pod-1) is slow: 3 s"
    assert "kubectl drain ip-10-0-0-1 --ignore-daemonsets" in check.fix
    short, fine = "lockable memory: 8192 KiB, must be unlimited for EFA", "lockable memory: unlimited"
    (check,) = _checks(_finding("memlock", short, 0), _finding("memlock", short, 1))
    assert check.text == "2 of 2 failed"
    assert check.details == (f"node 0 (pod-0): {short}", f"node 1 (ip-10-0-0-1, pod pod-1): {short}")
    (check,) = _checks(_finding("memlock", fine, 0, ok=True), _finding("memlock", fine, 1, ok=True))
    assert (check.status, check.text) == (Status.PASS, f"2 nodes, the first: {fine}")
    # Each kind of finding has a remedy.
    for kind in fabric._SUBJECTS:
        (check,) = _checks(_finding(kind, "wrong", None))
        assert check.fix != fabric._remedy("another", "ng1", "NODE")


def test_bandwidth_drop_of_a_third_fails_and_line_rates_are_ec2s():
    (worse,) = fabric.compare(_report(40.0), _report(60.0), "ng1", is_local=False)
    assert worse.status is Status.FAIL
    assert worse.details == ("all-reduce of 1024 MiB, GB/s: 40, was 60 (-33%)",)
    (same,) = fabric.compare(_report(55.0), _report(60.0), "ng1", is_local=False)
    assert same.status is Status.PASS
    (none,) = fabric.compare(_report(), None, "ng1", is_local=False)
    assert none.status is Status.NOT_APPLICABLE
    # A type's line rate is that of EC2.
    assert floor_of(CATALOGUE["trn1.2xlarge"]) is None
    for name in (name for name, kind in CATALOGUE.items() if kind.has_efa):
        said = re.fullmatch(r"(?:(\d+)x )?(\d+) Gigabit", INSTANCE_TYPES[name]["NetworkInfo"]["NetworkPerformance"])
        assert said, name
        assert LINE_RATES[name] == int(said[1] or 1) * int(said[2]), name
