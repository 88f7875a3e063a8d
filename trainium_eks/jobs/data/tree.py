"""The files of a directory of this machine that may travel to a team, and their archive: none is reached by a link
alone."""

import gzip
import io
import tarfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path


class NotInsideError(Exception):
    """Entry of a directory that may not travel; the message has its path, the reason and the remedy."""


def files_below(root: Path, left_out: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield path and place of each regular file, in order. A link stands for its target below the same root.
    ``NotInsideError`` says that a link leads out of the root (a team would read its target) or into a circle, or that a
    device is there; links to nothing are left out."""
    top = root.resolve()

    def walk(directory: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
        for entry in sorted(directory.iterdir()):
            if entry.name in left_out or not entry.exists():
                continue
            path, place = entry.relative_to(root).as_posix(), entry.resolve()
            if not place.is_relative_to(top):
                raise NotInsideError(
                    f"{path} is a link out of {root}, to {place}; replace it with a copy, or remove it"
                )
            if place in above:
                raise NotInsideError(f"{path} is a link to a directory that it is in; remove it")
            if place.is_dir():
                yield from walk(entry, (*above, place))
            elif place.is_file():
                yield path, place
            else:
                raise NotInsideError(f"{path} is not a regular file; remove it")

    return walk(root, (top,))


def archive(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """Return a ``tar.gz`` of paths, contents and modes, without times and owners: the same files are the same bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path, content, mode in files:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
