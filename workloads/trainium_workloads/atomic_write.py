"""Directories of a model that are whole or not there. Standard library alone."""

import shutil
from pathlib import Path

from trainium_workloads.checkpoint import sync


def take_place(part: Path, directory: Path) -> None:
    """Rename a written directory to its final name; delete the directory that had the name before.

    Args:
        part: beside the other, with nothing but files in it; they are synced first.
        directory: final name.

    Raises:
        OSError: it cannot be renamed.
    """
    sync(*part.iterdir())
    before = directory.with_name(f".{directory.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if directory.exists():
        directory.rename(before)
    part.rename(directory)
    shutil.rmtree(before, ignore_errors=True)
