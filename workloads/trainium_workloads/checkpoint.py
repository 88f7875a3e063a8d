"""Checkpoints on a shared volume that are whole or not there, also when the process that writes them is killed.

A checkpoint is a directory ``step-00000120-<first 16 digits of a SHA-256>.ckpt``: its files, and ``SHA256SUMS`` with
the SHA-256 of each; the digits are of that list. The directory is written under another name and renamed once all of it
is on disk, so its name says both that it is complete and which digest it must have. An interrupted checkpoint has
another name and is removed by the next save. ``latest`` is a link to the newest complete checkpoint, for people and for
programs that use the model.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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


class Checkpoints:
    """The checkpoints of one job, of which the newest ``keep`` complete ones stay. One save at a time; any number of
    processes may load."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, not {keep}")
        self._directory = directory
        self._keep = keep
        self.best_step = 0
        """Another step whose checkpoint is kept; 0 for none."""

    def begin(self, step: int) -> Path:
        """Make the directory that all ranks write their files into; one process calls this, before the others write.
        :meth:`complete` makes it a checkpoint."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for left in self._directory.glob(f"*{_PART}"):
            _remove(left)
        part = self._part(step)
        part.mkdir()
        return part

    def complete(self, step: int, sums: Mapping[str, str]) -> Checkpoint:
        """Make a checkpoint of the directory of :meth:`begin`, and delete older ones beyond ``keep``; one process calls
        this, after all have written. ``sums`` map each file's name to its SHA-256, by :func:`sealed`. After an OSError
        earlier checkpoints stay."""
        part = self._part(step)
        try:
            (part / _SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), encoding="utf-8")
            path = self._directory / f"step-{step:08d}-{sealed(part / _SUMS)[:16]}.ckpt"
            sync(part)
            if path.is_dir():  # the same content, saved before: a directory cannot be replaced
                shutil.rmtree(part)
            else:
                part.rename(path)
            sync(self._directory)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        saved = Checkpoint(step, path)
        self._point_at(path)
        for old in [each for each in self._complete() if each != saved][self._keep - 1 :]:
            if old.step == self.best_step:
                continue
            half = old.path.with_suffix(_PART)  # otherwise half of it would still have the name of a complete one
            old.path.rename(half)
            _remove(half)
        return saved

    def latest(self, complain: Callable[[str], None] = lambda _: None) -> Checkpoint | None:
        """Return the newest checkpoint that is not damaged; None without one. ``complain`` gets a line for each that is
        passed over."""
        for each in self._complete():
            try:
                fault = f"is damaged ({damage})" if (damage := _damage(each.path)) else ""
            except OSError as error:
                fault = f"cannot be read ({error.strerror})"
            if not fault:
                return each
            complain(f"checkpoint {each.path} {fault}; looking at the one before")
        return None

    def at(self, step: int) -> Path | None:
        """Return the path of a step's checkpoint, or None if there is no intact one."""
        with suppress(OSError):
            return next((each.path for each in self._complete() if each.step == step and not _damage(each.path)), None)
        return None

    def _part(self, step: int) -> Path:
        return self._directory / f"step-{step:08d}{_PART}"

    def _point_at(self, path: Path) -> None:
        """Point ``latest`` at a checkpoint, where the file system has symbolic links."""
        link = self._directory / f"latest{_PART}"
        with suppress(OSError):
            link.symlink_to(path.name)
            link.replace(self._directory / "latest")

    def _complete(self) -> list[Checkpoint]:
        """Return the complete checkpoints, the newest first."""
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        found = [Checkpoint(int(match[1]), path) for path in paths if (match := _NAME.fullmatch(path.name))]
        return sorted(found, key=lambda each: (each.step, each.path.name), reverse=True)


def sealed(path: Path) -> str:
    """Write a file's content through to the disk; return its SHA-256, in hexadecimal digits."""
    sync(path)
    return sha256(path)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error behind a failed write; None for an error of another kind.

    On a full disk PyTorch's writer raises a RuntimeError about its own position ("unexpected pos").
    """
    while isinstance(error, RuntimeError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, OSError) else None


def _damage(path: Path) -> str:
    """Return the damage of a checkpoint, in a few words; empty without damage."""
    found = sha256(path / _SUMS)[:16]
    if f"-{found}." not in path.name:
        return f"the SHA-256 of {_SUMS} begins with {found}"
    lines = (path / _SUMS).read_text(encoding="utf-8").splitlines()
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


def sync(*paths: Path) -> None:
    """Write files and directories through to the disk: a rename must not be there before the files that it names."""
    for each in paths:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
