"""Report of the test: judged figures, one JSON file on the volume, one JSON line and a table in the log."""

import argparse
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainium_workloads.fabric.collectives import CollectiveTime
from trainium_workloads.fabric.node import Finding, mount_type, node_name, probe_storage
from trainium_workloads.fabric.slow_node_search import Pair

SCHEMA_VERSION = 1
_VOLUME_SECONDS = 8.0
"""Longest wait for the volume at the end: launchers kill 30 s after SIGTERM."""


@dataclass
class Report:
    """Report of a gang, as far as it has come: a dead rank ends it at any time."""

    directory: Path
    """Directory of the reports of this label."""
    head: dict[str, Any]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    collectives: list[CollectiveTime] = field(default_factory=list)
    pairs: dict[Pair, float] = field(default_factory=dict)

    @staticmethod
    def begin(asked: argparse.Namespace, backend: str, ranks_per_node: int, expected: dict[str, Any]) -> "Report":
        """Return the empty report of a run."""
        head = {
            "schemaVersion": SCHEMA_VERSION,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "job": os.environ.get("TRN_JOB", ""),
            "label": asked.label,
            "instanceType": expected.get("instanceType", ""),
            "backend": backend,
            "tool": asked.tool,
            "ranksPerNode": ranks_per_node,
        }
        return Report(Path(asked.reports) / asked.label, head)

    def finish(self, findings: list[Finding]) -> bool:
        """Judge, print and write the report; return whether nothing failed. The printed line contains the last good
        report: a reader of the log may not reach the volume. A volume that hangs holds nothing up."""
        document = {
            **self.head,
            "ok": all(each.ok for each in findings),
            "nodes": self.nodes,
            "collectives": [_figures(each) for each in self.collectives],
            "pairs": [{"nodes": list(pair), "seconds": _rounded(seconds)} for pair, seconds in self.pairs.items()],
            "findings": [asdict(each) for each in findings],
        }
        before = _in_time(lambda: last_good(self.directory, self.head["tool"], len(self.nodes)))
        print(table(self.collectives, findings), flush=True)
        _print_line({**document, "before": None if isinstance(before, str) else before})
        wrong = _in_time(lambda: self._write(document))
        if isinstance(wrong, str):
            unwritten = Finding("mount", False, f"the report cannot be written to {self.directory}: {wrong}")
            document |= {"ok": False, "findings": [*document["findings"], asdict(unwritten)]}
            _print_line({**document, "before": None})
        return bool(document["ok"])

    def _write(self, document: dict[str, Any]) -> None:
        """Write the file, whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"{document['time'].replace(':', '')}-{document['job'] or 'run'}.json"
        part = self.directory / f".{name}.part"
        with part.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.directory / name)


def _print_line(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"fabric": document}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _in_time(work: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | str | None:
    """Return the result of work on the volume, or its fault in words; a hung volume is given up."""
    results: list[dict[str, Any] | str | None] = []

    def run() -> None:
        try:
            results.append(work())
        except OSError as error:
            results.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_VOLUME_SECONDS)
    return results[0] if results else f"no answer within {_VOLUME_SECONDS:.0f} s"


def last_good(directory: Path, tool: str | None, nodes: int) -> dict[str, Any] | None:
    """Return the newest report without a failure of the same tool and number of nodes; None without one."""
    for path in sorted(directory.glob("*.json"), reverse=True):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # another process' file: reports are whole
        if not isinstance(found, dict) or not found.get("ok"):
            continue
        if found.get("tool") == tool and len(found.get("nodes", ())) == nodes:
            return found
    return None


def _figures(each: CollectiveTime) -> dict[str, Any]:
    return {
        "operation": each.operation,
        "bytes": each.size,
        "seconds": _rounded(each.seconds),
        "gigabytesPerSecond": _rounded(each.bandwidth),
        "limitSeconds": None if each.limit is None else _rounded(each.limit),
        "ok": each.ok,
    }


def _rounded(value: float) -> float:
    """Return the value with four digits: lines of a log are not to grow long."""
    return float(f"{value:.4g}")


def floor_finding(operation: str, measured: list[CollectiveTime]) -> Finding:
    """Return the finding about one operation at all sizes."""
    own = [each for each in measured if each.operation == operation]
    largest = own[-1]
    slow = [each for each in own if not each.ok]
    if slow:
        told = "; ".join(
            f"{size_text(each.size)} takes {each.seconds * 1e3:.3g} ms, limit {(each.limit or 0) * 1e3:.3g} ms"
            for each in slow
        )
        return Finding("floor", False, f"{operation} is below its floor: {told}")
    judged = "" if largest.limit is not None else " (no floor for this type or for one node)"
    said = f"{largest.bandwidth:.3g} GB/s at {size_text(largest.size)}, {own[0].seconds * 1e6:.0f} µs at 8 B"
    return Finding("floor", True, f"{operation}: {said}{judged}")


def check_storage(
    expected: dict[str, Any], asked: argparse.Namespace, number: int, nodes: int
) -> tuple[list[Finding], dict[str, float]]:
    """Return a node's findings about the shared volume, to which all nodes write at the same time, and its figures.

    Expected are ``mount`` (path) and ``type`` of a mount that must be there, both optional; as floors ``writeMBs`` of
    all nodes together, of a node at most ``writeMBsPerNode``, and ``filesPerSecond`` of each.
    """
    findings = []
    if mount := expected.get("mount"):
        kind = mount_type(Path(mount))
        wanted = expected.get("type", kind)
        ok = bool(kind) and kind == wanted
        said = f"{kind} at {mount}" if kind else f"nothing is mounted at {mount}"
        findings.append(Finding("mount", ok, said if ok else f"{said}, must be {wanted or 'a volume'}", number))
        if not kind:
            return findings, {}
    try:
        figures = probe_storage(Path(asked.reports), asked.probe_bytes, f"{asked.label}-{node_name()}-{number}")
    except OSError as error:
        return [*findings, Finding("mount", False, f"{asked.reports} takes no files: {error}", number)], {}
    least = min(expected.get("writeMBs", 0.0) / nodes, expected.get("writeMBsPerNode", math.inf))
    ok = figures["writeMBs"] >= least and figures["filesPerSecond"] >= expected.get("filesPerSecond", 0.0)
    said = (
        f"writes {figures['writeMBs']:.0f} MB/s, reads {figures['readMBs']:.0f} MB/s, "
        f"{figures['filesPerSecond']:.0f} files/s"
    )
    floor = f", must be {least:.0f} MB/s and {expected.get('filesPerSecond', 0):.0f} files/s"
    findings.append(Finding("storage", ok, said if ok else said + floor, number))
    return findings, {name: _rounded(value) for name, value in figures.items()}


def size_text(size: int) -> str:
    """Return a size in bytes in words: ``16 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def table(measured: list[CollectiveTime], findings: list[Finding]) -> str:
    """Return the report for people."""
    lines = [f"{'collective':<16}{'size':>10}{'time ms':>12}{'GB/s':>10}{'limit ms':>12}"]
    for each in measured:
        limit = "-" if each.limit is None else f"{each.limit * 1e3:.3f}"
        figures = f"{each.seconds * 1e3:>12.3f}{each.bandwidth:>10.3f}{limit:>12}"
        row = f"{each.operation:<16}{size_text(each.size):>10}{figures}"
        lines.append(row if each.ok else f"{row}  SLOW")
    for found in findings:
        said_there = found.node is None or f"node {found.node} " in found.detail
        where = "" if said_there else f"node {found.node}: "
        lines.append(f"{'ok  ' if found.ok else 'FAIL'}  {where}{found.detail}")
    return "\n".join(lines if measured else lines[1:])
