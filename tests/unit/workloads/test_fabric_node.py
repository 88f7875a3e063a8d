"""Checks of a node by the fabric test: what its tools print, the shared volume, and the judgement of pairs."""

import os
import resource
import stat
from pathlib import Path

import pytest
from trainium_workloads.fabric import node
from trainium_workloads.fabric.node import ToolError
from trainium_workloads.fabric.slow_node_search import judge, rounds

NEURON_LS = '[{"neuron_device": 0, "nc_count": 2}, {"neuron_device": 1, "nc_count": 2}]'
NVIDIA_SMI = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)"
FI_INFO = "".join(
    f"provider: efa\n    fabric: efa\n    domain: rdmap{card}s27-{kind}\n    version: 122.0\n"
    for card in (16, 32)
    for kind in ("rdm", "dgrm")
)
NCCOM = """
     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
           8               2     fp32          20           0.00           0.00
    33554432         8388608     fp32         768          43.69          65.50
Avg bus bandwidth:      32.7500GB/s
"""
NCCL = """
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    26.04    0.00    0.00      0    25.88    0.00    0.00      0
  1073741824     268435456     float     sum      -1   4411.7  243.39  425.93      0   4409.2  243.53  426.17      0
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A directory of programs, the first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def _program(directory, name, prints, code=0):
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_devices_and_interfaces_are_counted(tools):
    for name, prints in (("neuron-ls", NEURON_LS), ("nvidia-smi", NVIDIA_SMI), ("fi_info", FI_INFO)):
        _program(tools, name, prints)
    found = node.inspect({"devices": 2, "deviceTool": "neuron-ls", "efa": 2}, 0)
    assert [(each.check, each.ok) for each in found] == [("devices", True), ("efa", True)]
    found = node.inspect({"devices": 8, "deviceTool": "nvidia-smi", "efa": 32}, 3)
    assert [each.detail for each in found] == ["nvidia-smi shows 2, must be 8", "fi_info shows 2, must be 32"]
    assert {(each.ok, each.node) for each in found} == {(False, 3)}


def test_missing_or_failing_tool_is_a_finding(tools):
    _program(tools, "fi_info", "fi_getinfo: -61 (No data available)", 61)
    found = node.inspect({"devices": 16, "deviceTool": "neuron-ls", "efa": 8}, 0)
    assert [each.detail for each in found] == [
        "neuron-ls is not in the image",
        "fi_info failed (61): fi_getinfo: -61 (No data available)",
    ]


def test_limited_lockable_memory_is_a_finding(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    (limited,) = node.inspect({"memlock": True}, 0)
    assert (limited.ok, limited.detail) == (False, "lockable memory: 8192 KiB, must be unlimited for EFA")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert node.inspect({"memlock": True}, 0)[0].ok


def test_benchmark_tables_are_parsed():
    assert node.benchmark_rows(NCCOM, "nccom-test") == {8: 0.0, 33554432: 65.5}
    assert node.benchmark_rows(NCCL, "all_reduce_perf") == {8: 0.0, 1073741824: 425.93}
    with pytest.raises(ToolError, match="counts 7 wrong results at 8 bytes"):
        node.benchmark_rows(NCCL.replace("0.00      0    25", "0.00      7    25"), "all_reduce_perf")
    with pytest.raises(ToolError, match="printed no table: NRT init failed"):
        node.benchmark_rows("NRT init failed", "nccom-test")


def test_a_node_with_less_than_half_of_the_others_bandwidth_is_named():
    found = node.compare_nodes(
        {0: {"all-reduce": 60.0}, 1: {"all-reduce": 20.0}, 2: {"all-reduce": 58.0}}, "nccom-test"
    )
    assert [each.node for each in found if not each.ok] == [1]


def test_volume_is_probed_and_left_unchanged(tmp_path):
    found = node.probe_storage(tmp_path, 1 << 20, "a")
    assert all(value > 0 for value in found.values())
    assert [*tmp_path.iterdir()] == []
    mounts = tmp_path / "mounts"
    mounts.write_text("10.0.0.1@tcp:/abc /data lustre rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n")
    assert (node.mount_type(Path("/data"), mounts), node.mount_type(Path("/other"), mounts)) == ("lustre", "")


@pytest.mark.parametrize("nodes", [2, 5, 8, 17, 40])
def test_pair_rounds_are_disjoint_and_complete(nodes):
    found = rounds(nodes)
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in found)
    pairs = [pair for each in found for pair in each]
    assert len(pairs) == len({*pairs})
    if nodes <= 16:
        assert len(pairs) == nodes * (nodes - 1) // 2


def _judged(slow, nodes=5, links=()):
    pairs = [pair for each in rounds(nodes) for pair in each]
    seconds = {pair: 3.0 + sum(pair) if {*pair} & slow or pair in links else 0.1 for pair in pairs}
    return [found.detail for found in judge(seconds, 1.0, "abcde", "all-reduce of 1 GiB")]


def test_each_slow_node_is_named_and_shared_causes_are_reported():
    assert ["node 1 (b)" in text or "node 3 (d)" in text for text in _judged({1, 3})] == [True, True]
    (text,) = _judged({0})
    assert text.startswith("node 0 (a) is slow: all-reduce of 1 GiB takes it 4 s at best")
    assert "node 0 (a) or node 1 (b) is slow" in _judged({1}, 2)[0]
    assert "a cause that all share" in _judged({0, 1, 2, 3, 4})[0]
    assert "only between nodes 1 (b) and 2 (c)" in _judged(set(), links=((1, 2),))[0]
    assert "the whole gang together is slow" in _judged(set())[0]
