"""Progress without a flood."""

import threading
import time
from collections.abc import Callable


class Throttle:
    """A filter that passes on at most one message a second, from any thread; the others are dropped."""

    def __init__(self, progress: Callable[[str], None], interval_seconds: float = 1.0) -> None:
        self._progress = progress
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._next = time.monotonic() + interval_seconds

    def __call__(self, message: str, *, is_passing: bool = True) -> None:
        """Report a message; one that the next one makes out of date may be dropped."""
        with self._lock:
            if not is_passing or time.monotonic() >= self._next:
                self._progress(message)
                self._next = time.monotonic() + self._interval_seconds

    def now(self, message: str) -> None:
        """Report a message that must not be lost."""
        self(message, is_passing=False)
