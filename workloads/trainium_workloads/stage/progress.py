"""Progress of a copy: one JSON object a line on standard output, for readers of the log."""

import json
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import TextIO

INTERVAL_SECONDS = 2.0
_RATE_SECONDS = 20.0
"""Period of the average rate."""


class Progress:
    """Counter of all threads' work, which prints a line every two seconds while it is open.

    A line: ``{"stage": "copying", "bytes": 3, "total_bytes": 9, "files": 0, "total_files": 1, "rate": 2, "time": 1}``,
    with ``rate`` in bytes a second and ``time`` in seconds since 1970. ``stage`` is ``listing``, ``waiting``,
    ``copying``, ``unpacking``, and at the end ``complete``, ``unchanged``, ``failed`` or ``interrupted`` with a
    ``message``.
    """

    def __init__(self, out: TextIO | None = None, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._out = out or sys.stdout
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._stage = "listing"
        self._done_bytes = self._done_files = 0
        self._total_bytes = self._total_files = 0
        self._moved = 0
        self._points: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell_again_and_again, daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, stage: str, *, total_bytes: int = 0, total_files: int = 0, bytes: int = 0, files: int = 0) -> None:
        """Begin a new stage, of which some may be done already."""
        with self._lock:
            self._stage = stage
            self._total_bytes, self._total_files = total_bytes, total_files
            self._done_bytes, self._done_files = bytes, files
        self.tell()

    def add(self, bytes: int) -> None:
        """Add a number of bytes; less than 0 where some are done again."""
        with self._lock:
            self._done_bytes += bytes
            self._moved += max(bytes, 0)

    def finish_file(self) -> None:
        """Count one more complete file."""
        with self._lock:
            self._done_files += 1

    def tell(self, message: str = "", stage: str = "") -> None:
        """Write a line now.

        Args:
            message: for people.
            stage: of this line alone.
        """
        now = time.monotonic()
        with self._lock:
            self._points.append((now, self._moved))
            while len(self._points) > 2 and now - self._points[0][0] > _RATE_SECONDS:
                self._points.popleft()
            began, before = self._points[0]
            line = {
                "stage": stage or self._stage,
                "bytes": self._done_bytes,
                "total_bytes": self._total_bytes,
                "files": self._done_files,
                "total_files": self._total_files,
                "rate": round((self._moved - before) / max(now - began, 0.1)),
                "time": round(time.time(), 1),
                **({"message": message} if message else {}),
            }
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()

    def _tell_again_and_again(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self.tell()
