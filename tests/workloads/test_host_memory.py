"""Memory of the host that a copy of a training's state may take."""

from types import SimpleNamespace

import pytest
from trainium_workloads.training import host_memory
from trainium_workloads.training.host_memory import free_bytes, shortage

CURRENT = {
    "memory.max": "6000",
    "memory.current": "5000",
    "memory.stat": "anon 4000\ninactive_file 300\nactive_file 50",
}
OLD = {"limit_in_bytes": "7000", "usage_in_bytes": "5000", "stat": "total_inactive_file 10\ntotal_active_file 5"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8 * 1024),
        (CURRENT, 1350),
        ({**CURRENT, "memory.max": "max"}, 8 * 1024),
        ({**CURRENT, "memory.max": "100000"}, 8 * 1024),
        ({f"memory/memory.{name}": text for name, text in OLD.items()}, 2015),
    ],
)
def test_free_memory_is_bounded_by_container_and_host(tmp_path, files, free):
    (tmp_path / "memory").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 16 kB\nMemAvailable:  8 kB\nHugePages_Total: 0\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert free_bytes(tmp_path, tmp_path) == free
    assert free_bytes(tmp_path / "nowhere", tmp_path / "nowhere") == float("inf")


def test_the_ranks_of_a_host_share_its_memory(monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10e9)
    for other, said in (("here", "here has 10 GB of free memory, and a copy of the state needs 9 GB"), ("there", "")):
        monkeypatch.setattr(host_memory.socket, "gethostname", lambda: "here")
        backend = SimpleNamespace(gather=lambda mine, other=other: [mine, (other, 4e9, 11e9)])
        assert shortage(backend, 5e9) == said
