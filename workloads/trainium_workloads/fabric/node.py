"""Checks of one node: devices, EFA interfaces, lockable memory, the shared volume. Standard library alone."""

import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

TOOL_SECONDS = 60.0
"""Longest run of a tool that lists devices: a broken driver hangs."""
BENCHMARK_SECONDS = 1200.0
"""Longest run of nccom-test or of nccl-tests, for one collective."""
_PLACES = ("/opt/aws/neuron/bin", "/opt/amazon/efa/bin", "/usr/bin", "/usr/local/bin")
_PROBE_FILES = 200
"""Empty files of the metadata test."""
_NCCL = ("-b", "8", "-e", "1G", "-f", "8", "-g", "{devices}")
_NCCOM = ("nccom-test", "-r", "{devices}", "-b", "8", "-e", "1GB", "-f", "8", "-d", "fp32")
TOOLS: Mapping[str, Mapping[str, Sequence[str]]] = {
    # Neuron documentation, nccom-test user guide; README of nccl-tests: one process with all GPUs of the node.
    "nccom-test": {
        "all-reduce": (*_NCCOM, "allr"),
        "all-gather": (*_NCCOM, "allg"),
        "reduce-scatter": (*_NCCOM, "redsct"),
    },
    "nccl-tests": {
        "all-reduce": ("all_reduce_perf", *_NCCL),
        "all-gather": ("all_gather_perf", *_NCCL),
        "reduce-scatter": ("reduce_scatter_perf", *_NCCL),
    },
}
"""Benchmarks of a node's own links, by name: operation to command."""


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    """Kind of the check, by which ``trn fabric`` knows the remedy: ``devices``, ``efa``, ``memlock``, …"""
    ok: bool
    detail: str
    """Finding in words, with the expectation where it differs."""
    node: int | None = None
    """Number of the node; None for the gang."""


class ToolError(Exception):
    """A tool that is missing, fails, or does not end; the message has its name."""


def node_name() -> str:
    """Return the name of the pod, which is its host name."""
    return os.environ.get("HOSTNAME") or socket.gethostname()


def inspect(expected: Mapping[str, Any], number: int) -> list[Finding]:
    """Return the findings about the hardware of a node. Expected are ``devices`` with ``deviceTool`` (``neuron-ls``,
    ``nvidia-smi``), ``efa`` (interfaces), ``memlock`` (whether memory must be lockable without limit); a missing key
    leaves the check out."""
    found = []
    for check, tool in (("devices", expected.get("deviceTool", "")), ("efa", "fi_info")):
        wanted = expected.get(check)
        if not wanted:
            continue
        try:
            has = count(tool)
        except ToolError as error:
            found.append(Finding(check, False, str(error), number))
            continue
        said = f"{tool} shows {has}" + ("" if has == wanted else f", must be {wanted}")
        found.append(Finding(check, has == wanted, said, number))
    if expected.get("memlock"):
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        free = limit == resource.RLIM_INFINITY
        said = "unlimited" if free else f"{limit / 1024:.0f} KiB, must be unlimited for EFA"
        found.append(Finding("memlock", free, f"lockable memory: {said}", number))
    return found


def count(tool: str) -> int:
    """Return the number of devices that ``neuron-ls`` or ``nvidia-smi`` lists, or of EFA interfaces that ``fi_info``
    does: each interface has a domain ``<device>-rdm``. ToolError: the tool cannot be run, or prints no list."""
    if tool == "nvidia-smi":
        return len(re.findall(r"^GPU \d+:", run_tool([tool, "-L"]), re.MULTILINE))
    if tool == "fi_info":
        domains = re.findall(r"^\s*domain:\s*(\S+)-rdm\s*$", run_tool([tool, "-p", "efa"]), re.MULTILINE)
        return len(set(domains))
    text = run_tool([tool, "--json-output"])
    try:
        return len(list(json.loads(text)))
    except (ValueError, TypeError):
        raise ToolError(f"{tool} printed no list of devices: {_first_line(text)}") from None


