"""Directories of a model that are whole or not there. Standard library alone."""

import shutil
from pathlib import Path

from trainium_workloads.checkpoint import sync


def take_place(part: Path, directory: Path) -> None:
    """Sync the files of a written directory and rename it to its final name, beside it; delete the directory that had
    the name before."""
    sync(*part.iterdir())
    before = directory.with_name(f".{directory.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if directory.exists():
        directory.rename(before)
    part.rename(directory)
    shutil.rmtree(before, ignore_errors=True)
