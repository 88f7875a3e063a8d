"""The per-user directory of binaries: one writer at a time, and only whole files."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_SECONDS = 0.25
SCRATCH = ".scratch-"
"""What begins so is in the making, or was left behind."""


class Unwritable(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The cache cannot be written; the message says where and why."""


@contextlib.contextmanager
def writing(directory: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """A scratch directory in the given one, for whoever holds its lock; waits for the lock and says so.

    The lock ends with its process, however that ends; what a killed one left behind is removed.

    Raises:
        Unwritable: the directory cannot be made or written.
    """
    with _unwritable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("a+")
    with lock:
        with _unwritable(directory):
            _lock(lock.fileno(), directory, progress)
            for left in directory.glob(f"{SCRATCH}*"):
                _remove(left)
            scratch = Path(tempfile.mkdtemp(dir=directory, prefix=SCRATCH))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def keep(file: Path, destination: Path) -> None:
    """Moves a finished file from the scratch directory to its place, where it appears whole or not at all.

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
    """The error for an operation that failed there."""
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


def _lock(descriptor: int, directory: Path, progress: Callable[[str], None]) -> None:
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if not told:
            told = True
            progress(f"waits for {_holder(descriptor)}, which provides binaries in {directory} now")
        time.sleep(_LOOK_SECONDS)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _holder(descriptor: int) -> str:
    number = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f"process {number}" if number else "another process"
