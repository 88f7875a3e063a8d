"""Checkpoints on a shared volume that are whole or not there, whatever kills the process that writes them.

A checkpoint is one file, ``step-00000120-<first 16 digits of its SHA-256>.ckpt``. It is written under another name and
gets this one by a rename once all of it is on disk, so its name says both that it is complete and what it must hold.
What was cut off has another name and is removed by the next save.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_NAME = re.compile(r"step-(\d{8,})-([0-9a-f]{16})\.ckpt")
_PART = ".part"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """One that is complete."""

    step: int
    """After which it was saved."""
    path: Path


class Checkpoints:
    """The checkpoints of one job. One process saves at a time; any number may load.

    Args:
        directory: made by the first save.
        keep: how many complete ones stay; at least 1.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, not {keep}")
        self._directory = directory
        self._keep = keep

    def save(self, step: int, write: Callable[[BinaryIO], None]) -> Checkpoint:
        """Saves a checkpoint; older ones beyond :attr:`keep` go once it is safe.

        Args:
            step: after which it is saved.
            write: writes the state, from beginning to end.

        Raises:
            OSError: it cannot be written, as on a full disk; those that were there stay.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        for left in self._directory.glob(f"*{_PART}"):
            left.unlink(missing_ok=True)
        part = self._directory / f"step-{step:08d}{_PART}"
        try:
            with part.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            path = self._directory / f"step-{step:08d}-{_digest(part)}.ckpt"
            os.replace(part, path)
            _sync(self._directory)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        saved = Checkpoint(step, path)
        for old in [each for each in self._complete() if each != saved][self._keep - 1 :]:
            old.path.unlink(missing_ok=True)
        return saved

    def latest(self, complain: Callable[[str], None] = lambda _: None) -> Checkpoint | None:
        """The newest checkpoint whose content is what its name says; None without one.

        Args:
            complain: told of each that is passed over, in a line.
        """
        for each in self._complete():
            try:
                found = _digest(each.path)
            except OSError as error:
                complain(f"checkpoint {each.path} cannot be read ({error.strerror}); the one before is used")
                continue
            if f"-{found}." in each.path.name:
                return each
            complain(f"checkpoint {each.path} is damaged (its SHA-256 is {found}…); the one before is used")
        return None

    def _complete(self) -> list[Checkpoint]:
        """By name, the newest first."""
        return sorted(self._named(), key=lambda each: (each.step, each.path.name), reverse=True)

    def _named(self) -> Iterator[Checkpoint]:
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if match := _NAME.fullmatch(path.name):
                    yield Checkpoint(int(match[1]), path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()[:16]


def _sync(directory: Path) -> None:
    """Makes a rename last through a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
