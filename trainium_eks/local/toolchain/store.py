"""The per-user directory of binaries: one writer at a time, and only whole files."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

_LOOK_SECONDS = 0.25
SCRATCH = ".scratch-"
"""Prefix of directories that are in the making, or were left behind."""


class UnwritableError(Exception):
    """The error of a directory that cannot be written; the message says where and why."""


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raise an UnwritableError in place of an OSError, such as for a full disk."""
    try:
        yield
    except OSError as error:
        raise UnwritableError(f"{directory} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(directory: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """Lock a directory and yield a scratch directory in it; report a wait for the lock.

    The lock ends with its process, even by a kill; files left behind by a killed process are removed.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = _acquired(directory, progress)
    with lock:
        with writing(directory):
            for left in directory.glob(f"{SCRATCH}*"):
                shutil.rmtree(left, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(dir=directory, prefix=SCRATCH))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def keep(file: Path, destination: Path) -> None:
    """Move a finished file from the scratch directory to its place, where it appears whole or not at all."""
    with writing(destination.parent):
        destination.parent.mkdir(parents=True, exist_ok=True)
        # Without this a loss of power soon after could leave an empty file under the name.
        with file.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(file, destination)


def _acquired(directory: Path, progress: Callable[[str], None]) -> AcquireReturnProxy[FileLock]:
    def sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    file = directory / ".lock"
    # Without `fallback_to_soft`: a lock that is a file's existence would outlive a holder that is killed.
    lock = FileLock(file, fallback_to_soft=False, on_acquired=sign)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        holder = file.read_text(errors="replace").strip()
        who = f"process {holder}" if holder else "another process"
        progress(f"waiting for {who}, which is providing binaries in {directory}")
        return lock.acquire(poll_interval=_LOOK_SECONDS)
