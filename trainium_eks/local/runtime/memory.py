"""The memory of a container's processes, and their end: read from ``/proc``, where it exists.

Control groups would do it, but belong to root. Nor would a limit on the address space: PyTorch reserves far more than
it uses. So the memory in use is read again and again, the more often the closer it is to the limit.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from trainium_eks.local import linux
from trainium_eks.local.runtime.sandbox import PROCESS_LIMIT
from trainium_eks.local.spec.plan import PodPlan

SLOW_SECONDS = 2.0
FAST_SECONDS = 0.25
_PROC = Path("/proc")


class Watch:
    """The watch over the memory and processes of a pod's containers."""

    def __init__(self, plan: PodPlan) -> None:
        self._limits = {each.name: each.memory_bytes for each in plan.all_containers}
        self._next = 0.0

    @property
    def next_time(self) -> float:
        """Return the time of the next look."""
        return self._next

    def too_much(self, pids: Mapping[str, int], now: float) -> dict[str, tuple[str, str]]:
        """Return the containers above their limits, with reason and message."""
        found = {}
        share = 0.0
        for name, pid in pids.items():
            processes = tree(pid)
            if len(processes) > PROCESS_LIMIT:
                found[name] = ("Error", f"more than {PROCESS_LIMIT} processes")
            limit = self._limits[name]
            used = sum(map(_resident, processes)) if limit else 0
            if limit and used > limit:
                # Shared memory was counted for each process; the exact figure is slow to read.
                used = sum(map(_proportional, processes))
            if limit and used > limit:
                found[name] = ("OOMKilled", f"{used // 2**20} MiB in use, and the limit is {limit // 2**20} MiB")
            share = max(share, used / limit if limit else 0.0)
        self._next = now + (FAST_SECONDS if share > 0.5 else SLOW_SECONDS)
        return found


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants; in a process namespace, the first process adopts orphans."""
    if not linux.AVAILABLE:
        return _tree_by_ps(pid)
    found, todo = [], [pid]
    while todo:
        each = todo.pop()
        found.append(each)
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                todo += map(int, (_PROC / str(each) / "task" / thread / "children").read_bytes().split())
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants, where no process namespace does it."""
    for each in tree(pid):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def kill_descendants(pid: int) -> None:
    """Kill all descendants of a process, again until none is left."""
    for _ in range(5):
        descendants = [each for each in tree(pid) if each != pid]
        if not descendants:
            return
        for each in descendants:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)


def _tree_by_ps(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False)
    children: dict[int, list[int]] = {}
    for line in done.stdout.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found, todo = [], [pid]
    while todo:
        each = todo.pop()
        found.append(each)
        todo += children.get(each, ())
    return found


def _resident(pid: int) -> int:
    """Return the bytes that a process holds itself: not files that it has mapped, which can be read again."""
    return _sum(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def _proportional(pid: int) -> int:
    """Return the same bytes, with shared memory divided by the number of its users."""
    return _sum(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))


def _sum(file: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(file, "rb") as opened:
            return sum(int(line.split()[1]) * 1024 for line in opened if line.startswith(names))
    except OSError:
        return 0
