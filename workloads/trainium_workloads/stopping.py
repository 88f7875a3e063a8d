"""Request to stop a training process soon: SIGTERM, or the approaching end of its Capacity Block.

Kubernetes sends SIGTERM when a pod is evicted, its node is drained or its job is cancelled, and SIGKILL when the grace
period is over: enough for one checkpoint. The process asks between steps; nothing is cut off within one.
"""

import os
import signal
import time
from datetime import datetime
from pathlib import Path

CAPACITY_ENDS = "TRN_CAPACITY_ENDS"
"""Environment variable: when the Capacity Block ends, RFC 3339 (``2026-12-01T11:30:00Z``)."""

CAPACITY_FILE = "TRN_CAPACITY_FILE"
"""Environment variable: a file with that end, which wins as soon as it is there. A block that is extended gets a new
end while trainings run, and the file follows."""

LOOK_SECONDS = 10.0
"""Time between two looks into the file."""

CAPACITY_MARGIN = "TRN_CAPACITY_MARGIN"
"""Environment variable: how long before that end to stop, seconds, where it is not :data:`MARGIN_SECONDS`."""

MARGIN_SECONDS = 2400.0
"""How long before that end to stop: EC2 begins to terminate instances 30 minutes before (EC2 user guide, Capacity
Blocks); ten more are for the checkpoint."""

EXIT_CODE = 143
"""Exit code of a process that stopped on request: 128 and the number of SIGTERM. It is no success, so the gang
starts again elsewhere."""


class Stopping:
    """Whether to stop. Made once, in the main thread, before the first step. ValueError: :data:`CAPACITY_ENDS` is no
    time.

    An end of which the margin had begun by then is that of an earlier block: from its drain on no pod starts on a
    block's nodes, so a gang that goes on in the next block reads it and trains on. A later end counts.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._margin = float(os.environ.get(CAPACITY_MARGIN) or MARGIN_SECONDS)
        self._started = time.time()
        self._ends, self._told = float("inf"), ""
        self._file, self._next_look = os.environ.get(CAPACITY_FILE, ""), 0.0
        if told := os.environ.get(CAPACITY_ENDS, ""):
            try:
                self._take(told)
            except ValueError:
                message = f"{CAPACITY_ENDS} must be a time such as 2026-12-01T11:30:00Z, not {told!r}"
                raise ValueError(message) from None
        signal.signal(signal.SIGTERM, self._on_signal)

    def _take(self, text: str) -> None:
        ends = _seconds(text)
        if ends - self._margin > self._started:
            self._ends, self._told = ends, text

    def _look(self) -> None:
        """Read the present end; a file that is not there, or holds no time, changes nothing."""
        if self._file and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            try:
                self._take(Path(self._file).read_text(encoding="utf-8").strip())
            except (OSError, ValueError):
                return

    def _on_signal(self, *_: object) -> None:
        self._signalled = True

    @property
    def reason(self) -> str:
        """Reason to stop, in a few words, or an empty string."""
        if self._signalled:
            return "SIGTERM"
        self._look()
        return f"the Capacity Block ends at {self._told}" if time.time() > self._ends - self._margin else ""


def _seconds(text: str) -> float:
    # Python 3.10 does not read "Z".
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
