"""Waiting for what comes about by itself, however busy the machine is."""

import time
from collections.abc import Callable

SECONDS = 300.0
"""Only what hangs takes that long."""


def until(done: Callable[[], object], what: str | Callable[[], object] = "it", seconds: float = SECONDS) -> None:
    """Waits until something is so.

    Args:
        done: whether it is; looked at ten times a second.
        what: that, in words, or what is the case instead: for the message.
        seconds: how long at most.
    """
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what() if callable(what) else what}"
        time.sleep(0.1)
