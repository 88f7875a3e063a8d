"""Leases: the right to write for one process of many, on machines that share nothing but a file system.

A lease needs only operations that every POSIX file system does atomically for all its clients, Lustre among them:
``link``, ``rename`` and creating a file that must not exist. No ``flock`` (Lustre has it only where it is mounted so),
and no clock of another machine: a holder makes a file longer as long as it lives, and a waiting process watches the
file for a while.

A lease has generations. ``7.json`` names the holder of the seventh, appears whole or not at all, and stays; the seventh
is over when ``7.ended`` is there, or when ``8.json`` is. So a holder wrongly taken for dead learns that it lost the
lease, and two processes that take over the same generation cannot both succeed.
"""

import contextlib
import json
import math
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
"""Silence after which a holder is dead: its machine is gone, or as good as gone."""

_HOLDER = re.compile(r"(\d+)\.json")


@dataclass(frozen=True)
class Holder:
    """One generation of a lease."""

    generation: int
    told: Mapping[str, Any]
    """Description of the holder: ``who``, ``job``, ``since``."""

    def __str__(self) -> str:
        return f"{self.told.get('who', 'somebody')} since {self.told.get('since', '?')}"


class Lost(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Error of a lease with another holder; the message names it."""


class Lease:
    """A lease in a directory.

    Args:
        directory: of this lease alone; made when it is taken.
        beat_seconds: pause between a holder's signs of life.
        dead_seconds: silence after which a holder is dead.
    """

    def __init__(self, directory: Path, beat_seconds: float = BEAT_SECONDS, dead_seconds: float = DEAD_SECONDS) -> None:
        self._directory = directory
        self._beat_seconds = beat_seconds
        self._dead_seconds = dead_seconds
        self._held = 0
        self._stopped = threading.Event()
        self._beating: threading.Thread | None = None

    def holder(self) -> Holder | None:
        """Return the holder, dead or alive; None when the lease was given back."""
        newest = self._newest()
        if newest == 0 or (self._directory / f"{newest}.ended").exists():
            return None
        return Holder(newest, self._told(newest))

    def is_alive(self, holder: Holder) -> bool:
        """Watch a holder until it beats, gives the lease back or loses it, or is silent for too long.

        Silence is counted in looks, not by the clock: while this process itself stands still (a machine with other
        work, a file system that fails over) it sees no beat, and no holder is dead for that.

        Returns:
            Whether it was seen to beat.
        """
        before = self._beats(holder.generation)
        pause = min(0.2, self._dead_seconds / 10)
        for _ in range(math.ceil(self._dead_seconds / pause)):
            time.sleep(pause)
            now = self.holder()
            if now is None or now.generation != holder.generation:
                return False
            if self._beats(holder.generation) != before:
                return True
        return False

    def take(self, told: Mapping[str, Any], over: Holder | None = None) -> int:
        """Take the lease, which is free or has a dead holder.

        Args:
            told: description of the new holder.
            over: the dead holder.

        Returns:
            The generation that is held from now on.

        Raises:
            Lost: another process was faster.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        generation = self._newest() + 1
        if over is not None and over.generation != generation - 1:
            raise Lost(str(self.holder() or "somebody who is done"))
        part = self._directory / f"{uuid.uuid4().hex}.part"
        write_whole(part, json.dumps(told, indent=2).encode() + b"\n")
        try:
            os.link(part, self._directory / f"{generation}.json")
        except (FileExistsError, FileNotFoundError):
            # The second: a faster process has swept ours away.
            raise Lost(str(self.holder() or "somebody who is done")) from None
        finally:
            part.unlink(missing_ok=True)
        self._held = generation
        self._beat()
        self._sweep()
        self._beating = threading.Thread(target=self._keep_beating, daemon=True)
        self._beating.start()
        return generation

    def check(self) -> None:
        """Check that no process has taken over the lease of this object.

        Raises:
            Lost: a process has.
        """
        if self._newest() != self._held:
            raise Lost(str(self.holder() or "somebody who is done"))

    def give_back(self) -> None:
        """End the generation that is held; a lost lease keeps its new holder."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.join()
        if self._held:
            # On a full disk nobody hears it, and it is over when it has been silent for a while.
            with contextlib.suppress(OSError):
                write_whole(self._directory / f"{self._held}.ended", b"")
        self._held = 0

    def _keep_beating(self) -> None:
        while not self._stopped.wait(self._beat_seconds):
            try:
                self._beat()
            except OSError:
                continue  # a full disk; :meth:`check` shows a process that takes over for it

    def _beat(self) -> None:
        descriptor = os.open(
            self._directory / f"{self._held}.beats", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o664
        )
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)

    def _beats(self, generation: int) -> int:
        try:
            return (self._directory / f"{generation}.beats").stat().st_size
        except FileNotFoundError:
            return 0

    def _newest(self) -> int:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return 0
        return max((int(match[1]) for name in names if (match := _HOLDER.fullmatch(name))), default=0)

    def _told(self, generation: int) -> Mapping[str, Any]:
        try:
            told = json.loads((self._directory / f"{generation}.json").read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def _sweep(self) -> None:
        """Remove files of generations before the last two, and of takers that were killed. The newest must stay,
        for its number counts."""
        for file in self._directory.iterdir():
            number = re.match(r"(\d+)\.", file.name)
            if file.suffix == ".part" or (number and int(number[1]) < self._held - 1):
                file.unlink(missing_ok=True)


def write_whole(file: Path, content: bytes) -> None:
    """Write a file, and wait until it is on disk."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o664)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
