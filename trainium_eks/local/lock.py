"""One command at a time changes a stack's local cloud."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from trainium_eks.local.changes import LocalError
from trainium_eks.local.control_plane.processes import unwritable
from trainium_eks.local.paths import Paths

_LOOK_SECONDS = 0.05


@contextmanager
def locked(paths: Paths, doing: str, *, wait_seconds: float = 5.0) -> Iterator[None]:
    """Holds the stack's lock; the system lets go of it when the process ends, however it ends.

    Creates the stack's directory. The one who holds the lock may remove the directory with it.

    Args:
        paths: the stack's files.
        doing: the command, for whoever finds the lock held: ``trn local up --stack dev``.
        wait_seconds: how long to wait for another one, before giving up.

    Raises:
        LocalError: another process holds it (which, doing what, since when), or the directory cannot be written.
    """
    descriptor = _take(paths, time.monotonic() + wait_seconds)
    try:
        try:
            _write_holder(descriptor, doing)
        except OSError as error:
            raise unwritable(error, paths.lock) from error
        yield
    finally:
        os.close(descriptor)


def _take(paths: Paths, deadline: float) -> int:
    while True:
        try:
            paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # removed between the two: once more
        except OSError as error:
            raise unwritable(error, paths.lock) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(paths, descriptor):
                return descriptor
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(descriptor)
                raise LocalError(
                    f"{paths.lock} cannot be locked: {error.strerror} (a file system without flock?)"
                ) from error
            if time.monotonic() >= deadline:
                message = _held(paths, descriptor)
                os.close(descriptor)
                raise LocalError(message) from error
            time.sleep(_LOOK_SECONDS)
        os.close(descriptor)


def _is_still(paths: Paths, descriptor: int) -> bool:
    """Whether the file that was locked is the one that others find: ``down`` removes it with the directory."""
    try:
        there = os.stat(paths.lock)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _write_holder(descriptor: int, doing: str) -> None:
    holder = {"pid": os.getpid(), "doing": doing, "since": time.time()}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _held(paths: Paths, descriptor: int) -> str:
    advice = "Wait until it is done, or end it; what it left half done, the next `trn local up` completes."
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        since = datetime.fromtimestamp(holder["since"]).strftime("%H:%M:%S")
        seconds = time.time() - holder["since"]
        who = f"`{holder['doing']}` (process {holder['pid']}) since {since}, {seconds:.0f} s ago"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"  # it has only just taken it
    return f"The local cloud in {paths.root} is being changed by {who}. {advice}"
