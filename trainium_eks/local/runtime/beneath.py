"""Paths in directories of pods, opened so that no link leads out, also while a pod changes the directory.

A job can replace any part of its volume by a symbolic link at any moment. So the kernel resolves a path in one call
(``openat2(2)``, Linux 5.6), and from then on the descriptor is used, never the path again. Where that call is missing
(older kernels, macOS) no link is followed at all.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trainium_eks.local import linux

_PATH = getattr(os, "O_PATH", os.O_RDONLY)
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def opened(root: str | Path, path: str, flags: int = _PATH, *, links_in_root: bool = False) -> int:
    """Open a path in a directory.

    Links on the way to the root are followed. ``links_in_root`` takes absolute links as from the root, as in a
    container; otherwise they lead out. Return a descriptor, which the caller closes. An :class:`OSError` says that
    there is no such path (``ENOENT``), or that a link on it leads out of the directory (``EXDEV``).
    """
    directory = os.open(root, _PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _opened_at(directory, _parts(path), flags | os.O_CLOEXEC, links_in_root)
    except OSError as error:
        why = "a link leads out of it" if error.errno == errno.EXDEV else os.strerror(error.errno or 0)
        raise OSError(error.errno, why, os.path.join(root, *_parts(path))) from None
    finally:
        os.close(directory)


def open_or_create(root: str | Path, path: str, *, is_file: bool = False, links_in_root: bool = False) -> int:
    """Open a path in a directory as :func:`opened`, and make each part of it that is missing.

    ``is_file`` makes an empty file in the last place. ``ENOENT`` says, too, that a link on the path leads to nothing.
    """
    parts = _parts(path)
    found = opened(root, ".")
    for number, name in enumerate(parts, start=1):
        parent, way = found, "/".join(parts[:number])
        try:
            try:
                found = opened(root, way, links_in_root=links_in_root)
            except FileNotFoundError:
                _make(name, parent, is_file=is_file and number == len(parts))
                found = opened(root, way, links_in_root=links_in_root)
        finally:
            os.close(parent)
    return found


def _make(name: str, parent: int, *, is_file: bool) -> None:
    # The pods of a gang make the same directory at the same time.
    with contextlib.suppress(FileExistsError):
        if is_file:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=parent))
        else:
            os.mkdir(name, dir_fd=parent)


def real_path(root: str | Path, path: str) -> Path | None:
    """Return where a path in a directory really is; None where there is nothing, or a link leads out.

    For programs that open by name: a job that changes the path afterwards can still mislead them.
    """
    try:
        descriptor = opened(root, path)
    except OSError:
        return None
    try:
        return Path(os.path.realpath(Path(root, *_parts(path))))
    finally:
        os.close(descriptor)


def end_of(file: str | Path, most_bytes: int) -> bytes:
    """Return the last bytes of a regular file; none of anything else, such as a link or a pipe."""
    descriptor = os.open(file, _REGULAR)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return b""
        return os.pread(descriptor, most_bytes, max(state.st_size - most_bytes, 0))
    finally:
        os.close(descriptor)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _opened_at(directory: int, parts: Sequence[str], flags: int, links_in_root: bool) -> int:
    resolution = linux.Resolve.IN_ROOT if links_in_root else linux.Resolve.BENEATH
    try:
        return linux.open_in(directory, "/".join(parts) or ".", flags, resolution | linux.Resolve.NO_MAGIC_LINKS)
    except OSError as error:
        # EPERM: some sandboxes refuse calls that they do not know.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _walked(directory, parts, flags)


def _walked(directory: int, parts: Sequence[str], flags: int) -> int:
    """Open a path part by part, without following any link."""
    if not parts:
        return os.open(".", flags, dir_fd=directory)
    here = os.dup(directory)
    for part in parts[:-1]:
        try:
            below = os.open(part, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except NotADirectoryError:
            raise OSError(errno.EXDEV, part) from None
        finally:
            os.close(here)
        here = below
    try:
        found = os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)
    if stat.S_ISLNK(os.fstat(found).st_mode):  # O_PATH opens the link itself
        os.close(found)
        raise OSError(errno.EXDEV, parts[-1])
    return found
