"""Request to stop a training process soon: SIGTERM, or the approaching end of its Capacity Block.

Kubernetes sends SIGTERM when a pod is evicted, its node is drained or its job is cancelled, and SIGKILL when the grace
period is over: enough for one checkpoint. The process asks between steps; nothing is cut off within one.
"""

import os
import signal
import time
from datetime import datetime

CAPACITY_ENDS = "TRN_CAPACITY_ENDS"
"""Environment variable: when the Capacity Block ends, RFC 3339 (``2026-12-01T11:30:00Z``)."""

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
    time."""

    def __init__(self) -> None:
        self._signalled = False
        self._ends = float("inf")
        if text := os.environ.get(CAPACITY_ENDS):
            try:
                # Python 3.10 does not read "Z".
                self._ends = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
            except ValueError:
                raise ValueError(f"{CAPACITY_ENDS} must be a time such as 2026-12-01T11:30:00Z, not {text!r}") from None
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self._signalled = True

    @property
    def reason(self) -> str:
        """Reason to stop, in a few words; empty while there is none."""
        if self._signalled:
            return "SIGTERM"
        if time.time() > self._ends - float(os.environ.get(CAPACITY_MARGIN) or MARGIN_SECONDS):
            return f"the Capacity Block ends at {os.environ[CAPACITY_ENDS]}"
        return ""
