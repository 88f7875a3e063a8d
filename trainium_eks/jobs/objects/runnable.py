"""Programs that ranks can run: scripts of Python, and modules. Needs the standard library alone, for TorchX."""

import re
import warnings
from pathlib import PurePosixPath

from trainium_eks.jobs.objects.job import Program

_SHELLS = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish", ".sbatch", ".slurm")
_PYTHONS = ("python", "pypy", "uv", "pipx")
"""Beginnings of the names of interpreters of Python."""
_LAUNCHER = re.compile(
    r"torchrun|mpirun|srun|torch\.distributed\.(run|launch)|trainium_workloads\.gang|"
    r"accelerate(\.commands\.launch)?|deepspeed(\.launcher\.runner)?"
)


def fault_of(program: Program, content: bytes | None = None) -> tuple[str, str] | None:
    """Return why the ranks cannot run a program, and the remedy; None where nothing speaks against it. The content:
    None for a script of the image, whose text is unknown."""
    path, named = PurePosixPath(program.script), re.search(rb"[\w./-]+\.py\b", content or b"")
    ranks = f"trn starts the ranks itself: --script {named[0].decode() if named else 'FILE.py'} -- ARGUMENTS"
    if _LAUNCHER.fullmatch(path.name or program.module):
        return "it is a launcher, and each rank would start more ranks", ranks
    if not program.script:
        is_file = "/" in program.module or program.module.endswith((".py", ".ipynb", *_SHELLS))
        return ("it is not a module name", f"a file is named by --script {program.module}") if is_file else None
    first = (content or b"").partition(b"\n")[0].decode(errors="replace")
    words = [each.rpartition("/")[2] for each in first[2:].split() if not each.startswith("-") and "=" not in each]
    interpreter = next((each for each in words if each != "env"), "") if first.startswith("#!") else ""
    if interpreter.startswith(_PYTHONS):
        return None
    if interpreter or path.suffix.lower() in _SHELLS:
        return f"it is a script of {interpreter or 'a shell'}, and each rank runs it by Python", ranks
    if path.suffix == ".ipynb":
        return "it is a notebook", f"make a script of it: jupyter nbconvert --to script {path}"
    if content is None or path.suffix in (".pyc", ".pyz", ".zip") or _is_python(content, path.suffix):
        return None
    return "Python cannot read it", "name the training's script in Python"


def _is_python(content: bytes, suffix: str) -> bool:
    """Return whether the content is Python; of a file ``.py`` any text, for the image may have a newer Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content if suffix != ".py" else b"", "script", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return b"\0" not in content
