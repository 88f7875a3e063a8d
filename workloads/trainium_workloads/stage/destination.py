"""Destination of a copy: made beside it, under a lock, and renamed to it when it is whole.

Beside ``/data/wiki`` there is, while it is made, ``/data/.stage-wiki``::

    lock         held (flock) by the writing process
    files/       complete files; becomes the destination
    parts/       incomplete files
    done.jsonl   a line for each file in files/

A kill may cut all of it off anywhere: an incomplete line is not read, and a file without a line is fetched again.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads.stage.files import RESERVED, File, StageError

MARKER = f"{RESERVED}.json"
"""File in a complete destination: the request, the totals and the time of the copy."""
MANIFEST = f"{RESERVED}-files.jsonl"
"""File beside the marker: a line for each copied file, with its size and SHA-256."""
SCHEMA_VERSION = 1

Json = dict[str, Any]


@dataclass(frozen=True)
class StageRequest:
    """Options that decide the content of a destination."""

    source: str
    is_manifest: bool = False
    """Whether the source is a list of files."""
    extract: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return the form in the marker."""
        patterns = {"include": list(self.include), "exclude": list(self.exclude)}
        return {"source": self.source, "list": self.is_manifest, "extract": self.extract, **patterns}


class Destination:
    """A directory that is there whole or not at all."""

    def __init__(self, directory: Path, request: StageRequest) -> None:
        self.directory = directory
        self.request = request
        self.work = directory.parent / f"{RESERVED}-{directory.name}"
        self.files = self.work / "files"
        self._parts = self.work / "parts"
        self._journal = self.work / "done.jsonl"

    @contextmanager
    def locked(self, waiting: Callable[[str], object]) -> Iterator[None]:
        """Hold the lock of this destination; wait for another writer. The lock ends with its process, a killed one too.

        Args:
            waiting: receives a message with the holder every half minute.

        Raises:
            StageError: the file system has no locks, or takes no files.
        """
        told = 0.0
        while (handle := self._try_lock()) is None:
            if time.monotonic() - told > 30 or not told:
                told = time.monotonic()
                holder = "another process"
                with contextlib.suppress(OSError):
                    holder = (self.work / "lock").read_text(encoding="utf-8", errors="replace") or holder
                waiting(f"{self.directory} is being written by {holder}: waiting")
            time.sleep(0.5)
        try:
            os.truncate(handle, 0)
            os.pwrite(handle, f"{socket.gethostname()} process {os.getpid()}".encode(), 0)
            yield
        finally:
            os.close(handle)

    def _try_lock(self) -> int | None:
        lock = self.work / "lock"
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o660)
        except FileNotFoundError:  # the last writer has just tidied up
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
                raise StageError(f"{self.work} knows no file locks: mount the file system with `flock`") from None
        os.close(handle)
        return None

    def complete(self) -> Json | None:
        """Return the marker, where the destination is whole and of this request; None where there is nothing yet.

        Raises:
            StageError: something else is there, or files of it have gone.
        """
        if not self.directory.exists() or (self.directory.is_dir() and not any(self.directory.iterdir())):
            return None
        marker = read_marker(self.directory)
        if marker is None:
            raise StageError(f"{self.directory} is there and was not staged: choose another --to, or move it away")
        wanted = self.request.to_json()
        if {name: marker.get(name) for name in wanted} != wanted:
            raise StageError(
                f"{self.directory} holds something else: {_described(marker)}, staged {marker.get('finished')}. "
                "Choose another --to, or give --replace"
            )
        # Unpacked files are in no manifest.
        for line in () if self.request.extract else _lines(self.directory / MANIFEST):
            size = _size(self.directory / line["path"])
            if size != line["size"]:
                wrong = "has gone" if size < 0 else f"has {size:,} bytes instead of {line['size']:,}"
                raise StageError(
                    f"{self.directory} was staged {marker.get('finished')}, but {line['path']} {wrong}: "
                    "--replace copies it anew"
                )
        return marker

    def check_replaceable(self) -> None:
        """Raise StageError where the destination is there and neither staged nor empty."""
        there = self.directory
        if there.exists() and not (there.is_dir() and (read_marker(there) or not any(there.iterdir()))):
            raise StageError(f"{there} was not staged, and --replace throws away only what was: move it away yourself")

    def missing(self, files: Iterable[File]) -> list[File]:
        """Return the files that are not whole here yet; delete files and parts that belong to no given file."""
        for directory in (self.files, self._parts):
            directory.mkdir(exist_ok=True)
        known = {line["path"]: line for line in _lines(self._journal)}
        missing, kept = [], set()
        for file in files:
            line = known.get(file.path, {})
            if line.get("file") == file.identity and _size(self.files / file.path) == line["size"]:
                kept.add(file.path)
            else:
                missing.append(file)
        for directory, _, names in os.walk(self.files):
            for path in (Path(directory, name) for name in names):
                if path.relative_to(self.files).as_posix() not in kept:
                    path.unlink()
        _delete_all(self._parts, {self.part(file).name for file in missing})
        return missing

    def part(self, file: File) -> Path:
        """Return the path of a file while it is not whole; another one for each version of the file."""
        return self._parts / hashlib.sha256(json.dumps(file.identity).encode()).hexdigest()[:24]

    def part_bytes(self) -> int:
        """Return the bytes on the disk of all incomplete files."""
        total = 0
        for directory, _, names in os.walk(self._parts):
            for name in names:
                with contextlib.suppress(OSError):  # it has become whole
                    total += os.stat(os.path.join(directory, name)).st_blocks * 512
        return total

    def place(self, file: File, sha256: str, verified: str) -> None:
        """Move a whole file to its place, and note it.

        Args:
            file: the file.
            sha256: of its bytes.
            verified: the source's checksum of the same bytes; empty where it has none.
        """
        part, target = self.part(file), self.files / file.path
        with part.open("rb+") as handle:
            os.fsync(handle)
        target.parent.mkdir(parents=True, exist_ok=True)
        line = {"file": file.identity, "path": file.path, "size": _size(part), "sha256": sha256, "checksum": verified}
        os.replace(part, target)
        # One write, so that lines of several threads stay whole; before it, a line that a kill cut off ends.
        journal = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o660)
        try:
            os.write(journal, f"\n{json.dumps(line)}\n".encode())
        finally:
            os.close(journal)

    def free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        return shutil.disk_usage(self.work).free

    def seal(self, files: Iterable[File], revision: str, tree: Path) -> None:
        """Write the manifest and the marker into the tree that becomes the destination."""
        known = {line["path"]: line for line in _lines(self._journal)}
        lines = [known[file.path] for file in files]
        _write_whole(tree / MANIFEST, "".join(f"{json.dumps(line)}\n" for line in lines))
        marker = {
            "schemaVersion": SCHEMA_VERSION,
            **self.request.to_json(),
            "revision": revision,
            "files": len(lines),
            "bytes": sum(line["size"] for line in lines),
            "unverified": sum(not line["checksum"] for line in lines),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        _write_whole(tree / MARKER, json.dumps(marker, indent=1))

    def appear(self, tree: Path) -> None:
        """Rename a sealed tree to the destination, in the place of an earlier data set, and tidy up."""
        if self.directory.exists():
            if read_marker(self.directory) is not None:
                os.rename(self.directory, self.work / f"old-{time.time_ns()}")
            else:
                os.rmdir(self.directory)  # it is empty, or this fails and nothing is lost
        os.rename(tree, self.directory)
        handle = os.open(self.directory.parent, os.O_RDONLY)
        os.fsync(handle)  # the rename lasts
        os.close(handle)
        self.tidy()

    def tidy(self, *, only_if_empty: bool = False) -> None:
        """Remove the files of the copying, the lock last.

        Args:
            only_if_empty: keep them where something has been copied.
        """
        kept = (self.files, self._parts)
        if only_if_empty and any(any(each.iterdir()) for each in kept if each.is_dir()):
            return
        _delete_all(self.work, {"lock"})
        (self.work / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the next writer may already wait in it
            self.work.rmdir()


def read_marker(directory: Path) -> Json | None:
    """Return the marker of a staged directory; None for another, or an incomplete one."""
    try:
        found = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("schemaVersion") == SCHEMA_VERSION else None


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    scratch = path.with_name(f"{path.name}.new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _delete_all(directory: Path, but: set[str]) -> None:
    for each in directory.iterdir():
        if each.name in but:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _lines(path: Path) -> Iterator[Json]:
    """Yield the valid lines of a file of JSON lines, each about a file; skip a line that a kill cut off."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict) and isinstance(found.get("path"), str) and {"size", "sha256"} <= found.keys():
                yield found


def _size(path: Path) -> int:
    """Return a file's size; -1 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _described(request: Json) -> str:
    patterns = ((name, each) for name in ("include", "exclude") for each in request.get(name) or ())
    words = [str(request.get("source")), *(f"--{name} {each}" for name, each in patterns)]
    return " ".join([*words, *(["--extract"] if request.get("extract") else [])])
