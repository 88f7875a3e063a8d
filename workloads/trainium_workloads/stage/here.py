"""Files of the machine that copies."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainium_workloads.stage.files import Fetched, File, StageError, measure


class Here:
    """A file of the machine that copies, or the files of a directory. A link stands for a file of the same directory;
    nothing else that a link reaches is copied, and nothing that is no regular file."""

    revision = ""

    def __init__(self, source: str) -> None:
        self._root = Path(unquote(urlsplit(source).path))

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        if not self._root.exists():
            raise StageError(f"there is no {self._root} on the machine that copies")
        if not self._root.is_dir():
            return iter([self._file(self._root.name, self._root)])
        return (self._file(each.relative_to(self._root).as_posix(), each) for each in self._entries())

    def _entries(self) -> Iterator[Path]:
        for directory, directories, names in os.walk(self._root):
            links = [each for each in directories if Path(directory, each).is_symlink()]
            yield from (Path(directory, each) for each in sorted([*links, *names]))

    def _file(self, path: str, file: Path) -> File:
        place = file.resolve()
        if place != file and self._root.is_dir() and not place.is_relative_to(self._root.resolve()):
            raise StageError(f"{path} is a link out of {self._root}, to {place}: put copies in place of links (cp -rL)")
        if not place.is_file():
            raise StageError(f"{path} of {self._root} is not a regular file or a link to one: remove it")
        found = place.stat()
        return File(path, str(place), found.st_size, f"{found.st_mtime_ns}-{found.st_ino}")

    def fetch(self, file: File, part: Path) -> Fetched:
        """See :class:`trainium_workloads.stage.files.Source`."""
        shutil.copyfile(file.where, part)
        return Fetched(measure(Path(file.where), "sha256")[0])
