"""Unpacking of archives in place, into a new tree without the archives.

A kill leaves the archives as they are, and the next try unpacks them anew. Members are taken by tarfile's ``data``
filter (PEP 706): none leaves the directory, by name or by link, and none is a device.
"""

import os
import platform
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from trainium_workloads.stage.files import RESERVED, StageError, check_path
from trainium_workloads.stage.progress import Progress

ENDINGS = (".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".tgz", ".zip")
"""Ends of the names of archives, in lower case."""


def unpack(
    files: Path, archives: Sequence[str], work: Path, check_room: Callable[[int], None], progress: Progress
) -> Path:
    """Return a new tree of all files, hard links within one file system, with each archive's content in the place of
    the archive.

    ``check_room`` is called before each member, and raises StageError where there is no room for its bytes. StageError,
    too: an archive is broken, reaches outside, or holds a file of another.
    """
    tree, scratch = work / "unpacked", work / "unpacking"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(files, tree, copy_function=os.link)
    for path in archives:
        (tree / path).unlink()
    for path in sorted(archives):
        archive, target = files / path, (tree / path).parent
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            _extract(archive, scratch, check_room)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise StageError(f"{archive.name} cannot be unpacked: {error}") from None
        # Of an archive set.tar with a directory set alone, its content, so that the copy has no set/set.
        stem = next(archive.name[: -len(end)] for end in ENDINGS if archive.name.lower().endswith(end))
        is_own = os.listdir(scratch) == [stem] and (scratch / stem).is_dir() and not (scratch / stem).is_symlink()
        content = scratch / stem if is_own else scratch
        for each in content.glob(f"{RESERVED}*") if target == tree else ():
            raise StageError(f"{archive.name} holds {each.name!r}; names that begin with {RESERVED} are the copier's")
        try:
            shutil.copytree(content, target, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
        except shutil.Error as error:
            _, place, reason = error.args[0][0]
            raise StageError(
                f"{archive.name} holds {Path(place).name!r}, as the source does already: {reason}"
            ) from None
        progress.add(archive.stat().st_size)
    return tree


def _extract(archive: Path, directory: Path, check_room: Callable[[int], None]) -> None:
    def filtered(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        check_room(member.size)
        return tarfile.data_filter(member, path)

    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                check_path(info.filename.rstrip("/"), archive.name)
                check_room(info.file_size)
                zipped.extract(info, directory)  # a link becomes a file with its target's name in it
    elif not hasattr(tarfile, "data_filter"):
        raise StageError(
            f"{archive.name} cannot be unpacked safely by Python {platform.python_version()}: tarfile's data filter "
            "came with 3.11.4; give an image with a newer Python, or unpack the archive before"
        )
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter=filtered)
