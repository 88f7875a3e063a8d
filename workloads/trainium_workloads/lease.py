"""Who may write: one process of many, on machines that share nothing but a file system.

Made of what every POSIX file system does atomically for all its clients, Lustre among them: ``link``, ``rename`` and
creating a file that must not exist. No ``flock`` (Lustre has it only where it is mounted so), and no clock of another
machine: a holder makes a file longer as long as it lives, and whoever waits watches the file for a while by a clock of
its own.

A lease has generations. ``7.json`` says who holds the seventh, appears whole or not at all, and stays; it is over when
``7.ended`` is there, or when ``8.json`` is. So one that was taken for dead and was not learns that it lost the lease,
and two that take the same one over cannot both succeed.
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
"""A holder that is silent for so long is dead: its machine is gone, or as good as gone."""

_HOLDER = re.compile(r"(\d+)\.json")


@dataclass(frozen=True)
class Holder:
    """One generation of a lease."""

    generation: int
    told: Mapping[str, Any]
    """What the holder says of itself: ``who``, ``job``, ``since``."""

    def __str__(self) -> str:
        return f"{self.told.get('who', 'somebody')} since {self.told.get('since', '?')}"


class Lost(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Somebody else has the lease now; the message says who."""


class Lease:
    """The lease of one thing.

    Args:
        directory: of this lease alone; made when it is taken.
        beat_seconds: how often a holder says that it lives.
        dead_seconds: how long it may be silent.
    """

    def __init__(self, directory: Path, beat_seconds: float = BEAT_SECONDS, dead_seconds: float = DEAD_SECONDS) -> None:
        self._directory = directory
        self._beat_seconds = beat_seconds
        self._dead_seconds = dead_seconds
        self._held = 0
        self._stopped = threading.Event()
        self._beating: threading.Thread | None = None

    def holder(self) -> Holder | None:
        """Who has it, dead or alive; nobody when it was given back."""
        newest = self._newest()
        if newest == 0 or (self._directory / f"{newest}.ended").exists():
            return None
        return Holder(newest, self._told(newest))

    def is_alive(self, holder: Holder) -> bool:
        """Watches a holder until it beats, gives the lease back or loses it, or is silent for too long.

        Silence is counted in looks, not by the clock: while this process itself stands still (a machine with other
        work, a file system that fails over) it hears nobody, and nobody is dead for that.

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
        """Takes the lease, which is free, or whose holder is dead.

        Args:
            told: what to say of the new holder.
            over: the dead holder.

        Returns:
            The generation that is held from now on.

        Raises:
            Lost: somebody else was faster.
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
            # The second: whoever was faster has swept ours away.
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
        """Makes sure that nobody has taken over what this object took.

        Raises:
            Lost: somebody has.
        """
        if self._newest() != self._held:
            raise Lost(str(self.holder() or "somebody who is done"))

    def give_back(self) -> None:
        """Ends the generation that is held; nothing if it was lost."""
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
                continue  # a full disk; whoever takes over for it tells us

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
        """Removes what generations before the last two left, and takers that were killed. The newest must stay, for
        its number counts."""
        for file in self._directory.iterdir():
            number = re.match(r"(\d+)\.", file.name)
            if file.suffix == ".part" or (number and int(number[1]) < self._held - 1):
                file.unlink(missing_ok=True)


def write_whole(file: Path, content: bytes) -> None:
    """Writes a new file, and waits until it is on disk."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o664)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
