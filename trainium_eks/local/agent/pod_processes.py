"""A process of a pod, as the agent sees it: perhaps not its child, for the agent that started it may be gone."""

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
        """Whether it runs; a child that has ended is taken note of."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] == self.pid:
                return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return not _is_zombie(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; fine when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and its parent has not taken note: an adopted shim's parent may not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except FileNotFoundError:
        if not os.path.isdir("/proc/self"):
            done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
            return done.stdout.strip().startswith("Z")
        return True
