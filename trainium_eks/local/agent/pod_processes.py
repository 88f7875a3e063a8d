"""A process of a pod, as the agent sees it: it may be the child of an earlier agent."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A process that may not be this one's child."""

    pid: int

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs; reap it when it is an ended child."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] == self.pid:
                return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return not _is_zombie(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; no error when the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _is_zombie(pid: int) -> bool:
    """Return whether the process has ended but is not reaped yet: an adopted shim's parent may not reap it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except FileNotFoundError:
        if not os.path.isdir("/proc/self"):
            done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
            return done.stdout.strip().startswith("Z")
        return True
