"""What each rank can run: a script that Python reads, or a module. A launcher would start ranks within ranks.

Needs the standard library alone: the TorchX component judges its script, too.
"""

import re
import warnings
from pathlib import PurePosixPath

from trainium_eks.jobs.objects.job import Program

_SHELLS = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish", ".sbatch", ".slurm")
_PYTHONS = ("python", "pypy", "uv", "pipx")
"""Interpreters in a script's first line that read Python; the beginnings of their names."""
_LAUNCHERS = frozenset(
    ("torchrun", "accelerate", "deepspeed", "mpirun", "srun", "torch.distributed.run", "torch.distributed.launch")
) | {"accelerate.commands.launch", "deepspeed.launcher.runner", "trainium_workloads.gang"}


def fault_of(program: Program, content: bytes | None = None) -> tuple[str, str] | None:
    """Return why the ranks cannot run a program, and the remedy; None where nothing speaks against it.

    Args:
        program: a script or a module.
        content: of the script; None where it is the image's, of which the name alone is known.
    """
    path, named = PurePosixPath(program.script), re.search(rb"[\w./-]+\.py\b", content or b"")
    ranks = f"trn starts the ranks itself: --script {named[0].decode() if named else 'FILE.py'} -- ARGUMENTS"
    if {path.name, program.module} & _LAUNCHERS:
        return "it is a launcher, and each rank would start ranks of its own", ranks
    if not program.script:
        words = program.module.split(".") if program.module else ["none"]
        is_file = f".{words[-1]}" in (".py", ".ipynb", *_SHELLS) or "/" in program.module
        found = "it is no name of a module", f"a file is named by --script {program.module}"
        return found if is_file or "" in words else None
    interpreter = _interpreter(content or b"")
    if interpreter.startswith(_PYTHONS):
        return None
    if interpreter or path.suffix.lower() in _SHELLS:
        return f"it is a script of {interpreter or 'a shell'}, and each rank runs it by Python", ranks
    if path.suffix == ".ipynb":
        return "it is a notebook", f"make a script of it: jupyter nbconvert --to script {path}"
    if content is None or path.suffix in (".pyc", ".pyz", ".zip") or _is_python(content, path.suffix):
        return None
    return "Python cannot read it", "name the training's script in Python"


def _interpreter(content: bytes) -> str:
    """Return the name of the program in a script's first line; empty without one."""
    first = content.partition(b"\n")[0].decode(errors="replace")
    words = [each for each in first[2:].split() if not each.startswith("-") and "=" not in each]
    names = [each.rpartition("/")[2] for each in words]
    return next((each for each in names if each != "env"), "") if first.startswith("#!") else ""


def _is_python(content: bytes, suffix: str) -> bool:
    """Return whether the content is Python; of a file ``.py`` any text, for the image may have a newer Python."""
    if suffix == ".py":
        return b"\0" not in content
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, "script", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
