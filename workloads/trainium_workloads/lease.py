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
        self._directory, self._beat_seconds, self._dead_seconds = directory, beat_seconds, dead_seconds
        self._held = 0
        self._stopped = threading.Event()
        self._beating = threading.Thread(target=self._keep_beating, daemon=True)

    def holder(self) -> Holder | None:
        """Return the holder, dead or alive; None when the lease was given back."""
        newest = self._newest()
        if newest == 0 or (self._directory / f"{newest}.ended").exists():
            return None
        try:
            told = json.loads((self._directory / f"{newest}.json").read_text())
        except (OSError, ValueError, RecursionError):
            told = {}
        return Holder(newest, told if isinstance(told, dict) else {})

    def is_alive(self, holder: Holder) -> bool:
        """Watch a holder until it beats, gives the lease back or loses it, or is silent for too long; return whether
        it was seen to beat.

        Silence is counted in looks, not by the clock: while this process itself stands still (a machine with other
        work, a file system that fails over) it sees no beat, and no holder is dead for that.
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

    def take(self, told: Mapping[str, Any]) -> int:
        """Take the lease where it is free or its holder is dead.

        Args:
            told: description of the new holder.

        Returns:
            The generation that is held from now on.

        Raises:
            Lost: another process holds it, or was faster.
        """
        generation, holder = self._newest() + 1, self.holder()
        if holder is not None and self.is_alive(holder):
            raise Lost(str(holder))
        self._directory.mkdir(parents=True, exist_ok=True)
        part = self._directory / f"{uuid.uuid4().hex}.part"
        write_whole(part, json.dumps(told, indent=2).encode() + b"\n")
        try:
            os.link(part, self._directory / f"{generation}.json")
        except (FileExistsError, FileNotFoundError):
            # The second: a faster process has swept ours away.
            raise self._lost() from None
        finally:
            part.unlink(missing_ok=True)
        self._held = generation
        self._beat()
        self._beating.start()
        # Files of generations before the last two, and of takers that were killed. The newest must stay: its number
        # counts.
        for file in self._directory.iterdir():
            number = re.match(r"(\d+)\.", file.name)
            if file.suffix == ".part" or (number and int(number[1]) < generation - 1):
                file.unlink(missing_ok=True)
        return generation

    def check(self) -> None:
        """Raise Lost where another process has taken over the lease of this object."""
        if self._newest() != self._held:
            raise self._lost()

    def give_back(self) -> None:
        """End the generation that is held; a lost lease keeps its new holder."""
        self._stopped.set()
        if self._held:
            self._beating.join()
            # On a full disk nobody hears it, and it is over when it has been silent for a while.
            with contextlib.suppress(OSError):
                write_whole(self._directory / f"{self._held}.ended", b"")
        self._held = 0

    def _lost(self) -> Lost:
        return Lost(str(self.holder() or "somebody who is done"))

    def _keep_beating(self) -> None:
        while not self._stopped.wait(self._beat_seconds):
            with contextlib.suppress(OSError):  # a full disk; :meth:`check` shows a process that takes over for it
                self._beat()

    def _beat(self) -> None:
        with (self._directory / f"{self._held}.beats").open("ab") as beats:
            beats.write(b".")

    def _beats(self, generation: int) -> int:
        try:
            return (self._directory / f"{generation}.beats").stat().st_size
        except FileNotFoundError:
            return 0

    def _newest(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            found = (re.fullmatch(r"(\d+)\.json", name) for name in os.listdir(self._directory))
            return max((int(each[1]) for each in found if each), default=0)
        return 0


def write_whole(file: Path, content: bytes) -> None:
    """Write a file, and wait until it is on disk."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o664)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
