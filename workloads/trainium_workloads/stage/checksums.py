"""Checksums from sources, and of local files.

S3's rules (user guide, "Checking object integrity"): the ETag of an object that was uploaded in one part, and not
encrypted with KMS or a customer's key, is the MD5 of its bytes; the ETag of a multipart upload is the MD5 of the parts'
MD5s, and the number of parts. ``x-amz-checksum-<name>`` is base64, and of the whole object unless its type is
``COMPOSITE``.
"""

import base64
import binascii
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BUFFER = 1024 * 1024
"""Bytes that are read at once."""

_STRONG, _WEAK = ("sha256", "sha1"), ("crc32",)
"""S3's checksums that Python has itself, better and worse than the ETag; CRC32C and CRC64NVME in plain Python would be
slower than the network."""


@dataclass(frozen=True)
class Checksum:
    """Expected checksum of a file."""

    kind: str
    """``sha256``, ``sha1``, ``md5``, ``crc32``, ``git`` (SHA-1 of git's blob) or ``parts`` (S3's multipart ETag)."""
    value: str
    """Hexadecimal, lower case; for ``parts`` with ``-<number of parts>``."""
    part_size: int = 0
    """Bytes of each part but the last; for ``parts`` alone."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}" + (f"/{self.part_size}" if self.part_size else "")

    def of(self, path: Path, progress: Callable[[], object] = lambda: None) -> str:
        """Return a file's checksum, in the form of :attr:`value`.

        Args:
            path: the file.
            progress: called for each piece that is read.
        """
        if self.kind == "crc32":
            total = 0
            for piece in _pieces(path, progress):
                total = zlib.crc32(piece, total)
            return f"{total:08x}"
        if self.kind == "parts":
            return _of_parts(path, self.part_size, progress)
        digest = hashlib.new("sha1" if self.kind == "git" else self.kind, usedforsecurity=False)
        if self.kind == "git":
            digest.update(b"blob %d\0" % path.stat().st_size)
        for piece in _pieces(path, progress):
            digest.update(piece)
        return digest.hexdigest()


def announced(headers: Mapping[str, str]) -> Checksum | None:
    """Return the checksum of the whole file in the headers of an answer, by S3's rules; None without a trustworthy one.

    Args:
        headers: with names in lower case.
    """
    return _first_of(_STRONG, headers) or _md5(headers) or _first_of(_WEAK, headers)


def _first_of(kinds: Iterable[str], headers: Mapping[str, str]) -> Checksum | None:
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    for kind in kinds:
        # With a dash and a number behind it, it is of the parts' checksums.
        value = _from_base64(headers.get(f"x-amz-checksum-{kind}", ""))
        if value:
            return Checksum(kind, value)
    return None


def _md5(headers: Mapping[str, str]) -> Checksum | None:
    etag = headers.get("etag", "").strip('"')
    encrypted = headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    if "x-amz-request-id" in headers and is_md5(etag) and not encrypted and not by_customer:
        return Checksum("md5", etag)
    return None


def is_md5(text: str) -> bool:
    """Return whether the text is an MD5 sum, as the ETag of an object in one part is."""
    return len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)


def number_of_parts(etag: str) -> int:
    """Return the number of parts of a multipart upload by its ETag, without quotes; 0 for any other ETag."""
    digest, _, count = etag.partition("-")
    return int(count) if is_md5(digest) and count.isdigit() else 0


def _of_parts(path: Path, part_size: int, progress: Callable[[], object]) -> str:
    digests = []
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for start in range(0, size, part_size):
            digest = hashlib.md5(usedforsecurity=False)
            left = min(part_size, size - start)
            while left:
                piece = file.read(min(BUFFER, left))
                if not piece:
                    break
                digest.update(piece)
                left -= len(piece)
                progress()
            digests.append(digest.digest())
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}"


def _pieces(path: Path, progress: Callable[[], object]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(BUFFER):
            yield piece
            progress()


def _from_base64(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""
