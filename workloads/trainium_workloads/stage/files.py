"""Files of a source, their checksums, and errors of copying."""

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

RESERVED = ".stage"
"""Prefix of the copier's own names at the top of a destination."""
BUFFER = 1024 * 1024
"""Bytes of one read."""


class StageError(Exception):
    """Error that another try would repeat: the message has the reason and the remedy."""


class CopyInterruptedError(Exception):
    """Error that another try may not have: another try resumes the copy."""


@dataclass(frozen=True)
class File:
    """One file of a source."""

    path: str
    """Path below the destination, with slashes."""
    where: str
    """URL, or path in a repository."""
    size: int | None
    """Bytes; None where the server does not say."""
    version: str = ""
    """Server's mark of the content's version; empty where the server sends none, or the address has one version."""
    checksum: str = ""
    """Expected checksum, ``sha256:<hexadecimal>``; empty where the listing has none. Other kinds are ``sha1``, ``md5``
    and ``git`` (SHA-1 of git's blob)."""


class Source(Protocol):
    """A source: its listing, and its files, which several threads fetch."""

    revision: str
    """Commit of a repository; empty for other sources."""

    def list_files(self) -> Iterable[File]:
        """Return all files. Raises StageError and CopyInterruptedError."""

    def fetch(self, file: File, part: Path) -> "Fetched":
        """Write a whole file to a path. StageError: refused, or not there. CopyInterruptedError: the connection ends
        early, or the file has changed. OSError: the disk takes no more."""


class Fetched(NamedTuple):
    """What a source knows of a file that it has written."""

    checksum: str = ""
    """Of the source's answer; empty without one."""
    measured: tuple[str, str] | None = None
    """Result of :func:`measure`, where it ran meanwhile."""


def check_path(path: str, source: str) -> None:
    """Raise StageError where a path of a source leaves the destination, or is no file's name."""
    parts = path.split("/")
    is_file = all(part not in ("", ".", "..") and len(part.encode(errors="surrogateescape")) < 256 for part in parts)
    if not is_file or any(ord(letter) < 32 for letter in path):
        raise StageError(f"{source} names a file {path!r}, which is not a path below a directory")
    if path.startswith(RESERVED):
        raise StageError(f"{source} names a file {path!r}; names that begin with {RESERVED} are the copier's own")


def check_paths(files: Iterable[File], source: str) -> None:
    """Raise StageError also where two files have one path, or one lies below another, as keys in S3 may."""
    seen: set[str] = set()
    for file in files:
        check_path(file.path, source)
        if file.path in seen:
            raise StageError(f"{source} names {file.path!r} twice")
        seen.add(file.path)
    for above in {str(above) for path in seen for above in PurePosixPath(path).parents} & seen:
        raise StageError(f"{source} has both a file {above!r} and files below it; copy a narrower prefix")


def measure(path: Path, kind: str, ends: Iterable[int] = (sys.maxsize,)) -> tuple[str, str]:
    """Return a file's checksums ``sha256:…`` and ``kind:…``; the file is read once. ``ends`` yields, for a file that
    is being written, offsets up to which it is whole, the last one at its end."""
    sha256 = other = hashlib.sha256()
    if kind != "sha256":
        blob = b"blob %d\0" % path.stat().st_size if kind == "git" else b""
        other = hashlib.new("sha1" if kind == "git" else kind, blob)
    with path.open("rb", buffering=0) as file:
        for end in ends:
            while piece := file.read(min(BUFFER, end - file.tell())):
                sha256.update(piece)
                if other is not sha256:
                    other.update(piece)
            # What is read starts for the disk, and what is there leaves the memory: as much is written in the same.
            if end < sys.maxsize and hasattr(os, "posix_fadvise"):  # macOS has none
                os.posix_fadvise(file.fileno(), 0, end, os.POSIX_FADV_DONTNEED)
    return f"sha256:{sha256.hexdigest()}", f"{kind}:{other.hexdigest()}"
