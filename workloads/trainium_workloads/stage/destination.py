"""Destination of a copy: made beside it, under a lock, and renamed to it when it is whole.

Beside ``/data/wiki`` are ``/data/.stage-wiki.lock``, which the writing process holds, and in ``/data/.stage-wiki``
``files/``, the complete files, which becomes the destination; ``parts/``, the incomplete files; and ``done.jsonl``, a
line for each complete file. A kill may cut all of it off anywhere: an incomplete line is not read, and a file without a
line is fetched again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from trainium_workloads.file_lock import held
from trainium_workloads.stage.files import RESERVED, File, StageError

MARKER = f"{RESERVED}.json"
"""File in a complete destination: the request, the totals and the time of the copy."""
MANIFEST = f"{RESERVED}-files.jsonl"
"""File beside the marker: a line for each copied file, with its size, SHA-256 and the source's checksum."""
SCHEMA_VERSION = 1

Json = dict[str, Any]


class Destination:
    """A directory on the volume that is there whole or not at all. ``request`` are the options that decide the content,
    which the marker records."""

    def __init__(self, directory: Path, request: Json) -> None:
        self.directory, self.request = directory, request
        self.work = directory.parent / f"{RESERVED}-{directory.name}"
        self.files, self._parts, self._journal = (self.work / name for name in ("files", "parts", "done.jsonl"))

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[str], object]) -> Iterator[None]:
        """Hold the lock of this destination; tell ``waiting`` where another process holds it. StageError: the file
        system has no locks, or takes no files."""
        path, note = self.work.with_name(f"{self.work.name}.lock"), f"{socket.gethostname()} process {os.getpid()}"
        with contextlib.ExitStack() as stack:
            try:
                lock = held(
                    path, note, waiting=lambda by: waiting(f"{self.directory} is being written by {by}: waiting")
                )
                stack.enter_context(lock)
                self.work.mkdir(exist_ok=True)
            except OSError as error:
                raise StageError(f"{path.parent} cannot be written: {error.strerror}") from None
            yield

    def complete(self, *, replace: bool) -> Json | None:
        """Return the marker, where the destination is whole and of this request; None where it is to be copied.
        StageError: something else is there, or files of it have gone; or to be replaced, and not staged."""
        there = self.directory
        if not there.exists() or (there.is_dir() and not any(there.iterdir())):
            return None
        marker = read_marker(there)
        if marker is None:
            raise StageError(f"{there} is there and was not staged: choose another --to, or move it away yourself")
        if replace:
            return None
        staged = f"staged {marker.get('finished')}"
        if any(marker.get(name) != value for name, value in self.request.items()):
            there_is = json.dumps({name: marker.get(name) for name in self.request if marker.get(name)})
            raise StageError(f"{there} holds something else, {staged}: {there_is}. Give another --to, or --replace")
        for line in () if self.request["extract"] else _lines(there / MANIFEST):  # no line is of an unpacked file
            if (size := _size(there / line["path"])) != line["size"]:
                wrong = "is missing" if size < 0 else f"has {size:,} bytes instead of {line['size']:,}"
                raise StageError(f"{there} was {staged}, but {line['path']} {wrong}: --replace copies it again")
        return marker

    def missing(self, files: Iterable[File]) -> list[File]:
        """Return the files that are not whole here yet; delete files and parts that belong to no given file."""
        known = {line["path"]: line for line in _lines(self._journal)}
        missing, kept = [], set()
        for file in files:
            line = known.get(file.path, {})
            if line.get("file") == vars(file) and _size(self.files / file.path) == line["size"]:
                kept.add(self.files / file.path)
            else:
                missing.append(file)
                kept.add(self.part(file))
        for directory in (self.files, self._parts):
            directory.mkdir(exist_ok=True)
            for path in sorted(directory.rglob("*"), reverse=True):
                if path.is_dir():
                    with contextlib.suppress(OSError):  # it is not empty
                        path.rmdir()
                elif path not in kept:
                    path.unlink()
        return missing

    def part(self, file: File) -> Path:
        """Return the path of a file while it is not whole; another one for each version of the file."""
        return self._parts / hashlib.sha256(json.dumps(vars(file)).encode()).hexdigest()[:24]

    def part_bytes(self) -> int:
        """Return the bytes on the disk of all incomplete files."""
        total = 0
        for directory, _, names in os.walk(self._parts):  # passes over a directory that goes meanwhile
            for name in names:
                with contextlib.suppress(OSError):  # the file has become whole
                    total += os.stat(os.path.join(directory, name)).st_blocks * 512
        return total

    def place(self, file: File, sha256: str, checksum: str) -> None:
        """Move a whole file to its place, and note it with the source's checksum, which is empty for a source without
        checksums."""
        part, target = self.part(file), self.files / file.path
        with part.open("rb+") as written:
            os.fsync(written)
        line = {"path": file.path, "size": _size(part), "sha256": sha256, "checksum": checksum, "file": vars(file)}
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part, target)
        # One write, so that lines of several threads stay whole, after the end of a line that a kill cut off.
        with self._journal.open("ab", buffering=0) as journal:
            journal.write(f"\n{json.dumps(line)}\n".encode())

    def free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        return shutil.disk_usage(self.work).free

    def appear(self, tree: Path, files: Iterable[File], revision: str) -> Json:
        """Write manifest and marker into a tree, and rename it to the destination; return the marker."""
        known = {line["path"]: line for line in _lines(self._journal)}
        lines = [known[file.path] for file in files]
        _write(tree / MANIFEST, "".join(f"{json.dumps(line)}\n" for line in lines))
        marker = {
            "schemaVersion": SCHEMA_VERSION,
            **self.request,
            "revision": revision,
            "files": len(lines),
            "bytes": sum(line["size"] for line in lines),
            "unverified": sum(not line["checksum"] for line in lines),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        _write(tree / MARKER, json.dumps(marker, indent=1))
        if read_marker(self.directory) is not None:
            os.rename(self.directory, self.work / f"old-{time.time_ns()}")
        elif self.directory.exists():
            os.rmdir(self.directory)  # it is empty, or this fails and nothing is lost
        os.rename(tree, self.directory)
        parent = os.open(self.directory.parent, os.O_RDONLY)
        os.fsync(parent)  # so that the rename lasts
        os.close(parent)
        return marker

    def tidy(self, *, only_if_empty: bool = False) -> None:
        """Remove the files of the copying; with ``only_if_empty`` where nothing has been copied alone."""
        if not only_if_empty or not any(path.is_file() for path in self.work.rglob("*")):
            shutil.rmtree(self.work)


def read_marker(directory: Path) -> Json | None:
    """Return the marker of a staged directory; None for another, or an incomplete one."""
    try:
        found = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("schemaVersion") == SCHEMA_VERSION else None


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path) -> Iterator[Json]:
    """Yield the valid lines of a file of JSON lines, each about a file; skip a line that a kill cut off."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(text)
                if isinstance(found, dict) and {"path", "size", "sha256", "checksum"} <= found.keys():
                    yield found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
