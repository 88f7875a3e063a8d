"""A wait with a time limit: for an object, for a release's pods, for the answer of a program."""

import threading
import time
from collections.abc import Callable, Sequence

import psutil

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.processes import Running
from trainium_eks.local.paths import Paths

SHORTEST_SECONDS = 0.05
"""Shortest interval between two looks; it grows."""
LONGEST_SECONDS = 0.5
QUIET_SECONDS = 2.0
"""Length of a wait that is not worth a word."""
READY_SECONDS = 300.0
"""Time limit for a program to answer: it takes seconds on an idle machine."""


class Patience:
    """The time limit of a wait, which all its steps share.

    ``waiting`` is called with the reason of a longer wait, once for each reason. The wait is given up when ``stopping``
    is set.
    """

    def __init__(self, seconds: float, waiting: Callable[[str], None], stopping: threading.Event | None = None) -> None:
        self._seconds = seconds
        self._waiting = waiting
        self._stopping = stopping or threading.Event()
        self._started = self._looked = time.monotonic()
        self._deadline = self._started + seconds
        self._pause = SHORTEST_SECONDS
        self._told = ""

    def renew(self) -> None:
        """Let the time begin anew, after progress."""
        self._deadline = time.monotonic() + self._seconds

    def wait(self, reason: str) -> bool:
        """Pause before the next look; return False when the time is over."""
        now = time.monotonic()
        if now >= self._deadline or self._stopping.is_set():
            return False
        if now - self._started > QUIET_SECONDS and reason != self._told:
            self._told = reason
            self._waiting(reason)
        # A thousand nodes are 5 MB: looking must not take the API server's time from making them.
        self._stopping.wait(min(max(self._pause, 3 * (now - self._looked)), self._deadline - now))
        self._pause = min(self._pause * 1.3, LONGEST_SECONDS)
        self._looked = time.monotonic()
        return True

    def describe_end(self, what: str) -> str:
        """Return how the wait ended, for a message."""
        spent = time.monotonic() - self._started
        return f"{what} when everything was stopped" if self._stopping.is_set() else f"{what} after {spent:.0f} s"


def await_answers(
    paths: Paths, title: str, started: Sequence[Running], not_ready: Callable[[], str], waiting: Callable[[str], None]
) -> None:
    """Wait until started processes answer: until there is no reason to wait.

    The error has the end of the logs: a process ends, or they do not answer in time.
    """
    patience = Patience(READY_SECONDS, waiting)
    while waits_for := not_ready():
        for each in started:
            if processes.exit_code(each) is not None or not psutil.pid_exists(each.pid):
                raise LocalCloudError(f"{each.name} has ended:\n{processes.last_lines(paths, each.name)}")
        if not patience.wait(waits_for):
            logs = "\n".join(f"{each.name}:\n{processes.last_lines(paths, each.name)}" for each in started)
            raise LocalCloudError(f"{title} does not answer after {READY_SECONDS:.0f} s: {waits_for}\n{logs}")
