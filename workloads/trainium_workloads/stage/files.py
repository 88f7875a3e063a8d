"""Files of a source, their checksums, and errors of copying.

S3's rules (user guide, "Checking object integrity"): the ETag of an object that was uploaded in one part, and not
encrypted with KMS or a customer's key, is the MD5 of its bytes; the ETag of a multipart upload is the MD5 of the
parts' MD5s, and the number of parts. ``x-amz-checksum-<name>`` is base64, of the whole object unless its type is
``COMPOSITE``.
"""

import base64
import binascii
import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

RESERVED = ".stage"
"""Prefix of the copier's own names at the top of a destination."""
BUFFER = 1024 * 1024
"""Bytes of one read."""


class StageError(Exception):
    """Error that another try would repeat: the message has the reason and the remedy."""


class Interrupted(Exception):  # noqa: N818 - what happened, where it is raised
    """Error that another try may not have: another try resumes the copy."""


class Changed(Interrupted):
    """Error of a file that is another than the listed one: the next try needs a new listing."""


@dataclass(frozen=True)
class Checksum:
    """Expected checksum of a file."""

    kind: str
    """``sha256``, ``sha1``, ``md5``, ``git`` (SHA-1 of git's blob) or ``parts`` (S3's ETag of several parts)."""
    value: str
    """Hexadecimal, lower case; for ``parts`` with ``-<number of parts>``."""
    part_size: int = 0
    """Bytes of each part but the last; for ``parts`` alone."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"


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
    checksum: Checksum | None = None
    """Expected checksum; None where the listing has none."""

    @property
    def identity(self) -> dict[str, object]:
        """Return the facts that decide whether an earlier copy of the file is of use."""
        return {**self.__dict__, "checksum": str(self.checksum or "")}


class Source(Protocol):
    """A source: its listing, and its files, which several threads fetch."""

    revision: str
    """Commit of a repository; empty for other sources."""

    def list_files(self) -> Iterable[File]:
        """Return all files. Raises StageError and Interrupted."""

    def fetch(self, file: File, part: Path) -> Checksum | None:
        """Write a whole file to a path; return the checksum in the source's answer, None without one.

        Raises:
            StageError: refused, or not there.
            Interrupted: the connection ends early, or the file has changed.
            OSError: the disk takes no more.
        """


def chosen(files: Iterable[File], include: Iterable[str], exclude: Iterable[str]) -> list[File]:
    """Return the files whose paths match a pattern of ``include``, if it has any, and none of ``exclude``."""

    def matches(path: str, patterns: Iterable[str]) -> bool:
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)

    return [each for each in files if matches(each.path, include or ("*",)) and not matches(each.path, exclude)]


def safe_path(text: str, source: str) -> str:
    """Return a path below a destination, from a source.

    Raises:
        StageError: the path leaves the destination, or is no file's name.
    """
    parts = text.split("/")
    if any(part in ("", ".", "..") or len(part.encode(errors="surrogateescape")) > 255 for part in parts) or any(
        ord(letter) < 32 for letter in text
    ):
        raise StageError(f"{source} names a file {text!r}, which is no path below a directory")
    if parts[0].startswith(RESERVED):
        raise StageError(f"{source} names a file {text!r}; names that begin with {RESERVED} are the copier's own")
    return text


def check_paths(files: Iterable[File], source: str) -> None:
    """Raise StageError where two files have one path, or one lies below another, as keys in S3 may."""
    seen: set[str] = set()
    for file in files:
        if safe_path(file.path, source) in seen:
            raise StageError(f"{source} names {file.path!r} twice")
        seen.add(file.path)
    for path in seen:
        for above in PurePosixPath(path).parents:
            if str(above) in seen:
                raise StageError(f"{source} has both a file {str(above)!r} and files below it; copy a narrower prefix")


def measure(path: Path, wanted: Checksum | None) -> tuple[str, str]:
    """Return a file's SHA-256, and its checksum of the wanted kind: empty for None. The file is read once."""
    hashes: dict[str, Any] = {"sha256": hashlib.sha256()}
    if wanted and wanted.kind != "sha256":
        blob = b"blob %d\0" % path.stat().st_size if wanted.kind == "git" else b""
        name = {"git": "sha1", "parts": "md5"}.get(wanted.kind, wanted.kind)
        hashes[wanted.kind] = _Parts(wanted.part_size) if wanted.part_size else hashlib.new(name, blob)
    with path.open("rb") as file:
        while piece := file.read(BUFFER):
            for each in hashes.values():
                each.update(piece)
    return hashes["sha256"].hexdigest(), hashes[wanted.kind].hexdigest() if wanted else ""


class _Parts:
    """S3's ETag of parts of one size, with the methods of hashlib's objects."""

    def __init__(self, part_size: int) -> None:
        self._part_size = part_size
        self._parts: list[Any] = []
        self._left = 0

    def update(self, piece: bytes) -> None:
        while piece:
            if not self._left:
                self._parts.append(hashlib.md5())
                self._left = self._part_size
            now, piece = piece[: self._left], piece[self._left :]
            self._parts[-1].update(now)
            self._left -= len(now)

    def hexdigest(self) -> str:
        return f"{hashlib.md5(b''.join(each.digest() for each in self._parts)).hexdigest()}-{len(self._parts)}"


def announced(headers: Mapping[str, str]) -> Checksum | None:
    """Return the checksum of the whole file in the headers of an answer, by S3's rules; None without a trustworthy one.

    Args:
        headers: with names in lower case.
    """
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") == "FULL_OBJECT":
        for kind in ("sha256", "sha1"):
            try:
                if value := base64.b64decode(headers.get(f"x-amz-checksum-{kind}", ""), validate=True).hex():
                    return Checksum(kind, value)
            except binascii.Error:  # of the parts' checksums: a dash and their number follow
                continue
    etag = headers.get("etag", "").strip('"')
    is_md5 = "x-amz-request-id" in headers and re.fullmatch(r"[0-9a-f]{32}", etag) and not is_encrypted(headers)
    return Checksum("md5", etag) if is_md5 else None


def is_encrypted(headers: Mapping[str, str]) -> bool:
    """Return whether an object's ETag tells nothing: a key of KMS or of a customer encrypts the object."""
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    return by_customer or headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
