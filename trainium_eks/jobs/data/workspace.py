"""The files that travel with a job: a script, or a directory. Reads the disk; nothing else."""

import base64
import posixpath
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.jobs.data.tree import NotInsideError, archive, files_below
from trainium_eks.jobs.objects import runnable
from trainium_eks.jobs.objects.job import Program
from trainium_eks.model.validation.problems import Problem, nearest

LARGEST_BYTES = 700 * 1024
"""Size of the archive. A ConfigMap holds 1 MiB, and all of a request to etcd is at most 1.5 MiB, in base64."""

_NEVER = frozenset(
    {".git", ".hg", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".local"}
)


@dataclass(frozen=True)
class Workspace:
    """Files on their way into a job's working directory."""

    archive: str
    """A ``tar.gz`` in base64; the same files give the same text."""
    script: str
    files: int
    size_bytes: int
    """Size of the archive, before base64."""


def pack(script: str, directory: Path | None) -> Workspace | Problem:
    """Return the packed script, or the whole directory that it is in. Without a directory only the script is packed.
    Version control, environments and caches are left out."""
    root = directory if directory is not None else Path()
    if not root.is_dir():
        return Problem("--workspace", "there is no such directory", "give the directory of your code", value=str(root))
    file = root / script
    if not file.is_file():
        return _missing(script, file, root)
    if fault := runnable.fault_of(Program(script), file.read_bytes()):
        return Problem("--script", *fault, value=script)
    name = file.name if directory is None else posixpath.normpath(script)
    try:
        files = {name: file} if directory is None else dict(files_below(root, _NEVER))
    except (NotInsideError, OSError) as refused:
        reason, _, fix = str(refused).partition("; ")
        return Problem("--workspace", reason, fix, value=str(root))
    if name not in files:
        return Problem("--script", f"it is not among the files of {root} that travel", "name one of them", value=script)
    modes = {name: 0o755 if path.stat().st_mode & 0o100 else 0o644 for name, path in files.items()}
    packed = archive((name, path.read_bytes(), modes[name]) for name, path in files.items())
    if len(packed) > LARGEST_BYTES:
        largest = sorted(files, key=lambda name: -files[name].stat().st_size)[:3]
        reason = (
            f"it has {len(packed) // 1024} KiB compressed, and at most {LARGEST_BYTES // 1024} KiB travel with a job"
        )
        fix = "put data on the shared volume (trn stage), code into the image (trn image build)"
        fix += f"; largest: {', '.join(largest)}"
        return Problem("--workspace", reason, fix, value=str(root))
    return Workspace(base64.b64encode(packed).decode(), name, len(files), len(packed))


def _missing(script: str, file: Path, root: Path) -> Problem:
    near = nearest(file.name, [each.name for each in file.parent.glob("*.py")] if file.parent.is_dir() else [])
    good = str(file.parent.relative_to(root) / near) if near else None
    fix = "a file of the image is written image:/PATH"
    reason = f"{file} is a directory: name the file in it" if file.is_dir() else f"there is no file {file}"
    return Problem("--script", reason, fix, value=script, good=good)
