"""Files of the machine that copies."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainium_workloads.stage.files import Checksum, File, StageError, measure


class Here:
    """A file of the machine that copies, or the files of a directory. Links are left out: they may lead anywhere."""

    revision = ""

    def __init__(self, source: str) -> None:
        self._root = Path(unquote(urlsplit(source).path))

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        if not self._root.exists():
            raise StageError(f"there is no {self._root} on the machine that copies")
        below = [Path(directory, name) for directory, _, names in os.walk(self._root) for name in names]
        for path in [self._root] if self._root.is_file() else sorted(below):
            if path.is_file() and (path == self._root or not path.is_symlink()):
                found = path.stat()
                inside = path.name if path == self._root else path.relative_to(self._root).as_posix()
                yield File(inside, str(path), found.st_size, f"{found.st_mtime_ns}-{found.st_ino}")

    def fetch(self, file: File, part: Path) -> Checksum | None:
        """See :class:`trainium_workloads.stage.files.Source`."""
        shutil.copyfile(file.where, part)
        return Checksum("sha256", measure(Path(file.where), None)[0])
