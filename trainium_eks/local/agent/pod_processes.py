"""A process of a pod: a child of the agent."""

import contextlib
import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """A child of this process."""

    pid: int

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs; reap it when it has ended."""
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; no error when the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
