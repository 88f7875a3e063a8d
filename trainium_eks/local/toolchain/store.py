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
"""Prefix of files and directories that are in the making, or were left behind."""


class Unwritable(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The error of a cache that cannot be written; the message says where and why."""


@contextlib.contextmanager
def writing(directory: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """Lock a directory and yield a scratch directory in it; report a wait for the lock.

    The lock ends with its process, even by a kill; files left behind by a killed process are removed.

    Raises:
        Unwritable: the directory cannot be made or written.
    """
    with _unwritable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = _taken(directory, progress)
    with lock:
        with _unwritable(directory):
            for left in directory.glob(f"{SCRATCH}*"):
                _remove(left)
            scratch = Path(tempfile.mkdtemp(dir=directory, prefix=SCRATCH))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def keep(file: Path, destination: Path) -> None:
    """Move a finished file from the scratch directory to its place, where it appears whole or not at all.

    Raises:
        Unwritable: that fails.
    """
    with _unwritable(destination.parent):
        destination.parent.mkdir(parents=True, exist_ok=True)
        # Without this a loss of power soon after could leave an empty file under the name.
        with file.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(file, destination)


def unwritable(directory: Path, error: OSError) -> Unwritable:
    """Return the error for an operation that failed in a directory."""
    return Unwritable(f"{directory} cannot be written: {error.strerror or error}")


@contextlib.contextmanager
def _unwritable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(directory, error) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _taken(directory: Path, progress: Callable[[str], None]) -> AcquireReturnProxy[FileLock]:
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
