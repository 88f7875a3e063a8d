"""The processes that a container started, found and killed where no process namespace does it."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from trainium_eks.local import linux

_PROC = Path("/proc")


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
