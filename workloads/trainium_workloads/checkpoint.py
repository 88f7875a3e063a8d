"""Checkpoints on a shared volume that are whole or not there, whatever kills the process that writes them.

A checkpoint is one file, ``step-00000120-<first 16 digits of its SHA-256>.ckpt``, or, where each rank writes its own
part, a directory of such a name with the SHA-256 of each file in ``SHA256SUMS``, whose own digest is in the name. It is
written under another name and gets this one by a rename once all of it is on disk, so its name says both that it is
complete and what it must hold. What was cut off has another name and is removed by the next save. ``latest`` is a link
to the newest complete one, for people and for programs that use the model.
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
    """One that is complete."""

    step: int
    """After which it was saved."""
    path: Path


def os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error that a failed write comes from; None for an error of another kind.

    PyTorch's writer makes a RuntimeError about its own position ("unexpected pos") of a full disk.
    """
    while isinstance(error, RuntimeError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, OSError) else None


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
        """Makes the directory that all ranks write their parts into; one process calls this, before the others write.
        :meth:`complete_directory` makes it a checkpoint.

        Raises:
            OSError: it cannot be made.
        """
        self._make_room()
        part = self._part(step)
        part.mkdir()
        return part

    def complete_directory(self, step: int, sums: Mapping[str, str]) -> Checkpoint:
        """Makes a checkpoint of what :meth:`begin_directory` began; one process calls this, after all have written.

        Args:
            step: after which it is saved.
            sums: SHA-256 of each file (:func:`sha256`), by its name. Each has been synced.

        Raises:
            OSError: it cannot be written; those that were there stay.
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
        """Removes what an earlier save left behind."""
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
        """A convenience: a file system without symbolic links has no ``latest``."""
        link = self._directory / f"latest{_PART}"
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)
            os.replace(link, self._directory / "latest")
        except OSError:
            link.unlink(missing_ok=True)

    def latest(self, complain: Callable[[str], None] = lambda _: None) -> Checkpoint | None:
        """The newest checkpoint whose content is what its name says; None without one.

        Args:
            complain: told of each that is passed over, in a line.
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
        """By name, the newest first."""
        return sorted(self._named(), key=lambda each: (each.step, each.path.name), reverse=True)

    def _named(self) -> Iterator[Checkpoint]:
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if match := _NAME.fullmatch(path.name):
                    yield Checkpoint(int(match[1]), path)


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    """What stands in a checkpoint's name."""
    return sha256(path)[:16]


def _damage(path: Path) -> str:
    """What of a checkpoint is not as it was written, in a few words; empty when nothing is."""
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
    """Makes a rename last through a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
