"""Files of a source, and errors of copying them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from trainium_workloads.stage.checksums import Checksum

RESERVED = ".stage"
"""Prefix of the names at the top of a destination that are the copier's."""
LONGEST_NAME = 255
"""Bytes of one name in a path, on Lustre as on ext4."""


class StageError(Exception):
    """Error that another try would repeat: the message has the reason and the remedy."""


@contextmanager
def as_expected(what: str) -> Iterator[None]:
    """Raise StageError where an answer or a file has another form than the code that reads it expects.

    Args:
        what: the answer or the file, for the message.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise StageError(f"{what} has another form than expected: {error!r}") from None


class Interrupted(Exception):  # noqa: N818 - what happened, where it is raised
    """Error that another try may not have: it resumes where this try was."""


class Access:
    """Authentication of requests to one source. This class adds none, as is right for a public web server."""

    def headers(self, method: str, url: str) -> dict[str, str]:
        """Return the headers of one request, made anew for each: signatures and tokens end."""
        del method, url
        return {}

    def checksum(self, file: "File") -> Checksum | None:
        """Return a file's checksum where its source gives it only in a request for this file; None without one."""
        del file
        return None


@dataclass(frozen=True)
class File:
    """One file of a source."""

    path: str
    """Path below the destination, with slashes."""
    url: str
    """``https://``, ``http://`` or ``file://``."""
    size: int | None
    """Bytes; None where the server does not say."""
    checksum: Checksum | None = None
    """Expected checksum; None where it is unknown before the request of the file."""
    validator: str = ""
    """Server's mark of the content's version (see :func:`validator_of`); empty where the server sends none, or
    the URL always means the same bytes."""
    access: Access = field(default_factory=Access, compare=False, repr=False)

    @property
    def identity(self) -> dict[str, object]:
        """Facts that must be the same for a copy, or a part of one, to be of use."""
        return {"path": self.path, "size": self.size, "validator": self.validator, "checksum": str(self.checksum or "")}


@dataclass(frozen=True)
class Listing:
    """All files of a source."""

    files: tuple[File, ...]
    revision: str = ""
    """The state of the source that was listed, where it has a name for it (a commit)."""


def safe_path(text: str, source: str) -> str:
    """Return a path below a destination, from a source.

    Raises:
        StageError: it would leave the destination, or cannot be a file's name.
    """
    parts = text.split("/")
    bad = (
        not text
        or text.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
        or any(ord(letter) < 32 for letter in text)
        or any(len(part.encode(errors="surrogateescape")) > LONGEST_NAME for part in parts)
    )
    if bad:
        raise StageError(f"{source} names a file {text!r}, which is no path below a directory")
    if parts[0].startswith(RESERVED):
        raise StageError(f"{source} names a file {text!r}; names that begin with {RESERVED} are the copier's own")
    return text


def check_paths(files: Iterable[File], source: str) -> None:
    """Check that all files can lie in one directory.

    Raises:
        StageError: two have the same path, or one lies below another, as keys in S3 may.
    """
    seen: dict[str, str] = {}
    for file in files:
        if file.path in seen:
            raise StageError(f"{source} names {file.path!r} twice ({seen[file.path]}, {file.url})")
        seen[file.path] = file.url
    for path in seen:
        for above in PurePosixPath(path).parents:
            if str(above) in seen:
                raise StageError(f"{source} has both a file {str(above)!r} and files below it; copy a narrower prefix")


def total_bytes(files: Iterable[File]) -> int:
    """Return the sum of all known sizes."""
    return sum(file.size or 0 for file in files)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def validator_of(headers: Mapping[str, str]) -> str:
    """Return the ETag without quotes, unless it is a weak one, or the time of the last modification.

    Args:
        headers: of an answer, with names in lower case.
    """
    etag = headers.get("etag", "")
    # A weak one (W/) may stay while bytes change.
    return etag.strip('"') if etag and not etag.startswith("W/") else headers.get("last-modified", "")
