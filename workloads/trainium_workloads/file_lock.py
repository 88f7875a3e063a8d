"""Locks of files for processes on many machines. A lock ends with its process, a killed one too.

Lustre's locks hold across nodes where it is mounted with ``flock``, as the stack mounts it. Standard library alone.
"""

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path


class InUseError(Exception):
    """Error of a lock that another process holds; the message is the note of that process."""


@contextlib.contextmanager
def held(
    path: Path, note: str = "", *, shared: bool = False, waiting: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Hold the lock of a file, which is made, and stays; with a note on the holder for processes that find the lock in
    use, or shared with others that hold it so.

    ``waiting`` receives the note of another holder, before this process waits; None to wait for two seconds alone and
    raise InUseError. OSError: the file cannot be written, or the file system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        # A process that asks for the holder has the lock for a moment.
        for left in range(20, -1, -1):
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left and waiting is None:
                    raise InUseError(path.read_text(errors="replace")) from None
                time.sleep(0.1)
            except OSError as error:
                raise OSError(error.errno, "no file locks: mount the file system with `flock`", str(path)) from None
        else:
            assert waiting is not None
            waiting(path.read_text(errors="replace"))
            fcntl.flock(handle, kind)
        if not shared:
            path.write_text(note)
        yield


def holder(path: Path) -> str | None:
    """Return the note of the process that holds the lock of a file alone; None where no process does."""
    try:
        with path.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return path.read_text(errors="replace")
    return None
