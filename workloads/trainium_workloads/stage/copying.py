"""One whole copy, from the source's listing to the destination with its marker."""

import errno
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainium_workloads.stage.destination import Destination
from trainium_workloads.stage.files import (
    CopyInterruptedError,
    Fetched,
    File,
    Source,
    StageError,
    check_paths,
    measure,
)
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.unpacking import ENDINGS, unpack

ATTEMPTS = 6
"""Tries in a row that bring no byte; with the pauses between them, a minute of a server that is away."""
LONGEST_PAUSE_SECONDS = 30.0
RESERVE_BYTES = 64 * 1024 * 1024
"""Bytes that must stay free: others use the file system as well."""

pause: Callable[[float], object] = time.sleep
"""Waits before another try; shorter in tests."""


class Copy:
    """A copy of a source to its destination; ``workers`` files are fetched at once."""

    def __init__(self, destination: Destination, source: Source, progress: Progress, workers: int) -> None:
        self._destination, self._source, self._progress, self._workers = destination, source, progress, workers
        self._stopped = threading.Event()

    def run(self, *, replace: bool) -> tuple[dict[str, Any], bool]:
        """Copy all; return the marker, and whether anything was copied. ``replace`` copies anew what was staged before.
        StageError: the copy fails, however often it is tried. CopyInterruptedError: the copy cannot be done now."""
        destination = self._destination
        with destination.locked(lambda text: self._progress.tell(text, "waiting")):
            try:
                there = destination.complete(replace=replace)
                marker = there or self._copy()
                destination.tidy()
                return marker, there is None
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise CopyInterruptedError(
                        f"{error.filename or destination.directory}: {error.strerror or error}"
                    ) from error
                free = destination.free_bytes()
                raise StageError(f"{destination.directory}: {error.strerror}; {free:,} bytes are free") from None
            except StageError:
                destination.tidy(only_if_empty=True)
                raise

    def _copy(self) -> dict[str, Any]:
        request, tree = self._destination.request, self._destination.files
        found = list(self._source.list_files())
        files = [file for file in found if _matches(file, request["include"] or "*")]
        files = [file for file in files if not _matches(file, request["exclude"])]
        if not files:
            raise StageError(f"of the {len(found)} files of {request['source']}, --include and --exclude choose none")
        check_paths(files, request["source"])
        archives = [file.path for file in files if request["extract"] and file.path.lower().endswith(ENDINGS)]
        if request["extract"] and not archives:
            raise StageError(f"{request['source']} holds no archive to unpack")
        self._fetch_all(files)
        if archives:
            self._progress.begin("unpacking", sum((tree / path).stat().st_size for path in archives), len(archives))
            self._progress.tell()
            tree = unpack(tree, archives, self._destination.work, self._check_room, self._progress)
        return self._destination.appear(tree, files, self._source.revision)

    def _fetch_all(self, files: list[File]) -> None:
        missing = self._destination.missing(files)
        wanted, lacking = (sum(file.size or 0 for file in each) for each in (files, missing))
        self._progress.begin("copying", wanted, len(files), self._destination.part_bytes)
        self._progress.add(wanted - lacking, len(files) - len(missing))
        self._progress.tell()
        self._check_room(lacking - self._destination.part_bytes())
        # The largest first, so that none of them is left alone at the end.
        missing.sort(key=lambda file: file.size or 0, reverse=True)
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for each in as_completed([pool.submit(self._fetch, file) for file in missing]):
                    each.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch(self, file: File) -> None:
        """Fetch, verify and place one file."""
        part = self._destination.part(file)
        fetched = self._bytes(file, part)
        size, expected = part.stat().st_size, file.checksum or fetched.checksum
        sha256, got = fetched.measured or measure(part, expected.partition(":")[0] or "sha256")
        wrong = f"its checksum is {got}, and should be {expected}" if expected not in ("", got) else ""
        if file.size not in (None, size):
            wrong = f"it has {size:,} bytes, and should have {file.size:,}"
        if wrong:
            part.unlink()
            raise StageError(f"{file.where} came with wrong bytes: {wrong}")
        self._destination.place(file, sha256.removeprefix("sha256:"), expected)
        self._progress.add(size)

    def _bytes(self, file: File, part: Path) -> Fetched:
        """Fetch a file, again within limits where it is interrupted. A try that adds to its part counts as progress."""
        vain = 0
        while True:
            before = _size(part)
            try:
                return self._source.fetch(file, part)
            except CopyInterruptedError:
                vain = 0 if _size(part) > before else vain + 1
                if vain == ATTEMPTS or self._stopped.is_set():
                    raise
                pause(min(2.0**vain, LONGEST_PAUSE_SECONDS))

    def _check_room(self, needed: int) -> None:
        room = max(0, self._destination.free_bytes() - RESERVE_BYTES)
        if needed > room:
            raise StageError(
                f"{needed:,} bytes are to be written, and the file system of {self._destination.directory} "
                f"takes {room:,} more"
            )


def _matches(file: File, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(file.path, pattern) for pattern in patterns)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
