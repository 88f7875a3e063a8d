"""One whole copy, from the source's name to the destination with its marker."""

import errno
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_workloads.stage import listing as listings
from trainium_workloads.stage.destination import Destination, read_marker
from trainium_workloads.stage.files import File, Interrupted, Listing, StageError, total_bytes
from trainium_workloads.stage.listing import Selection
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.transfer import CHUNK_BYTES, Transfer
from trainium_workloads.stage.unpacking import Unpacking, is_archive
from trainium_workloads.stage.web import Web

WORKERS = 16
"""Chunks or files that are fetched at once. Each holds a mebibyte in memory."""
RESERVE_BYTES = 64 * 1024 * 1024
"""Bytes that must stay free: the file system is shared."""


@dataclass(frozen=True)
class Settings:
    """Settings of a copy; none of them changes the content."""

    workers: int = WORKERS
    chunk_bytes: int = CHUNK_BYTES
    replace: bool = False
    """Whether a data set that was staged there before is copied anew."""


def stage(
    destination: Destination,
    web: Web,
    progress: Progress,
    settings: Settings,
    environment: Mapping[str, str] = os.environ,
) -> tuple[dict[str, Any], bool]:
    """Copy a source to its destination; return the marker, and whether anything was copied.

    Raises:
        StageError: it cannot be done.
        Interrupted: not now.
    """
    with destination.locked(lambda text: progress.tell(text, "waiting")):
        if not settings.replace:
            marker = destination.complete()
            if marker is not None:
                destination.tidy()
                return marker, False
        elif destination.directory.exists():
            _check_replaceable(destination)
        try:
            _copy(destination, web, progress, settings, environment)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = destination.free_bytes()
                raise StageError(f"{destination.directory}: {error.strerror}; {free:,} bytes are free") from None
            raise Interrupted(f"{error.filename or destination.directory}: {error.strerror}") from error
        except StageError:
            destination.tidy_if_empty()
            raise
        marker = destination.complete()
        assert marker is not None  # it has just appeared
        return marker, True


def _check_replaceable(destination: Destination) -> None:
    directory = destination.directory
    if directory.is_dir() and (read_marker(directory) is not None or not any(directory.iterdir())):
        return
    raise StageError(f"{directory} was not staged, and --replace throws away only what was: move it away yourself")


def _copy(
    destination: Destination, web: Web, progress: Progress, settings: Settings, environment: Mapping[str, str]
) -> None:
    request = destination.request
    destination.prepare(replace=settings.replace)
    if not destination.is_ready:
        found = listings.list_files(
            request.source,
            web,
            is_manifest=request.is_manifest,
            selection=Selection(request.include, request.exclude),
            environment=environment,
        )
        archives = [file.path for file in found.files if request.extract and is_archive(file.path)]
        if request.extract and not archives:
            raise StageError(f"{request.source} holds no archive to unpack")
        unpacking = Unpacking(destination.files.parent, destination.files)
        if not unpacking.is_merging:
            _Copier(destination, web, progress, settings).run(found)
        if archives:
            read = sum((destination.files / path).stat().st_size for path in archives if not unpacking.is_merging)
            progress.begin("unpacking", total_bytes=read, total_files=len(archives))
            unpacking.unpack(archives, destination.free_bytes, progress.add)
        destination.seal(found)
    destination.appear(replace=settings.replace)


class _Copier:
    """Threads that fetch, verify and place the files of one listing."""

    def __init__(self, destination: Destination, web: Web, progress: Progress, settings: Settings) -> None:
        self._destination = destination
        self._web = web
        self._progress = progress
        self._settings = settings
        self._lock = threading.Lock()
        self._tasks: deque[tuple[Transfer, int | None]] = deque()
        self._waiting: queue.SimpleQueue[File] = queue.SimpleQueue()
        self._tries: dict[str, int] = {}
        self._failed: list[BaseException] = []
        self._open = 0
        """Files that are not placed yet."""

    def run(self, found: Listing) -> None:
        """Fetch the missing files.

        Raises:
            StageError: no room, refused, or bytes with another checksum than the source's, twice.
            Interrupted: breaks off again and again.
        """
        missing = self._destination.missing(found.files)
        have = total_bytes(found.files) - total_bytes(missing)
        self._progress.begin(
            "copying",
            total_bytes=total_bytes(found.files),
            total_files=len(found.files),
            bytes=have,
            files=len(found.files) - len(missing),
        )
        self._check_room(missing)
        # The largest first, so that none of them is left alone at the end.
        for file in sorted(missing, key=lambda each: -(each.size or 0)):
            self._waiting.put(file)
        self._open = len(missing)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._settings.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _check_room(self, missing: Sequence[File]) -> None:
        here = sum(_allocated(self._destination, file) for file in missing)
        needed = max(0, total_bytes(missing) - here)
        free = self._destination.free_bytes()
        if needed + RESERVE_BYTES > free:
            raise StageError(
                f"{needed:,} bytes are to be copied, and the file system of {self._destination.directory} "
                f"takes {max(0, free - RESERVE_BYTES):,} more"
            )

    def _work(self) -> None:
        while not self._failed:
            task = self._next()
            if task is None:
                return
            transfer, index = task
            if transfer is None:
                time.sleep(0.02)  # another thread fetches the last ones, and may put them back
                continue
            try:
                if index is None or transfer.fetch(index):
                    self._finish(transfer)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                self._failed.append(error)

    def _next(self) -> tuple[Transfer | None, int | None] | None:
        """Return the next task: a chunk, or a complete file without an index; nothing for now; or nothing any more."""
        with self._lock:
            if self._tasks:
                return self._tasks.popleft()
            if not self._open:
                return None
            try:
                file = self._waiting.get_nowait()
            except queue.Empty:
                return None, None
            transfer = Transfer(
                file,
                self._destination.part(file),
                self._web,
                self._progress,
                chunk_bytes=self._settings.chunk_bytes,
            )
            pending = transfer.pending
            self._tasks.extend((transfer, index) for index in pending[1:])
            return transfer, pending[0] if pending else None

    def _finish(self, transfer: Transfer) -> None:
        """Verify a file with all its bytes, and place it; fetch it once more where they are wrong."""
        file = transfer.file
        wanted, got = transfer.verify()
        if wanted is None or wanted.value == got:
            transfer.place(self._destination.files / file.path)
            self._destination.note(file, str(wanted or ""))
            self._progress.finish_file()
            with self._lock:
                self._open -= 1
            return
        with self._lock:
            self._tries[file.path] = self._tries.get(file.path, 0) + 1
            is_last = self._tries[file.path] > 1
        transfer.restart()
        if is_last:
            raise StageError(
                f"{file.url} came twice with wrong bytes: its {wanted.kind} is {got}, and should be {wanted.value}"
            )
        self._progress.tell(f"{file.path} came with wrong bytes ({wanted.kind} {got}): fetched again")
        with self._lock:
            self._tasks.extend((transfer, index) for index in transfer.pending)


def _allocated(destination: Destination, file: File) -> int:
    """Return the bytes on the disk of a part, which has holes for missing chunks."""
    try:
        return destination.part(file).stat().st_blocks * 512
    except OSError:
        return 0
