"""The exporter of EFA's counters, on a made-up /sys."""

import runpy
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from components import _charts


@pytest.fixture(scope="module")
def exporter():
    path = _charts.CHARTS_DIRECTORY / "efa-exporter" / "files" / "exporter.py"
    return SimpleNamespace(**runpy.run_path(str(path)))


@pytest.fixture
def sysfs(tmp_path):
    """As on a trn1.32xlarge, with two of its interfaces, and a Mellanox one, which is not EFA."""
    for name, driver in (("rdmap16s27", "efa"), ("rdmap32s27", "efa"), ("mlx5_0", "mlx5_core")):
        home = tmp_path / "class" / "infiniband" / name
        counters = home / "ports" / "1" / "hw_counters"
        counters.mkdir(parents=True)
        for counter, value in (("tx_bytes", 2**40), ("rx_drops", 0), ("lifespan", 12)):
            (counters / counter).write_text(f"{value}\n")
        (tmp_path / "bus" / "pci" / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (home / "device").mkdir()
        (home / "device" / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return tmp_path


def test_each_existing_counter_of_an_interface_is_a_series(exporter, sysfs):
    lines = exporter.exposition(sysfs).splitlines()
    assert f'node_amazonefa_tx_bytes{{device="rdmap16s27",port="1"}} {2**40}' in lines
    assert 'node_amazonefa_rx_drops{device="rdmap32s27",port="1"} 0' in lines
    assert lines.count("# TYPE node_amazonefa_tx_bytes counter") == 1
    assert "# TYPE node_amazonefa_lifespan gauge" in lines
    assert not [line for line in lines if "mlx5_0" in line], "another vendor's"
    assert exporter.exposition(sysfs / "bus") == "", "a node without RDMA"
    file = sysfs / "class" / "infiniband" / "rdmap16s27" / "ports" / "1" / "hw_counters" / "tx_bytes"
    file.write_text("N/A\n")
    assert 'tx_bytes{device="rdmap16s27"' not in exporter.exposition(sysfs)
    assert 'tx_bytes{device="rdmap32s27"' in exporter.exposition(sysfs)


def test_exporter_answers_only_metrics_and_health_requests(exporter, sysfs):
    with exporter.serve(sysfs, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"node_amazonefa_tx_bytes" in answer.read()
        urllib.request.urlopen(f"{address}/healthz").close()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/")
        server.shutdown()
