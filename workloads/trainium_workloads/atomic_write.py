"""Directories of a model that are whole or not there. Standard library alone."""

import os
import shutil
from pathlib import Path


def take_place(part: Path, directory: Path) -> None:
    """Gives a directory that is written its name; the one that had it goes afterwards.

    Args:
        part: beside the other, with nothing but files in it; they are synced first.
        directory: what it is to be called.

    Raises:
        OSError: it cannot be renamed.
    """
    for each in part.iterdir():
        with each.open("rb") as file:
            os.fsync(file.fileno())
    before = directory.with_name(f".{directory.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if directory.exists():
        directory.rename(before)
    part.rename(directory)
    shutil.rmtree(before, ignore_errors=True)
