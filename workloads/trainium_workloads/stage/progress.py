"""Progress of a copy: one JSON object a line on standard output, for readers of the log."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable

_SECONDS = 2.0
_RATE_LINES = 10
"""Lines over which the rate is an average."""


class Progress:
    """Counter of all threads' work, which prints a line every two seconds while it is open.

    A line: ``{"stage": "copying", "bytes": 3, "total_bytes": 9, "files": 0, "total_files": 1, "rate": 2, "time": 1}``,
    with ``rate`` in bytes a second and ``time`` in seconds since 1970. ``stage`` is ``listing``, ``waiting``,
    ``copying``, ``unpacking``, and at the end ``complete``, ``unchanged``, ``failed`` or ``interrupted`` with a
    ``message``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell_again_and_again, daemon=True)
        self.begin("listing")

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, stage: str, all_bytes: int = 0, all_files: int = 0, partial: Callable[[], int] = lambda: 0) -> None:
        """Begin a stage with all of its bytes and files; ``partial`` returns the bytes of files that are not done."""
        with self._lock:
            self._stage, self._partial = stage, partial
            self._all_bytes, self._all_files, self._bytes, self._files = all_bytes, all_files, 0, 0
            self._points: deque[tuple[float, int]] = deque(maxlen=_RATE_LINES)

    def add(self, size: int, files: int = 1) -> None:
        """Count complete files, of a number of bytes together."""
        with self._lock:
            self._files += files
            self._bytes += size

    def tell(self, message: str = "", stage: str = "") -> None:
        """Write a line now, with a message for people, and a stage of this line alone."""
        with self._lock:
            now, done = time.monotonic(), self._bytes + self._partial()
            self._points.append((now, done))
            began, before = self._points[0]
            line = {
                "stage": stage or self._stage,
                # A part's last block on the disk is longer than its bytes.
                "bytes": min(done, self._all_bytes or done),
                "total_bytes": self._all_bytes,
                "files": self._files,
                "total_files": self._all_files,
                "rate": max(0, round((done - before) / max(now - began, 0.1))),
                "time": round(time.time(), 1),
                **({"message": message} if message else {}),
            }
            print(json.dumps(line), flush=True)

    def _tell_again_and_again(self) -> None:
        while not self._ended.wait(_SECONDS):
            self.tell()
