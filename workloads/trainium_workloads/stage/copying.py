"""One whole copy, from the source's listing to the destination with its marker."""

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from trainium_workloads.stage.destination import Destination
from trainium_workloads.stage.files import Changed, File, Interrupted, Source, StageError, check_paths, chosen, measure
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.unpacking import is_archive, unpack

ATTEMPTS = 6
"""Tries in a row that bring no byte; with the pauses between them, a minute of a server that is away."""
LONGEST_PAUSE_SECONDS = 30.0
RESERVE_BYTES = 64 * 1024 * 1024
"""Bytes that must stay free: others use the file system as well."""

pause: Callable[[float], object] = time.sleep
"""Waits before another try; shorter in tests."""

_T = TypeVar("_T")


def stage(
    destination: Destination, source: Source, progress: Progress, *, workers: int, replace: bool
) -> tuple[dict[str, Any], bool]:
    """Copy a source to its destination; return the marker, and whether anything was copied.

    Args:
        destination: with the request.
        source: of the request.
        progress: receives the counts.
        workers: files that are fetched at once.
        replace: copy anew what was staged there before.

    Raises:
        StageError: the copy fails, however often it is tried.
        Interrupted: the copy cannot be done now.
    """
    with destination.locked(lambda text: progress.tell(text, "waiting")):
        try:
            if (marker := destination.complete(replace=replace)) is not None:
                destination.tidy()
                return marker, False
            return _Copy(destination, source, progress, workers).run(), True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise Interrupted(f"{error.filename or destination.directory}: {error.strerror or error}") from error
            free = destination.free_bytes()
            raise StageError(f"{destination.directory}: {error.strerror}; {free:,} bytes are free") from None
        except StageError:
            destination.tidy(only_if_empty=True)
            raise


class _Copy:
    """Threads that fetch, verify and place the files of one listing."""

    def __init__(self, destination: Destination, source: Source, progress: Progress, workers: int) -> None:
        self._destination = destination
        self._source = source
        self._progress = progress
        self._workers = workers
        self._stopped = threading.Event()

    def run(self) -> dict[str, Any]:
        """Copy all, and return the marker; see :func:`stage`."""
        request, tree = self._destination.request, self._destination.files
        found = self._patiently(lambda: list(self._source.list_files()))
        files = chosen(found, request["include"], request["exclude"])
        if not files:
            raise StageError(f"of the {len(found)} files of {request['source']}, --include and --exclude choose none")
        check_paths(files, request["source"])
        archives = [file.path for file in files if request["extract"] and is_archive(file.path)]
        if request["extract"] and not archives:
            raise StageError(f"{request['source']} holds no archive to unpack")
        self._fetch_all(files)
        if archives:
            read = sum((tree / path).stat().st_size for path in archives)
            self._progress.begin("unpacking", read, len(archives))
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
        waiting = deque(sorted(missing, key=lambda file: -(file.size or 0)))

        def work() -> None:
            while not self._stopped.is_set():
                try:
                    file = waiting.popleft()
                except IndexError:
                    return
                try:
                    self._fetch(file)
                except BaseException:
                    self._stopped.set()
                    raise

        with ThreadPoolExecutor(self._workers) as pool:
            for each in [pool.submit(work) for _ in range(min(self._workers, len(missing)))]:
                each.result()

    def _fetch(self, file: File) -> None:
        """Fetch, verify and place one file; fetch it once more where its bytes are wrong."""
        part = self._destination.part(file)
        for is_last in (False, True):
            answered = self._patiently(lambda: self._source.fetch(file, part), part)
            size, expected = part.stat().st_size, file.checksum or answered
            sha256, got = measure(part, expected)
            if file.size not in (None, size):
                wrong = f"it has {size:,} bytes, and should have {file.size:,}"
            elif expected and expected.value != got:
                wrong = f"its {expected.kind} is {got}, and should be {expected.value}"
            else:
                self._destination.place(file, sha256, str(expected or ""))
                self._progress.add(size)
                return
            part.unlink()
            if is_last:
                raise StageError(f"{file.where} came twice with wrong bytes: {wrong}")
            self._progress.tell(f"{file.path} came with wrong bytes ({wrong}): fetched again")

    def _patiently(self, call: Callable[[], _T], part: Path | None = None) -> _T:
        """Return a call's result; call again within limits where it is interrupted. A try that adds to the part on the
        disk is none in vain."""
        vain = 0
        while True:
            before = _size(part)
            try:
                return call()
            except Changed:
                raise
            except Interrupted:
                vain = 0 if _size(part) > before else vain + 1
                if vain >= ATTEMPTS or self._stopped.is_set():
                    raise
                pause(min(2.0**vain, LONGEST_PAUSE_SECONDS))

    def _check_room(self, needed: int) -> None:
        room = max(0, self._destination.free_bytes() - RESERVE_BYTES)
        if needed > room:
            raise StageError(
                f"{needed:,} bytes are to be written, and the file system of {self._destination.directory} "
                f"takes {room:,} more"
            )


def _size(part: Path | None) -> int:
    return part.stat().st_size if part and part.exists() else 0
