"""The fabric test as a gang over gloo: a sound one, and one with an injected fault, which must be named."""

import json

import pytest

FLOOR, STORAGE = {"gigabytes_per_second": 0.05, "latency_seconds": 0.15}, {"writeMBs": 0.1, "filesPerSecond": 1}
SMALL = ("--ranks-per-node", 1, "--max-bytes", 2 << 20, "--probe-bytes", 1 << 20, "--reports", "reports")
QUICK = ("--silent-seconds", 5, "--stage-seconds", 20)


def run_fabric(gang, *arguments, code, ranks=4):
    """Run the gang; return the report that one of its ranks printed."""
    expected = json.dumps({"floor": FLOOR, "storage": STORAGE})
    words = ("--expect", expected, *SMALL, *QUICK, *arguments)
    ended = gang("trainium_workloads.fabric", *words, ranks=ranks, code=None, seconds=240)
    [line] = [line for out in ended.out for line in out.splitlines() if line.startswith('{"fabric":')]
    assert {each for each in ended.codes if each >= 0} == {code}, ended
    return json.loads(line)["fabric"]


def failures(report):
    return {(each["check"], each["node"]) for each in report["findings"] if not each["ok"]}


def test_slow_node_is_named_and_the_last_good_report_is_kept(gang, tmp_path):
    good = run_fabric(gang, code=0)
    assert failures(good) == set()
    assert {each["operation"] for each in good["collectives"]} == {"all-reduce", "all-gather", "reduce-scatter"}
    slow = run_fabric(gang, "--inject", "slow:2", code=78)
    assert failures(slow) == {("floor", None), ("slow-node", 2)}
    assert slow["before"]["time"] == good["time"]
    assert len(slow["pairs"]) == 6
    written = [json.loads(path.read_text()) for path in (tmp_path / "reports" / "gang").glob("*.json")]
    assert sorted(each["ok"] for each in written) == [False, True]


def test_rank_without_its_device_reports_it(gang):
    expected = '{"devices": 8, "deviceTool": "nvidia-smi"}'
    found = run_fabric(gang, "--backend", "cuda", "--expect", expected, code=78, ranks=1)
    assert failures(found) == {("devices", 0), ("error", 0)}
    assert "local rank 0 has no GPU" in found["findings"][-1]["detail"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_dead_rank_is_named(gang, rank):
    assert failures(run_fabric(gang, "--inject", f"dead:{rank}", code=78, ranks=3)) == {("dead-rank", rank)}
