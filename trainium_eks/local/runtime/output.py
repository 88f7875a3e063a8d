"""The logs of containers: kept line by line with their time, bounded in size, and read again for ``kubectl logs``.

A line on disk is ``<time> <F|P> <text>``, as in CRI's logs but without the stream, which is never needed. ``P`` marks a
part of a line that is too long. A log that becomes too large moves to ``<file>.old``, and the former ``<file>.old`` is
lost.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local.runtime import beneath

LIMIT_BYTES = 10 * 2**20
"""Limit of one file; each run of a container has at most two."""

LINE_BYTES = 16 * 2**10
"""Longer lines are kept in parts."""

_WHOLE, _PART = b"F", b"P"
# Without namespaces a pod can put a link in a log's place.
_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Writer:
    """The log of one run of a container."""

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._rest = b""
        self._opened = os.open(file, _WRITTEN, 0o600)
        self._size = os.fstat(self._opened).st_size

    def write(self, data: bytes, now: float) -> None:
        """Append data. The beginning of a line is held back until its end comes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        stamp = timestamp(now).encode()
        made = []
        for line in lines:
            *parts, last = _parts(line)
            made += [_entry(stamp, _PART, part) for part in parts]
            made.append(_entry(stamp, _WHOLE, last))
        while len(self._rest) > LINE_BYTES:
            made.append(_entry(stamp, _PART, self._rest[:LINE_BYTES]))
            self._rest = self._rest[LINE_BYTES:]
        self._append(b"".join(made))

    def flush(self, now: float) -> None:
        """Append the held-back beginning of a line, such as a question, when its end has not come for a while."""
        if self._rest:
            self._append(_entry(timestamp(now).encode(), _PART, self._rest))
            self._rest = b""

    @property
    def has_rest(self) -> bool:
        """Return whether the beginning of a line is held back."""
        return bool(self._rest)

    def close(self, now: float) -> None:
        """Append the rest and close the file."""
        self.flush(now)
        os.close(self._opened)

    def _append(self, data: bytes) -> None:
        # A disk that is full costs lines, not the pod.
        with contextlib.suppress(OSError):
            if self._size + len(data) > self._limit_bytes and self._size:
                os.replace(self._file, self._file.with_name(f"{self._file.name}.old"))
                os.close(self._opened)
                self._opened, self._size = os.open(self._file, _WRITTEN | os.O_TRUNC, 0o600), 0
            self._size += os.write(self._opened, data)


def _parts(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_BYTES] for at in range(0, len(line), LINE_BYTES)] or [b""]


def _entry(stamp: bytes, kind: bytes, text: bytes) -> bytes:
    return b"%b %b %b\n" % (stamp, kind, text)


def timestamp(seconds: float) -> str:
    """Return a time in RFC 3339 with nanoseconds, as in Kubernetes' logs."""
    whole, fraction = divmod(round(seconds * 10**6), 10**6)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{fraction:06d}000Z"


@dataclass(frozen=True)
class LogFilter:
    """The requested part of a log (``PodLogOptions``)."""

    follow: bool = False
    tail: int | None = None
    since: str = ""
    """RFC 3339 time, as :func:`timestamp` writes it, of the earliest line."""
    timestamps: bool = False
    limit_bytes: int | None = None


class Reader:
    """A reader of one run's log, from its beginning to its present end, and later of additions."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._opened: int | None = None
        self._rest = b""

    def entries(self) -> Iterator[tuple[str, bool, bytes]]:
        """Yield the entries since the last call: time, whether a line ends there, and text."""
        if self._opened is None:
            with contextlib.suppress(OSError):
                yield from self._parsed(beneath.end_of(self._file.with_name(f"{self._file.name}.old"), 2 * LIMIT_BYTES))
            try:
                self._opened = os.open(self._file, _READ)
            except FileNotFoundError:
                return
        while True:
            while data := os.read(self._opened, 2**20):
                yield from self._parsed(data)
            # When the file has been moved away, the log continues in the new file.
            try:
                now = os.stat(self._file)
            except FileNotFoundError:
                return
            if now.st_ino == os.fstat(self._opened).st_ino:
                return
            rest = os.read(self._opened, 2**20)
            os.close(self._opened)
            self._opened = os.open(self._file, _READ)
            if rest:
                yield from self._parsed(rest)

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def _parsed(self, data: bytes) -> Iterator[tuple[str, bool, bytes]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            stamp, _, rest = line.partition(b" ")
            kind, has_text, text = rest.partition(b" ")
            if has_text:  # all but a line that was cut off, by a full disk for one
                yield stamp.decode(errors="replace"), kind == _WHOLE, text


class Selection:
    """The bytes of a log that a request asks for. One for each answer."""

    def __init__(self, wanted: LogFilter) -> None:
        self._wanted = wanted
        self._left = wanted.limit_bytes
        self._in_line = False

    @property
    def is_full(self) -> bool:
        """Return whether the limit of bytes is reached."""
        return self._left is not None and self._left <= 0

    def first(self, reader: Reader) -> bytes:
        """Return the selected text of the log when the answer begins."""
        entries = [each for each in reader.entries() if each[0] >= self._wanted.since]
        if self._wanted.tail is not None:
            entries = _last_lines(entries, self._wanted.tail)
        return self._shown(entries)

    def more(self, reader: Reader) -> bytes:
        """Return the text added since the last call."""
        return self._shown(reader.entries())

    def _shown(self, entries: "Iterator[tuple[str, bool, bytes]] | list[tuple[str, bool, bytes]]") -> bytes:
        made = bytearray()
        for stamp, whole, text in entries:
            if self._wanted.timestamps and not self._in_line:
                made += stamp.encode() + b" "
            made += text
            if whole:
                made += b"\n"
            self._in_line = not whole
        data = bytes(made)
        if self._left is not None:
            data = data[: max(self._left, 0)]
            self._left -= len(data)
        return data


def _last_lines(entries: list[tuple[str, bool, bytes]], count: int) -> list[tuple[str, bool, bytes]]:
    if count <= 0:
        return []
    seen = 0
    for place in range(len(entries) - 1, -1, -1):
        is_end = entries[place][1] or place == len(entries) - 1
        seen += is_end
        if seen > count:
            return entries[place + 1 :]
    return entries
