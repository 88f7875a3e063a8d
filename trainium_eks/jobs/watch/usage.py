"""Usage: the load of a node's devices, as neuron-monitor and nvidia-smi report it. Pure functions.

Their forms: the Neuron Monitor User Guide (AWS Neuron documentation, "The JSON output format"), and ``nvidia-smi
--help-query-gpu``.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.kube.pod_text import REPORT_CHARACTERS, json_object, mapping, number, whole

QUERY = "index,utilization.gpu,memory.used,memory.total"
"""Fields in the query of nvidia-smi."""

PERIOD = "1s"
"""Period of neuron-monitor; its own default is 5 s."""

_MIB = 1024**2


@dataclass(frozen=True)
class NodeUsage:
    """One node at one moment."""

    cores: Mapping[int, float]
    """NeuronCore, or GPU, to its load: 0 to 100."""
    unit: str
    """``core`` or ``gpu``; ``process`` for pods of the local cloud, which have no devices."""
    device_bytes: float
    device_total_bytes: float | None
    """All of it; None where the tool does not report it."""
    host_percent: float | None = None
    """CPUs of the node that are busy, 0 to 100; None where the tool does not report it."""
    host_bytes: float | None = None
    host_total_bytes: float | None = None
    errors: int = 0
    trouble: str = ""
    """Message of the tool about data that it cannot read."""

    @property
    def mean(self) -> float | None:
        """Return the average load of its cores; None where none is in use."""
        return sum(self.cores.values()) / len(self.cores) if self.cores else None

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "unit": self.unit,
            "busyPercent": {str(core): round(busy, 1) for core, busy in sorted(self.cores.items())},
            "meanPercent": None if self.mean is None else round(self.mean, 1),
            "deviceBytes": round(self.device_bytes),
            "deviceTotalBytes": None if self.device_total_bytes is None else round(self.device_total_bytes),
            "hostPercent": None if self.host_percent is None else round(self.host_percent, 1),
            "hostBytes": None if self.host_bytes is None else round(self.host_bytes),
            "hostTotalBytes": None if self.host_total_bytes is None else round(self.host_total_bytes),
            "errors": self.errors,
            "trouble": self.trouble or None,
        }


def script() -> list[str]:
    """Return the command that is run in a rank's container: prints usage again and again, by either tool in the image.

    neuron-monitor reads its period from a file alone. Exit code 3: the image has neither tool.
    """
    metrics = ("neuroncore_counters", "memory_used", "execution_stats")
    config = {
        "period": PERIOD,
        "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": each} for each in metrics]}],
        "system_metrics": [{"type": each} for each in ("vcpu_usage", "memory_info", "neuron_hw_counters")],
    }
    lines = (
        "PATH=$PATH:/opt/aws/neuron/bin",
        "if command -v neuron-monitor >/dev/null; then",
        f'f=$(mktemp 2>/dev/null) && printf %s \'{json.dumps(config)}\' >"$f" && exec neuron-monitor -c "$f"',
        "exec neuron-monitor; fi",
        "if command -v nvidia-smi >/dev/null; then",
        f"exec nvidia-smi --query-gpu={QUERY} --format=csv,noheader,nounits -l 1; fi",
        "exit 3",
    )
    return ["/bin/sh", "-c", "\n".join(lines)]


class Reader:
    """Reader of the lines of one node, printed by either tool; :attr:`last` is the newest whole picture."""

    def __init__(self) -> None:
        self.last: NodeUsage | None = None
        self._gpus: dict[int, tuple[float, float, float]] = {}

    def line(self, text: str) -> None:
        """Read one line; lines of neither tool are left out."""
        if text.startswith("{"):
            report = json_object(text, REPORT_CHARACTERS)
            if report is not None and isinstance(report.get("neuron_runtime_data"), list):
                self.last = neuron(report)
            return
        row = _gpu_row(text)
        if row is None:
            return
        index, *rest = row
        self._gpus[int(index)] = (rest[0], rest[1], rest[2])
        self.last = _gpus(self._gpus)


def neuron(report: Mapping[str, Any]) -> NodeUsage:
    """Return the usage in a report of neuron-monitor. A core that several processes use is counted once, as busy as all
    make it."""
    cores: dict[int, float] = {}
    device, errors = 0.0, 0
    troubles: list[object] = []
    for process in map(mapping, report.get("neuron_runtime_data") or ()):
        found = mapping(process.get("report"))
        troubles.append(process.get("error"))
        for core, counters in _of(found, "neuroncore_counters", "neuroncores_in_use").items():
            if (index := whole(core)) is not None:
                busy = number(mapping(counters).get("neuroncore_utilization")) or 0.0
                cores[index] = min(cores.get(index, 0.0) + max(busy, 0.0), 100.0)
        device += number(_of(found, "memory_used", "neuron_runtime_used_bytes").get("neuron_device")) or 0.0
        errors += sum(whole(count) or 0 for count in _of(found, "execution_stats", "error_summary").values())
    hardware, system = mapping(report.get("neuron_hardware_info")), mapping(report.get("system_data"))
    troubles.append(hardware.get("error"))
    counted = mapping(system.get("neuron_hw_counters")).get("neuron_devices")
    for each in map(mapping, counted if isinstance(counted, list) else ()):
        errors += (whole(each.get("mem_ecc_uncorrected")) or 0) + (whole(each.get("sram_ecc_uncorrected")) or 0)
    devices, size = (number(hardware.get(f"neuron_device_{each}")) for each in ("count", "memory_size"))
    idle = number(_of(system, "vcpu_usage", "average_usage").get("idle"))
    memory = mapping(system.get("memory_info"))
    return NodeUsage(
        cores,
        "core",
        device,
        devices * size if devices and size else None,
        None if idle is None else 100.0 - idle,
        number(memory.get("memory_used_bytes")),
        number(memory.get("memory_total_bytes")),
        errors,
        next((each for each in troubles if each and isinstance(each, str)), ""),
    )


def _of(found: Mapping[str, Any], group: str, part: str) -> Mapping[str, Any]:
    return mapping(mapping(found.get(group)).get(part))


def _gpu_row(text: str) -> list[float] | None:
    """Return ``0, 97, 61234, 81559``: index, percent, MiB in use, MiB in all."""
    cells = text.split(",")
    if len(cells) != len(QUERY.split(",")):
        return None
    row = [found for cell in cells if (found := number(cell)) is not None and found >= 0]
    return row if len(row) == len(cells) else None


def _gpus(rows: Mapping[int, Iterable[float]]) -> NodeUsage:
    numbers = {index: [*row] for index, row in rows.items()}
    used, total = (sum(row[at] for row in numbers.values()) * _MIB for at in (1, 2))
    return NodeUsage({index: row[0] for index, row in numbers.items()}, "gpu", used, total)
