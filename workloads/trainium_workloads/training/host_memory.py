"""Free memory of the host, as far as the container of this process may take it."""

import math
import socket
from contextlib import suppress
from pathlib import Path

from trainium_workloads.training.backends import Backend

_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", ""),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
)
"""Files of control groups, version 2 and 1: limit, use, its kinds, and what their names begin with."""

_MOST = 0.8
"""Share of the free memory that is taken: programs and files of the node need some, too."""


def free_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how much memory this process may still take; infinite where the system does not say."""
    free = [math.inf]
    with suppress(OSError, KeyError, ValueError):
        free.append(1024 * int(_numbers(proc / "meminfo")["MemAvailable:"]))
    for limit, used, kinds, prefix in _GROUPS:
        # The other version, or no limit ("max").
        with suppress(OSError, KeyError, ValueError):
            most, taken = (int((groups / name).read_text()) for name in (limit, used))
            found = _numbers(groups / kinds)
            # Contents of files make room for others.
            files = sum(int(found[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
            free.append(most - taken + files)
    return min(free)


def shortage(backend: Backend, needed: int) -> str:
    """Return the shortage of memory for so many bytes in each rank of a host, in a clause; empty without one.
    Called in all ranks, in which ``needed`` may differ."""
    told = backend.gather((socket.gethostname(), needed, free_bytes()))
    for host in dict.fromkeys(name for name, _, _ in told):
        asked = sum(each for name, each, _ in told if name == host)
        free = min(each for name, _, each in told if name == host)
        if asked > _MOST * free:
            return f"{host} has {free / 1e9:.3g} GB of free memory, and a copy of the state needs {asked / 1e9:.3g} GB"
    return ""


def _numbers(file: Path) -> dict[str, str]:
    """Return the numbers in lines such as ``MemFree: 12 kB``, by their names."""
    return {name: number for name, number, *_ in map(str.split, file.read_text().splitlines())}
