"""Waiting for what comes about by itself, however busy the machine is."""

import time

SECONDS = 300.0
"""Only what hangs takes that long."""


def until(done, what="it", seconds=SECONDS):
    """Waits until something is so, and returns what was found; the message has ``what`` or what it returns."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while not (found := done()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what() if callable(what) else what}"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return found


def out_of_time(attempt, told):
    """The output of an attempt whose time must run out after it has printed something. It gets few seconds, so that the
    test is short, and more where the machine has not brought it there by then."""
    found = ()
    for seconds in (1, 4, 16, 64):
        found = attempt(seconds)
        if any(told in each for each in found):
            break
    return found
