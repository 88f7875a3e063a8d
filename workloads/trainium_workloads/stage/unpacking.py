"""Unpacking of archives in their place; the archives are deleted afterwards.

An archive is unpacked whole beside the files and then renamed, so that a kill leaves nothing half unpacked. Members are
taken by tarfile's ``data`` filter (PEP 706): none leaves the directory, by name or by link, and none is a device.
"""

import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from trainium_workloads.stage.checksums import BUFFER
from trainium_workloads.stage.files import RESERVED, StageError, safe_path

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ZIP = (".zip",)
ENDINGS = (*TAR, *ZIP)
"""Endings of archives' names."""

Progress = Callable[[int], object]
"""Receives the number of further bytes read from the archive."""


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its name."""
    return path.lower().endswith(ENDINGS)


class Unpacking:
    """The archives of one destination while it is made, in separate directories until all are unpacked."""

    def __init__(self, work: Path, files: Path) -> None:
        self._files = files
        self._unpacked = work / "unpacked"
        self._scratch = work / "unpacking"
        self._merging = work / "merging"

    @property
    def is_merging(self) -> bool:
        """Whether all archives are unpacked, and their content is being moved to its place."""
        return self._merging.exists()

    def unpack(self, archives: Iterable[str], free_bytes: Callable[[], int], progress: Progress) -> None:
        """Unpack the remaining archives, and move all content to its place.

        Args:
            archives: paths below the files.
            free_bytes: returns the free bytes of the file system.
            progress: of reading them.

        Raises:
            StageError: an archive is broken, reaches outside, or holds a file of another.
        """
        self._unpacked.mkdir(exist_ok=True)
        names = list(archives)
        if not self.is_merging:
            for number, name in enumerate(names):
                place = self._unpacked / str(number)
                if place.exists():
                    progress((self._files / name).stat().st_size)
                    continue
                shutil.rmtree(self._scratch, ignore_errors=True)
                self._scratch.mkdir()
                self._unpack(self._files / name, "/" not in name, free_bytes, progress)
                os.rename(_without_own_directory(self._scratch, name), place)
            self._merging.touch()
        for number, name in enumerate(names):
            archive = self._files / name
            archive.unlink(missing_ok=True)
            _merge(self._unpacked / str(number), archive.parent, name)

    def _unpack(self, archive: Path, at_top: bool, free_bytes: Callable[[], int], progress: Progress) -> None:
        try:
            if archive.name.lower().endswith(ZIP):
                self._unzip(archive, at_top, free_bytes, progress)
            else:
                self._untar(archive, at_top, free_bytes, progress)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise StageError(f"{archive.name} cannot be unpacked: {error}") from None

    def _untar(self, archive: Path, at_top: bool, free_bytes: Callable[[], int], progress: Progress) -> None:
        if not hasattr(tarfile, "data_filter"):
            raise StageError("this Python cannot unpack safely: it takes 3.12, or a late 3.10 or 3.11 (PEP 706)")
        if archive.name.lower().endswith(".tar"):
            _check_room(archive, archive.stat().st_size, free_bytes())
        with _Counted(archive, progress) as file, tarfile.open(fileobj=file, mode="r|*") as tar:
            for member in tar:
                _check_name(member.name, at_top, archive)
                tar.extract(member, self._scratch, filter="data")

    def _unzip(self, archive: Path, at_top: bool, free_bytes: Callable[[], int], progress: Progress) -> None:
        with zipfile.ZipFile(archive) as found:
            members = found.infolist()
            _check_room(archive, sum(member.file_size for member in members), free_bytes())
            for member in members:
                name = member.filename.rstrip("/")
                _check_name(name, at_top, archive)
                target = self._scratch / safe_path(name, archive.name)
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise StageError(f"{archive.name} holds a link, {name}, which is not unpacked from zip files")
                if member.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with found.open(member) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, BUFFER)
                progress(member.compress_size)


def _without_own_directory(unpacked: Path, archive: str) -> Path:
    """Return the directory with the content: for an archive ``set.tar`` that holds only a directory ``set``, that
    directory, so that the copy has no ``set/set``."""
    entries = list(unpacked.iterdir())
    name = archive.rpartition("/")[2]
    stem = next(
        name[: -len(ending)] for ending in sorted(ENDINGS, key=len, reverse=True) if name.lower().endswith(ending)
    )
    is_own = len(entries) == 1 and entries[0].name == stem and entries[0].is_dir() and not entries[0].is_symlink()
    return entries[0] if is_own else unpacked


class _Counted(io.FileIO):
    """File that reports the bytes read from it."""

    def __init__(self, path: Path, progress: Progress) -> None:
        super().__init__(path)
        self._progress = progress

    def read(self, amount: int | None = -1) -> bytes:
        piece = super().read(-1 if amount is None else amount) or b""
        self._progress(len(piece))
        return piece


def _check_name(name: str, at_top: bool, archive: Path) -> None:
    first = next((part for part in name.split("/") if part not in ("", ".")), "")
    if at_top and first.startswith(RESERVED):
        raise StageError(f"{archive.name} holds {name!r}; names that begin with {RESERVED} are the copier's own")


def _check_room(archive: Path, needed: int, free: int) -> None:
    if needed > free:
        raise StageError(f"{archive.name} unpacks to {needed:,} bytes, and the file system takes {free:,} more")


def _merge(source: Path, target: Path, archive: str) -> None:
    """Move everything in one directory into another; a repeated call skips moved files."""
    if not source.exists():
        return
    for each in source.iterdir():
        place = target / each.name
        if not os.path.lexists(place):
            os.rename(each, place)
        elif each.is_dir() and not each.is_symlink() and place.is_dir() and not place.is_symlink():
            _merge(each, place, archive)
        else:
            raise StageError(f"{archive} holds {each.name!r}, which another file or archive of the source is already")
    source.rmdir()
