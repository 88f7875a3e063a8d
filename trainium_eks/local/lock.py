"""The lock of a stack's local cloud: one command at a time changes it."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from filelock import FileLock, Timeout

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane.processes import writing
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json


@contextmanager
def locked(paths: Paths, doing: str, *, wait_seconds: float = 5.0) -> Iterator[None]:
    """Hold the stack's lock; the system releases it when the process ends, even by a kill.

    Creates the stack's directory. The holder of the lock may remove the directory with it.

    Another process that finds the lock held gives up after the wait, and says what the holder is doing.
    """
    lock = _taken(paths, doing, wait_seconds)
    try:
        yield
    finally:
        lock.release()


def _taken(paths: Paths, doing: str, wait_seconds: float) -> FileLock:
    def sign(descriptor: int) -> None:
        holder = {"pid": os.getpid(), "doing": doing, "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)

    # Without `fallback_to_soft`: a lock that is a file's existence would outlive a holder that is killed.
    lock = FileLock(paths.lock, timeout=wait_seconds, mode=0o600, fallback_to_soft=False, on_acquired=sign)
    while True:
        with writing(paths.lock):
            try:
                paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock.acquire()
                return lock
            except FileNotFoundError:
                continue  # `down` removed the directory between the two calls: try again
            except Timeout:
                raise LocalCloudError(_held(paths)) from None


def _held(paths: Paths) -> str:
    advice = "Wait until it is done, or stop it; the next `trn local up` completes what it left unfinished."
    try:
        holder = parse_json(paths.lock.read_bytes())
        since = datetime.fromtimestamp(holder["since"]).strftime("%H:%M:%S")
        seconds = time.time() - holder["since"]
        who = f"`{holder['doing']}` (process {holder['pid']}) since {since}, {seconds:.0f} s ago"
    except (OSError, *MISSHAPEN):
        who = "another process"  # it has just taken the lock and not yet written its name
    return f"The local cloud in {paths.root} is being changed by {who}. {advice}"
