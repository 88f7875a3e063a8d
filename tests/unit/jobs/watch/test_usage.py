"""What neuron-monitor and nvidia-smi print, in the forms that they are documented in."""

import json
import subprocess

import pytest

from trainium_eks.jobs.watch.usage import Reader, neuron, script


def process(pid, cores, device, **errors):
    in_use = {core: {"neuroncore_utilization": busy, "flops": 1234567891011} for core, busy in cores.items()}
    report = {
        "neuroncore_counters": {"neuroncores_in_use": in_use, "error": ""},
        "execution_stats": {"error_summary": {"generic": 0, **errors}, "error": ""},
        "memory_used": {"neuron_runtime_used_bytes": {"host": 6997643264, "neuron_device": device}, "error": ""},
    }
    return {"pid": pid, "error": "", "report": report}


DEVICES = [
    {"neuron_device_index": 0, "mem_ecc_corrected": 5, "mem_ecc_uncorrected": 0},
    {"neuron_device_index": 1, "mem_ecc_uncorrected": 1, "sram_ecc_uncorrected": 2},
]
USAGE = {"user": 32.7, "system": 22.8, "idle": 40.0}
HARDWARE = {"neuron_device_count": 16, "neuron_device_memory_size": 34359738368, "neuroncore_per_device_count": 2}


def report(*processes):
    system = {
        "neuron_hw_counters": {"neuron_devices": DEVICES, "error": ""},
        "vcpu_usage": {"average_usage": USAGE, "error": ""},
        "memory_info": {"memory_total_bytes": 512 * 1024**3, "memory_used_bytes": 64 * 1024**3, "error": ""},
    }
    return {
        "neuron_runtime_data": list(processes),
        "system_data": system,
        # What a pod may not ask the instance metadata service is an error here, and no trouble.
        "instance_info": {"instance_id": "", "error": "cannot reach the metadata service"},
        "neuron_hardware_info": {**HARDWARE, "error": ""},
    }


def test_a_node_is_the_sum_of_its_processes_and_gpus_are_read_line_by_line():
    found = neuron(report(process(1, {"0": 90.0, "1": 50.0}, 2**30), process(2, {"1": 60.0, "2": 40.0}, 2**31)))
    assert found.cores == {0: 90.0, 1: 100.0, 2: 40.0}
    assert (found.device_bytes, found.device_total_bytes) == (3 * 2**30, 512 * 1024**3)
    assert (found.host_percent, found.host_bytes, found.host_total_bytes) == (60.0, 64 * 1024**3, 512 * 1024**3)
    assert found.mean == pytest.approx(76.67, abs=0.01)
    assert neuron(report(process(1, {}, 0, hardware=2, numerical=1))).errors == 6
    found = neuron(report())
    assert (found.cores, found.mean, found.device_bytes, found.trouble, found.errors) == ({}, None, 0, "", 3)
    broken = neuron(report() | {"neuron_hardware_info": {"error": "no Neuron driver"}})
    assert (broken.trouble, broken.device_total_bytes) == ("no Neuron driver", None)
    reader = Reader()
    reader.line(json.dumps(report(process(1, {"0": 10.0}, 0))))
    before = reader.last
    for line in ("", "neuron-monitor starts", "{", "[]", '{"neuron_runtime_data": 3}', "a, b, c, d"):
        reader.line(line)
        assert reader.last is before
    for line in ("0, 97, 61234, 81559", "1, 3, 100, 81559", "0, 50, 61234, 81559"):
        reader.line(line)
    assert (reader.last.unit, reader.last.device_bytes) == ("gpu", 61334 * 1024**2)
    told = reader.last.to_json()
    assert (told["busyPercent"], told["deviceTotalBytes"]) == ({"0": 50.0, "1": 3.0}, 2 * 81559 * 1024**2)


def test_usage_script_asks_the_installed_tool(tmp_path):
    def run(**tools):
        for name, text in tools.items():
            (file := tmp_path / name.replace("_", "-")).write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        return subprocess.run(script(), env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    for name in ("mktemp", "cat"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    assert run().returncode == 3
    asked = run(nvidia_smi='echo "$@"').stdout
    assert asked.startswith("--query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv")
    config = json.loads(run(neuron_monitor='[ "$1" = -c ] && cat "$2"').stdout)
    assert config["period"] == "1s"
    [runtimes] = config["neuron_runtimes"]
    assert {each["type"] for each in runtimes["metrics"]} == process(1, {}, 0)["report"].keys()
    assert {each["type"] for each in config["system_metrics"]} == {"vcpu_usage", "memory_info", "neuron_hw_counters"}
