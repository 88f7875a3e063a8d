"""The processes that a container started, found and killed where no process namespace does it."""

import contextlib
import os
import signal


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    import psutil  # not by every shim: with namespaces this is never called

    with contextlib.suppress(psutil.Error):
        return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
    return [pid]


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
        descendants = tree(pid)[1:]
        if not descendants:
            return
        for each in descendants:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
