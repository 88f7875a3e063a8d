"""Files of the machine that copies."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainium_workloads.stage.files import File, StageError, measure


class Here:
    """A file of the machine that copies, or the files of a directory. Links are left out: they may lead anywhere."""

    revision = ""

    def __init__(self, source: str) -> None:
        self._root = Path(unquote(urlsplit(source).path))

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        if not self._root.exists():
            raise StageError(f"there is no {self._root} on the machine that copies")
        base = self._root if self._root.is_dir() else self._root.parent
        below = [path for path in sorted(base.rglob("*")) if not path.is_symlink()]
        for path in below if self._root.is_dir() else [self._root]:
            if path.is_file():
                found = path.stat()
                version = f"{found.st_mtime_ns}-{found.st_ino}"
                yield File(path.relative_to(base).as_posix(), str(path), found.st_size, version)

    def fetch(self, file: File, part: Path) -> str:
        """See :class:`trainium_workloads.stage.files.Source`."""
        shutil.copyfile(file.where, part)
        return measure(Path(file.where), "sha256")[0]
