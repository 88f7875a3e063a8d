"""Waiting for what comes about by itself, however busy the machine is."""

import time
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 300.0
"""Only what hangs takes that long."""


def until(done, what="it", seconds=SECONDS):
    """Waits until something is so.

    Args:
        done: whether it is, or what is waited for; looked at often at first, then ten times a second.
        what: that, in words, or what is the case instead: for the message.
        seconds: how long at most.

    Returns:
        What was found.
    """
    deadline, pause = time.monotonic() + seconds, 0.01
    while not (found := done()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what() if callable(what) else what}"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return found


def out_of_time(attempt, told):
    """What is told by something whose time must run out.

    It gets little, so that the test is short, and more where the machine has not brought it to the place by then.

    Args:
        attempt: called with seconds; what is told after that.
        told: is in it when the place was reached.
    """
    found: tuple[str, ...] = ()
    for seconds in (1, 4, 16, 64):
        found = attempt(seconds)
        if any(told in each for each in found):
            break
    return found
