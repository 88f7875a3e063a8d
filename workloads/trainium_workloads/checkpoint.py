"""Checkpoints on a shared volume that are whole or not there, also when the process that writes them is killed.

A checkpoint is one file, ``step-00000120-<first 16 digits of its SHA-256>.ckpt``, or, where each rank writes a part, a
directory of such a name with the SHA-256 of each file in ``SHA256SUMS``, and the digest of that file in its name. It is
written under another name and renamed once all of it is on disk, so its name says both that it is complete and which
digest it must have. An interrupted checkpoint has another name and is removed by the next save. ``latest`` is a link to
the newest complete checkpoint, for people and for programs that use the model.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_NAME = re.compile(r"step-(\d{8,})-([0-9a-f]{16})\.ckpt")
_PART = ".part"
_SUMS = "SHA256SUMS"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    """Step after which it was saved."""
    path: Path


def os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error behind a failed write; None for an error of another kind.

    On a full disk PyTorch's writer raises a RuntimeError about its own position ("unexpected pos").
    """
    while isinstance(error, RuntimeError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, OSError) else None


class Checkpoints:
    """The checkpoints of one job. One process saves at a time; any number may load.

    Args:
        directory: made by the first save.
        keep: number of complete checkpoints that stay; at least 1.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, not {keep}")
        self._directory = directory
        self._keep = keep

    def save(self, step: int, write: Callable[[BinaryIO], None]) -> Checkpoint:
        """Save a checkpoint; delete older ones beyond ``keep`` once it is safe.

        Args:
            step: after which it is saved.
            write: writes the state, from beginning to end.

        Raises:
            OSError: it cannot be written, as on a full disk; earlier checkpoints stay.
        """
        self._make_room()
        part = self._part(step)
        try:
            with part.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            return self._completed(step, part, _digest(part))
        except BaseException as error:
            part.unlink(missing_ok=True)
            cause = os_error(error)
            if cause is None or cause.errno is None:
                raise
            raise OSError(cause.errno, os.strerror(cause.errno), str(self._directory)) from error

    def begin_directory(self, step: int) -> Path:
        """Make the directory that all ranks write their parts into; one process calls this, before the others write.
        :meth:`complete_directory` makes it a checkpoint.

        Raises:
            OSError: it cannot be made.
        """
        self._make_room()
        part = self._part(step)
        part.mkdir()
        return part

    def complete_directory(self, step: int, sums: Mapping[str, str]) -> Checkpoint:
        """Make a checkpoint of the directory of :meth:`begin_directory`; one process calls this, after all have
        written.

        Args:
            step: after which it is saved.
            sums: SHA-256 of each file (:func:`sha256`), by its name. Each has been synced.

        Raises:
            OSError: it cannot be written; earlier checkpoints stay.
        """
        part = self._part(step)
        try:
            with (part / _SUMS).open("w", encoding="utf-8") as file:
                file.writelines(f"{sums[name]}  {name}\n" for name in sorted(sums))
                file.flush()
                os.fsync(file.fileno())
            _sync(part)
            return self._completed(step, part, _digest(part / _SUMS))
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _part(self, step: int) -> Path:
        return self._directory / f"step-{step:08d}{_PART}"

    def _make_room(self) -> None:
        """Remove the leftovers of an interrupted save."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for left in self._directory.glob(f"*{_PART}"):
            _remove(left)

    def _completed(self, step: int, part: Path, digest: str) -> Checkpoint:
        path = self._directory / f"step-{step:08d}-{digest}.ckpt"
        if path.is_dir():  # the same content, saved before: a directory cannot be replaced
            shutil.rmtree(part)
        else:
            os.replace(part, path)
        _sync(self._directory)
        saved = Checkpoint(step, path)
        self._point_at(path)
        for old in [each for each in self._complete() if each != saved][self._keep - 1 :]:
            if old.path.is_dir():  # otherwise half of it would still have the name of a complete one
                half = old.path.with_suffix(_PART)
                os.replace(old.path, half)
                _remove(half)
            else:
                _remove(old.path)
        return saved

    def _point_at(self, path: Path) -> None:
        """Point ``latest`` at a checkpoint, as a convenience: a file system without symbolic links has no
        ``latest``."""
        link = self._directory / f"latest{_PART}"
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)
            os.replace(link, self._directory / "latest")
        except OSError:
            link.unlink(missing_ok=True)

    def latest(self, complain: Callable[[str], None] = lambda _: None) -> Checkpoint | None:
        """Return the newest checkpoint that has the digest in its name; None without one.

        Args:
            complain: receives a line for each checkpoint that is passed over.
        """
        for each in self._complete():
            try:
                damage = _damage(each.path)
            except OSError as error:
                complain(f"checkpoint {each.path} cannot be read ({error.strerror}); looking at the one before")
                continue
            if not damage:
                return each
            complain(f"checkpoint {each.path} is damaged ({damage}); looking at the one before")
        return None

    def _complete(self) -> list[Checkpoint]:
        """Return the complete checkpoints, the newest first."""
        return sorted(self._named(), key=lambda each: (each.step, each.path.name), reverse=True)

    def _named(self) -> Iterator[Checkpoint]:
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if match := _NAME.fullmatch(path.name):
                    yield Checkpoint(int(match[1]), path)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    """Return the digits of a file's SHA-256 for a checkpoint's name."""
    return sha256(path)[:16]


def _damage(path: Path) -> str:
    """Return the damage of a checkpoint, in a few words; empty without damage."""
    of_name = path / _SUMS if path.is_dir() else path
    found = _digest(of_name)
    if f"-{found}." not in path.name:
        return f"the SHA-256 of {of_name.name} begins with {found}"
    if not path.is_dir():
        return ""
    lines = of_name.read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    # hashlib lets other threads run meanwhile: a checkpoint of 100 GB is read at the volume's speed.
    with ThreadPoolExecutor() as pool:
        same = pool.map(lambda name: sha256(path / name) == sums[name], sums)
        return ", ".join(name for name, is_same in zip(sums, same, strict=True) if not is_same)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Make a rename last through a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
