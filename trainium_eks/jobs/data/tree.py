"""The files of a directory of this machine: what travels from there to a team, and nothing that only a link reaches."""

from collections.abc import Collection, Iterator
from pathlib import Path


class NotInside(Exception):  # noqa: N818 - reads as what it is where it is caught
    """Entry of a directory that may not travel; the message has its path, the reason and the remedy."""


def files_below(root: Path, left_out: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield path and place of each regular file, in order. A link stands for what it leads to, below the same root.

    Args:
        root: a directory.
        left_out: names of files and directories, at any depth. Links that lead to nothing are left out, too.

    Raises:
        NotInside: a link leads out of the root or into a circle, or a pipe, a socket or a device is there. Its content
            would stand in an object that a whole team reads.
    """
    top = root.resolve()

    def walk(directory: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
        for entry in sorted(directory.iterdir()):
            if entry.name in left_out or not entry.exists():
                continue
            path, place = entry.relative_to(root).as_posix(), entry.resolve()
            if not place.is_relative_to(top):
                mends = "put a copy in its place, or take the link away"
                raise NotInside(f"{path} is a link out of {root}, to {place}; {mends}")
            if place in above:
                raise NotInside(f"{path} is a link to a directory that it is in; take the link away")
            if place.is_dir():
                yield from walk(entry, (*above, place))
            elif place.is_file():
                yield path, place
            else:
                raise NotInside(f"{path} is no regular file; take it away")

    return walk(root, (top,))
