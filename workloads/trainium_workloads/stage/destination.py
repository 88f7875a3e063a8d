"""Destination of a copy: made beside it, under a lock, and renamed to it when it is whole.

Beside ``/data/wiki`` there is, while it is made, ``/data/.stage-wiki``::

    lock           held (flock) by the writing process
    request.json   the request of this copy
    files/         complete files; becomes the destination
    parts/         incomplete files
    done.jsonl     a line for each file in files/

All of it may be cut off anywhere: an incomplete line is not read, and a file without a line is fetched again.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads.stage.files import RESERVED, File, Listing, StageError

MARKER = f"{RESERVED}.json"
"""File in a complete destination: the request, the totals and the time of the copy."""
MANIFEST = f"{RESERVED}-files.jsonl"
"""File beside it: a line for each copied file."""
SCHEMA_VERSION = 1

Json = Mapping[str, Any]


@dataclass(frozen=True)
class StageRequest:
    """Options that decide the content of a destination."""

    source: str
    is_manifest: bool = False
    extract: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the form in the marker."""
        return {
            "source": self.source,
            "list": self.is_manifest,
            "extract": self.extract,
            "include": list(self.include),
            "exclude": list(self.exclude),
        }


class Destination:
    """A directory that is there whole or not at all."""

    def __init__(self, directory: Path, request: StageRequest) -> None:
        self.directory = directory
        self.request = request
        self._work = directory.parent / f"{RESERVED}-{directory.name}"
        self.files = self._work / "files"
        self._parts = self._work / "parts"
        self._journal = self._work / "done.jsonl"
        self._request_file = self._work / "request.json"

    # --- One writer -----------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, waiting: Callable[[str], object]) -> Iterator[None]:
        """Hold the lock of this destination; wait for another writer. The lock ends with its process, also with a
        killed one.

        Args:
            waiting: receives a message with the holder every half minute.

        Raises:
            StageError: the file system has no locks.
        """
        told = 0.0
        while True:
            handle = self._try_lock()
            if handle is not None:
                break
            if time.monotonic() - told > 30 or not told:
                told = time.monotonic()
                waiting(f"{self.directory} is being written by {self._holder()}: waiting")
            time.sleep(0.5)
        try:
            os.truncate(handle, 0)
            os.pwrite(handle, f"{socket.gethostname()} process {os.getpid()}".encode(), 0)
            yield
        finally:
            os.close(handle)

    def _try_lock(self) -> int | None:
        try:
            self._work.mkdir(parents=True, exist_ok=True)
            lock = self._work / "lock"
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o660)
        except FileNotFoundError:  # the last one has just tidied up
            return None
        except OSError as error:
            raise StageError(f"{self.directory.parent} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A process that waited may hold a lock that was removed with its directory.
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                os.close(handle)
                raise StageError(f"{self._work} knows no file locks: mount the file system with `flock`") from None
        os.close(handle)
        return None

    def _holder(self) -> str:
        with contextlib.suppress(OSError):
            return (self._work / "lock").read_text(encoding="utf-8", errors="replace") or "another process"
        return "another process"

    # --- Files ----------------------------------------------------------------------------------------------------

    def complete(self) -> dict[str, Any] | None:
        """Return the marker, where the destination is whole and of this request; None where there is nothing yet.

        Raises:
            StageError: something else is there, or files of it have gone.
        """
        if not self.directory.exists() or (self.directory.is_dir() and not any(self.directory.iterdir())):
            return None
        marker = read_marker(self.directory)
        if marker is None:
            raise StageError(f"{self.directory} is there and was not staged: choose another --to, or move it away")
        there = {name: marker.get(name) for name in self.request.to_json()}
        if there != self.request.to_json():
            raise StageError(
                f"{self.directory} holds something else: {_described(there)}, staged {marker.get('finished')}. "
                "Choose another --to, or give --replace"
            )
        wrong = self._wrong_file()
        if wrong:
            raise StageError(
                f"{self.directory} was staged {marker.get('finished')}, but {wrong}: --replace copies it anew"
            )
        return marker

    def _wrong_file(self) -> str:
        """Return the first missing or changed file; unpacked files are not checked."""
        if self.request.extract:
            return ""
        for line in _lines(self.directory / MANIFEST):
            path = self.directory / line["path"]
            try:
                size = path.stat().st_size
            except OSError:
                return f"{line['path']} has gone"
            if line["size"] is not None and size != line["size"]:
                return f"{line['path']} has {size:,} bytes instead of {line['size']:,}"
        return ""

    def prepare(self, *, replace: bool) -> None:
        """Make room for this request's files, and keep the files of an earlier try.

        Args:
            replace: delete the files of another request.

        Raises:
            StageError: something else is half copied there.
        """
        wanted = self.request.to_json()
        try:
            begun = json.loads(self._request_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            begun = None
        if begun is not None and begun != wanted:
            if not replace:
                raise StageError(
                    f"{self.directory} is half copied from something else: {_described(begun)}. "
                    "Choose another --to, or give --replace"
                )
            self._empty()
        for directory in (self.files, self._parts):
            directory.mkdir(exist_ok=True)
        write_whole(self._request_file, json.dumps(wanted))

    def missing(self, files: Iterable[File]) -> list[File]:
        """Return the files that are not whole here yet; delete files and parts that belong to no given file."""
        wanted = {file.path: file for file in files}
        known = {line["path"]: line for line in _lines(self._journal)}
        missing = []
        for path, file in wanted.items():
            line = known.get(path)
            same = line is not None and {name: line.get(name) for name in file.identity} == file.identity
            if not (same and _size(self.files / path) == line["bytes"]):  # type: ignore[index]
                missing.append(file)
        kept = set(wanted) - {file.path for file in missing}
        for directory, _, names in os.walk(self.files):
            for name in names:
                found = Path(directory, name)
                if found.relative_to(self.files).as_posix() not in kept:
                    found.unlink()
        parts = {self.part(file).name for file in missing}
        for part in self._parts.iterdir():
            if part.name.removesuffix(".chunks") not in parts:
                part.unlink()
        return missing

    def part(self, file: File) -> Path:
        """Return the path of a file while it is not whole."""
        return self._parts / hashlib.sha256(file.path.encode(errors="surrogateescape")).hexdigest()[:24]

    def note(self, file: File, checksum: str) -> None:
        """Record that a file is whole and at its place."""
        line = {**file.identity, "bytes": _size(self.files / file.path), "verified": checksum}
        # One write, so that lines of several threads stay whole.
        handle = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o660)
        try:
            os.write(handle, f"{json.dumps(line)}\n".encode())
        finally:
            os.close(handle)

    def verified(self, files: Iterable[File]) -> dict[str, str]:
        """Return the checksum that was compared, by path; empty where the source has none."""
        known = {line["path"]: str(line.get("verified") or "") for line in _lines(self._journal)}
        return {file.path: known.get(file.path, "") for file in files}

    def free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        return shutil.disk_usage(self._work).free

    # --- The end --------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether only the rename is missing, before which an earlier try ended."""
        marker = read_marker(self.files)
        return marker is not None and {name: marker.get(name) for name in self.request.to_json()} == (
            self.request.to_json()
        )

    def seal(self, listing: Listing) -> None:
        """Write the marker and the manifest among the files."""
        verified = self.verified(listing.files)
        lines = (
            json.dumps({"path": file.path, "size": _size_known(self.files, file), "checksum": verified[file.path]})
            + "\n"
            for file in listing.files
        )
        manifest = self.files / MANIFEST
        with manifest.open("w", encoding="utf-8") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        marker = {
            "schemaVersion": SCHEMA_VERSION,
            **self.request.to_json(),
            "revision": listing.revision,
            "files": len(listing.files),
            "bytes": sum(_size_known(self.files, file) or 0 for file in listing.files),
            "unverified": sum(not checksum for checksum in verified.values()),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_whole(self.files / MARKER, json.dumps(marker, indent=1))

    def appear(self, *, replace: bool) -> None:
        """Rename the sealed files to the destination, and tidy up.

        Args:
            replace: delete an earlier data set of this place.
        """
        old = self._work / "old"
        if self.directory.exists():
            if replace and read_marker(self.directory) is not None:
                os.rename(self.directory, old)
            else:
                os.rmdir(self.directory)  # it is empty, or this fails and nothing is lost
        os.rename(self.files, self.directory)
        sync_directory(self.directory.parent)
        self.tidy()

    def tidy(self) -> None:
        """Remove the files of the copying, the lock last."""
        self._empty()
        (self._work / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the next one may already wait in it
            self._work.rmdir()

    def tidy_if_empty(self) -> None:
        """Remove the working directory where nothing was copied."""
        kept = (self.files, self._parts)
        if not any(any(each.iterdir()) for each in kept if each.is_dir()):
            self.tidy()

    def _empty(self) -> None:
        for each in self._work.iterdir():
            if each.name == "lock":
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


def read_marker(directory: Path) -> dict[str, Any] | None:
    """Return the marker of a staged directory; None for another, or an incomplete one."""
    try:
        found = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("schemaVersion") == SCHEMA_VERSION else None


def write_whole(path: Path, text: str) -> None:
    """Write a small file that is never seen half written."""
    scratch = path.with_name(f"{path.name}.new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that renames in it last."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the valid lines of a file of JSON lines, each about a file; skip a line that was cut off."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (found for line in file if (found := _line(line)) is not None)
    except FileNotFoundError:
        return


def _line(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    sizes = [found.get(name) for name in ("size", "bytes")] if isinstance(found, dict) else []
    is_whole = sizes and isinstance(found.get("path"), str) and all(isinstance(size, int | None) for size in sizes)
    return found if is_whole else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _size_known(root: Path, file: File) -> int | None:
    return file.size if file.size is not None else (_size(root / file.path) if (root / file.path).exists() else None)


def _described(request: Json) -> str:
    if not isinstance(request, dict):
        return "something unknown"
    chosen = [f"--{name} {pattern}" for name in ("include", "exclude") for pattern in request.get(name) or []]
    return " ".join([str(request.get("source")), *chosen, *(["--extract"] if request.get("extract") else [])])
