"""The making of a local image: a virtual environment, and its packages installed by pip."""

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane.processes import writing

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""Index of PyTorch's builds without CUDA: a twentieth of the size of PyPI's builds for Linux."""

_TORCH_REQUIREMENTS = Path(__file__).with_name("torch-requirements.txt")

Progress = Callable[[str], None]
"""Called with one line for each step."""


class NotOfferedError(LocalCloudError):
    """The error when no reachable index has the recipe's first requirement."""


@dataclass(frozen=True)
class Recipe:
    """The name and requirements of an image."""

    name: str
    requirements: str
    first: str = ""
    """A requirement that is installed before the others, because it is much larger or comes from a separate index."""
    first_index: str = ""
    """That index, which has little else; where it cannot be reached, pip's own index is used."""
    size: str = ""
    """Expected size and time, for the user."""


def known_recipe(name: str) -> Recipe:
    """Return the recipe of an image that comes with the library: ``torch``, or ``stage`` for copies of data."""
    if name == "stage":
        file = workloads() / "trainium_workloads" / "stage" / "requirements.txt"
        return Recipe(name, file.read_text(encoding="utf-8"), size="20 MB to download and 70 MB on disk, half a minute")
    if name != "torch":
        raise LocalCloudError(
            f"no requirements come with the library for {name!r}, only for torch and stage: "
            f"give a file, `trn local images make {name} --requirements FILE`"
        )
    requirements = _TORCH_REQUIREMENTS.read_text(encoding="utf-8")
    torch = next(line for line in requirements.splitlines() if line.startswith("torch=="))
    is_cuda_build = platform.system() == "Linux" and platform.machine() == "x86_64"
    from_pypi = "; where that is not reachable, 4.3 GB from PyPI (the CUDA build) and 7.2 GB" if is_cuda_build else ""
    size = f"about 400 MB to download and 1.6 GB on disk, two minutes{from_pypi}"
    return Recipe(name, requirements, torch, TORCH_INDEX, size)


def workloads() -> Path:
    """Return the directory from which ``trainium_workloads`` is imported: in the wheel or in the repository."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "workloads"
    return inside if inside.is_dir() else package.parent / "workloads"


def environment(place: Path) -> None:
    """Make a virtual environment without a package, not even pip."""
    # The interpreter itself, not the link to it in a stack's directory by which the pods' agent runs.
    interpreter = os.path.realpath(sys.executable)
    command = [interpreter, "-I", "-m", "venv", "--without-pip", "--clear", str(place)]
    with writing(place):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalCloudError(f"{place} cannot be made: {done.stderr.strip() or done.stdout.strip()}")


def install(recipe: Recipe, place: Path, progress: Progress) -> None:
    """Install the recipe's requirements.

    A :class:`NotOfferedError` says that no index has the first requirement.
    """
    if find_spec("pip") is None:
        raise LocalCloudError(f"making an image needs pip in the environment of trn: {sys.executable} -m ensurepip")
    if recipe.first:
        _install_first(recipe, place, progress)
    code, said = _pip(place, recipe.requirements, (), progress)
    if code:
        raise LocalCloudError(_failed(recipe, code, said))


def _install_first(recipe: Recipe, place: Path, progress: Progress) -> None:
    code, said = 1, list[str]()
    if recipe.first_index:
        # Not beside the others (--extra-index-url): pip would then take the highest version of all of them.
        only = (f"--index-url={recipe.first_index}", "--retries=1", "--timeout=10")
        code, said = _pip(place, recipe.first, only, progress)
        if code:
            progress(f"{recipe.first_index} does not have {recipe.first}, or is not reachable; trying pip's own index")
    if code:
        code, said = _pip(place, recipe.first, (), progress)
    if code and any("No matching distribution" in line for line in said):  # also for an index that it cannot reach
        raise NotOfferedError(_failed(recipe, code, said))
    if code:
        raise LocalCloudError(_failed(recipe, code, said))


def _pip(place: Path, requirements: str, options: Sequence[str], progress: Progress) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "requirements.txt"
        file.write_text(requirements, encoding="utf-8")
        command = [sys.executable, "-m", "pip", f"--python={place / 'bin' / 'python'}", "install"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", f"--requirement={file}"]
        return _run([*command, *options], progress)


def _run(command: Sequence[str], progress: Progress) -> tuple[int, list[str]]:
    # A shell's variables for other Pythons must not lead pip astray.
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        said = []
        for line in process.stdout or ():
            said.append(line.rstrip())
            if line.startswith(("Collecting", "  Downloading", "Installing", "Successfully")):
                progress(f"  {line.strip()[:150]}")
    return process.returncode, said


def _failed(recipe: Recipe, code: int, said: Sequence[str]) -> str:
    lines = "\n".join(f"  {line}" for line in said[-12:])
    return f"local/{recipe.name} could not be made: pip ended with {code}:\n{lines}"