def run_tool(command: Sequence[str], seconds: float = TOOL_SECONDS) -> str:
    """Return the standard output of a program. ToolError: it is missing, failed, or not done in time."""
    tool = command[0]
    path = shutil.which(tool) or shutil.which(tool, path=os.pathsep.join(_PLACES))
    if path is None:
        raise ToolError(f"{tool} is not in the image")
    words = [path, *command[1:]]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        raise ToolError(f"{tool} did not end within {seconds:.0f} s") from None
    except OSError as error:
        raise ToolError(f"{tool} cannot be run: {error}") from None
    if ended.returncode:
        raise ToolError(f"{tool} failed ({ended.returncode}): {_first_line(ended.stderr or ended.stdout)}")
    return ended.stdout


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "no output")


def probe_storage(directory: Path, size: int, name: str) -> dict[str, float]:
    """Return throughput and metadata rate of a directory on the shared volume: ``writeMBs``, ``readMBs`` (10^6 bytes a
    second) for ``size`` bytes and ``filesPerSecond`` (files made, looked at and deleted). Nothing of the probe
    stays."""
    place = directory / f".probe-{name}"
    place.mkdir(parents=True)
    try:
        block, file, blocks = os.urandom(1 << 20), place / "data", max(size >> 20, 1)
        times = [time.monotonic()]
        with file.open("wb") as out:
            for _ in range(blocks):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
            os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # or reading would measure memory
        times.append(time.monotonic())
        with file.open("rb") as back:
            while back.read(1 << 20):
                pass
        times.append(time.monotonic())
        files = [place / str(number) for number in range(_PROBE_FILES)]
        for each in files:
            each.touch()
        for each in files:
            each.stat()
            each.unlink()
        times.append(time.monotonic())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    write, read, meta = (after - before for before, after in pairwise(times))
    megabytes = blocks * (1 << 20) / 1e6
    return {"writeMBs": megabytes / write, "readMBs": megabytes / read, "filesPerSecond": _PROBE_FILES / meta}


def mount_type(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system mounted at a path (``lustre``); empty where nothing is mounted there."""
    rows = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((row[2] for row in rows if len(row) > 2 and row[1] == str(path)), "")


def run_benchmark(tool: str, devices: int) -> dict[str, float]:
    """Return the bus bandwidth within this node, GB/s at the largest size, by operation. ToolError: one cannot be run,
    fails, prints no table, or reports wrong results."""
    found = {}
    for operation, command in TOOLS[tool].items():
        words = [word.format(devices=devices) for word in command]
        rows = benchmark_rows(run_tool(words, BENCHMARK_SECONDS), words[0])
        found[operation] = rows[max(rows)]
    return found


def benchmark_rows(text: str, tool: str) -> dict[int, float]:
    """Return the table of nccom-test or nccl-tests: size in bytes to bus bandwidth in GB/s (out of place). ToolError:
    there is no table, or nccl-tests counted wrong results."""
    rows: dict[int, float] = {}
    head: list[str] = []
    for line in text.splitlines():
        words = line.strip("# ").split()
        if words and words[0].startswith("size"):
            head = [word.removesuffix("(GB/s)") for word in words]
        elif words and "busbw" in head and words[0].isdecimal() and len(words) >= len(head):
            rows[int(words[0])] = float(words[head.index("busbw")])
            wrong = words[head.index("#wrong")] if "#wrong" in head else "0"
            if wrong not in ("0", "N/A"):
                raise ToolError(f"{tool} counts {wrong} wrong results at {words[0]} bytes")
    if not rows:
        raise ToolError(f"{tool} printed no table: {_first_line(text)}")
    return rows


def compare_nodes(figures: Mapping[int, Mapping[str, float]], tool: str) -> list[Finding]:
    """Return a finding for each node's benchmark (:func:`run_benchmark`): it must reach half of all nodes' median."""
    found = []
    for node, own in figures.items():
        slow = [x for x in own if own[x] < statistics.median(each[x] for each in figures.values()) / 2]
        said = ", ".join(f"{name} {value:.1f} GB/s" for name, value in own.items())
        less = f"; less than half of other nodes': {', '.join(slow)}" if slow else ""
        found.append(Finding("benchmark", not slow, f"{tool} within the node: {said}{less}", node))
    return found
