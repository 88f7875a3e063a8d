"""Progress without a flood."""

import threading
import time
from collections.abc import Callable

_INTERVAL_SECONDS = 1.0


class Throttle:
    """A filter that passes on at most one message a second, from any thread; the others are dropped."""

    def __init__(self, progress: Callable[[str], None], interval_seconds: float = _INTERVAL_SECONDS) -> None:
        self._progress = progress
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._next = time.monotonic() + interval_seconds

    def __call__(self, message: str) -> None:
        """Report a message that the next one makes out of date."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._say(message)

    def now(self, message: str) -> None:
        """Report a message that must not be lost."""
        with self._lock:
            self._say(message)

    def _say(self, message: str) -> None:
        self._progress(message)
        self._next = time.monotonic() + self._interval_seconds
