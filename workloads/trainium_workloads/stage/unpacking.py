"""Unpacking of archives in their place, into a new tree without the archives.

A kill leaves the archives as they are, and the next try unpacks them anew. Members are taken by tarfile's ``data``
filter (PEP 706): none leaves the directory, by name or by link, and none is a device.
"""

import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from trainium_workloads.stage.files import RESERVED, StageError, safe_path
from trainium_workloads.stage.progress import Progress

_ENDINGS = (".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".tgz", ".zip")


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its name."""
    return path.lower().endswith(_ENDINGS)


def unpack(
    files: Path, archives: Iterable[str], work: Path, check_room: Callable[[int], None], progress: Progress
) -> Path:
    """Return a new tree of all files, with each archive's content in the place of the archive.

    Args:
        files: directory of all files; the tree's files are hard links to them.
        archives: paths below that directory.
        work: directory for the tree, on the same file system.
        check_room: called before each member; raises StageError where there is no room for its bytes.
        progress: of the archives.

    Raises:
        StageError: an archive is broken, reaches outside, or holds a file of another.
    """
    tree, scratch = work / "unpacked", work / "unpacking"
    packed = {files / path for path in archives}
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(
        files,
        tree,
        copy_function=os.link,
        ignore=lambda at, names: [name for name in names if Path(at, name) in packed],
    )
    for archive in sorted(packed):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        at = archive.parent.relative_to(files)
        try:
            _extract(archive, scratch, check_room, is_at_top=at == Path())
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise StageError(f"{archive.name} cannot be unpacked: {error}") from None
        # Of an archive set.tar with a directory set alone, its content, so that the copy has no set/set.
        stem = next(archive.name[: -len(each)] for each in _ENDINGS if archive.name.lower().endswith(each))
        own = scratch / stem
        is_own = [own] == list(scratch.iterdir()) and own.is_dir() and not own.is_symlink()
        _merge(own if is_own else scratch, tree / at, archive.name)
        progress.add(archive.stat().st_size)
    return tree


def _extract(archive: Path, scratch: Path, check_room: Callable[[int], None], *, is_at_top: bool) -> None:
    def check(name: str, size: int) -> None:
        check_room(size)
        if is_at_top and os.path.normpath(name).lstrip("/").startswith(RESERVED):
            raise StageError(f"{archive.name} holds {name!r}; names that begin with {RESERVED} are the copier's own")

    def filtered(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        check(member.name, member.size)
        return tarfile.data_filter(member, path)

    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.infolist():
                check(safe_path(member.filename.rstrip("/"), archive.name), member.file_size)
                zipped.extract(member, scratch)  # a link becomes a file with its target's name in it
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter=filtered)


def _merge(source: Path, target: Path, archive: str) -> None:
    """Move everything in one directory into another."""
    for each in source.iterdir():
        place = target / each.name
        if not os.path.lexists(place):
            os.rename(each, place)
        elif each.is_dir() and not each.is_symlink() and place.is_dir() and not place.is_symlink():
            _merge(each, place, archive)
        else:
            raise StageError(f"{archive} holds {each.name!r}, which another file or archive of the source is already")
