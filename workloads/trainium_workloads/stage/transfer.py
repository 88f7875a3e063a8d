"""Transfer of one file: fetched in chunks by several threads, each chunk noted once it is on the disk."""

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainium_workloads.stage.checksums import BUFFER, Checksum, announced
from trainium_workloads.stage.files import File, Interrupted, StageError, validator_of
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.web import ATTEMPTS, BROKEN, Answer, Web

_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})
"""Errors that no server is to blame for."""

CHUNK_BYTES = 32 * 1024 * 1024
"""Bytes of one request, and the most that a kill loses, for each worker. A file of one chunk begins anew."""


class _NoRanges(Exception):  # noqa: N818 - what the server has
    """Error of a server that answers every range with the whole file."""


class Transfer:
    """A file, its part on the disk, and the chunks in that part."""

    def __init__(
        self,
        file: File,
        part: Path,
        web: Web,
        progress: Progress,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.file = file
        self._part = part
        self._notes = part.with_name(f"{part.name}.chunks")
        self._web = web
        self._progress = progress
        self._chunk_bytes = chunk_bytes
        self._pause = pause
        self._lock = threading.Lock()
        self._whole_lock = threading.Lock()
        self._whole = file.size is None
        self._announced: Checksum | None = None
        self._complete = False
        self._bytes = 0
        """Bytes that this transfer has added to the progress."""
        self._done = self._noted()
        self._add(sum(self._length(index) for index in self._done))

    @property
    def pending(self) -> list[int]:
        """Chunks that are not here yet."""
        return [index for index in range(self._count) if index not in self._done]

    @property
    def bytes_on_disk(self) -> int:
        """Bytes that are here and need not be fetched."""
        return self._bytes

    def fetch(self, index: int) -> bool:
        """Fetch one chunk; return whether it was the last missing one.

        Raises:
            StageError: refused, or not there.
            Interrupted: breaks off again and again, or has changed since it was listed.
        """
        if not self._whole:
            start = index * self._chunk_bytes
            try:
                self._fetch(start, start + self._length(index), ranged=self._count > 1)
                return self._note(index)
            except _NoRanges:
                self._whole = True
        with self._whole_lock:
            if len(self._done) == self._count:
                return False
            self._forget()
            self._fetch(0, self.file.size, ranged=False)
            return [self._note(each) for each in range(self._count)][-1]

    def verify(self) -> tuple[Checksum | None, str]:
        """Return the expected checksum, None without one, and the value of the file's bytes."""
        size = self._part.stat().st_size
        if self.file.size is not None and size != self.file.size:
            return Checksum("size", str(self.file.size)), str(size)
        wanted = self.file.checksum or self._announced or self.file.access.checksum(self.file)
        return wanted, wanted.of(self._part) if wanted else ""

    def place(self, target: Path) -> None:
        """Move the whole file to its place."""
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._part, target)
        self._notes.unlink(missing_ok=True)

    def restart(self) -> None:
        """Delete the part and its notes."""
        self._forget()
        self._part.unlink(missing_ok=True)

    # --- Chunks ---------------------------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        return max(1, -(-(self.file.size or 0) // self._chunk_bytes))

    def _length(self, index: int) -> int:
        return min(self._chunk_bytes, (self.file.size or 0) - index * self._chunk_bytes)

    def _noted(self) -> set[int]:
        """Return the chunks that an earlier process noted, for the very same file."""
        try:
            head, *lines = self._notes.read_text(encoding="utf-8").split("\n")
            if not self._part.is_file() or json.loads(head) != self._head:
                raise ValueError("of another file")
        except (OSError, ValueError):
            self._notes.unlink(missing_ok=True)
            return set()
        # A kill cut off the text after the last line break.
        return {int(line) for line in lines[:-1] if line.isdigit() and int(line) < self._count}

    @property
    def _head(self) -> dict[str, object]:
        return {**self.file.identity, "chunk": self._chunk_bytes}

    def _note(self, index: int) -> bool:
        with self._lock:
            self._done.add(index)
            if self._count > 1:
                line = f"{index}\n"
                if not self._notes.exists():
                    line = f"{json.dumps(self._head)}\n{line}"
                with self._notes.open("a", encoding="utf-8") as notes:
                    notes.write(line)
            is_last = len(self._done) == self._count and not self._complete
            self._complete = self._complete or is_last
            return is_last

    def _forget(self) -> None:
        with self._lock:
            self._done.clear()
            self._complete = False
            self._announced = None
            self._notes.unlink(missing_ok=True)
            self._progress.add(-self._bytes)
            self._bytes = 0

    def _add(self, count: int) -> None:
        with self._lock:
            self._bytes += count
        self._progress.add(count)

    # --- Bytes ----------------------------------------------------------------------------------------------------

    def _fetch(self, start: int, stop: int | None, *, ranged: bool) -> None:
        """Write the bytes from ``start`` up to ``stop``, and resume where a connection breaks off."""
        position, fruitless = start, 0
        handle = os.open(self._part, os.O_WRONLY | os.O_CREAT, 0o660)
        try:
            while True:
                before, why = position, "ends too early"
                try:
                    position = self._stream(handle, position, stop, ranged=ranged or position > start)
                    if stop is None or position >= stop:
                        break
                except _Broken as error:
                    position, why = error.position, error.why
                if self._whole:  # no ranges, or no length: from the beginning
                    self._add(start - position)
                    position = start
                fruitless = 0 if position > before else fruitless + 1
                if fruitless >= ATTEMPTS:
                    raise Interrupted(f"{self.file.url} breaks off at byte {position:,}: {why}")
                self._pause(min(2.0**fruitless, 30.0) if fruitless else 0.2)
            if stop is None or stop == self.file.size:
                os.ftruncate(handle, position)
            os.fsync(handle)
        except _NoRanges:
            self._add(start - position)
            raise
        finally:
            os.close(handle)

    def _stream(self, handle: int, position: int, stop: int | None, *, ranged: bool) -> int:
        """Write the bytes of one answer; return the position after them."""
        asked = {"Range": f"bytes={position}-{'' if stop is None else stop - 1}"} if ranged else {}
        try:
            with self._web.open("GET", self.file.url, self.file.access.headers, asked) as answer:
                self._judge(answer, position, ranged=ranged)
                while piece := answer.read(BUFFER):
                    if stop is not None and position + len(piece) > stop:
                        raise Interrupted(f"{self.file.url} sends more than the {stop:,} bytes that it should have")
                    os.pwrite(handle, piece, position)
                    position += len(piece)
                    self._add(len(piece))
        except OSError as error:
            if error.errno in _OF_THE_DISK:
                raise
            raise _Broken(position, str(error) or type(error).__name__) from error
        except BROKEN as error:
            raise _Broken(position, str(error) or type(error).__name__) from error
        return position

    def _judge(self, answer: Answer, position: int, *, ranged: bool) -> None:
        file, headers = self.file, answer.headers
        if answer.status in (401, 403):
            raise StageError(f"{file.url} is refused: {answer.status}")
        if answer.status in (404, 410):
            raise StageError(f"{file.url} is not there any more: {answer.status}")
        if answer.status not in (200, 206, 416):
            raise StageError(f"{file.url}: {answer.status}")
        seen = validator_of(headers)
        if answer.status == 416 or (file.validator and seen and seen != file.validator):
            raise Interrupted(f"{file.url} changed after it was listed")
        if answer.status == 206:
            first = headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
            if first and first != str(position):
                raise StageError(f"{file.url} answers byte {position} with bytes from {first}")
            return
        if ranged:
            raise _NoRanges
        length = headers.get("content-length", "")
        if file.size is not None and length.isdigit() and int(length) != file.size:
            raise Interrupted(f"{file.url} has {int(length):,} bytes; listed were {file.size:,}")
        self._announced = announced(headers)


class _Broken(Exception):  # noqa: N818 - what the connection is
    """Error of a connection that ended before its time, after the bytes before ``position``."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position
        self.why = why


def discard(part: Path) -> None:
    """Remove a needless part."""
    for each in (part, part.with_name(f"{part.name}.chunks")):
        with contextlib.suppress(OSError):
            each.unlink()
