"""Runs tests/workloads where PyTorch is: in .venv/workloads, which lies over the image ``local/torch``.

    PYTHONPATH=. .venv/bin/python tests/torch_environment.py [--only-provide] [arguments of pytest]

If neither is available, it prints one line and succeeds.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from trainium_eks.fetched import cache
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import NotOfferedError, known_recipe

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "workloads"
REQUIREMENTS = ROOT / "requirements" / "workloads.txt"
ENVIRONMENT = ROOT / ".venv" / "workloads"
STAMP = ENVIRONMENT / "complete"
NEEDED_BYTES = 10e9
"""Free, to make the image from PyPI's CUDA build: 8 GB, and pip's own files meanwhile."""


class SkippedError(Exception):
    """The tests cannot run here; why, and what enables them."""


def main(arguments):
    """The tests' exit code; 0 where they are skipped."""
    try:
        python = provide()
    except SkippedError as reason:
        _say(f"SKIPPED tests/workloads: {reason}")
        return 0
    except ClusterError as error:
        _say(str(error))
        return 1
    if "--only-provide" in arguments:
        return 0
    names_tests = any(Path(each.partition("::")[0]).exists() for each in arguments)
    tests = [] if names_tests else [str(TESTS)]
    return subprocess.run([python, "-m", "pytest", "-n", "2", *arguments, *tests], check=False).returncode


def provide():
    """The environment's interpreter; the first time this takes minutes, which it prints."""
    image = _image()
    python = ENVIRONMENT / "bin" / "python"
    made_of = hashlib.sha256(f"{image.reference}\n{image.path}\n{REQUIREMENTS.read_text()}".encode()).hexdigest()
    if not STAMP.exists() or STAMP.read_text() != made_of:
        _say("Installing what the tests of the trainings need into .venv/workloads (a minute, 300 MB, once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
        (of_image,) = image.path.glob("lib/python*/site-packages")
        (packages / "local-torch.pth").write_text(f"{of_image}\n")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS]
        if subprocess.run(install, check=False).returncode:
            raise ClusterError(f"{REQUIREMENTS.name} cannot be installed; pip says above why")
        STAMP.write_text(made_of)
    return python


def _image():
    """``local/torch`` of today's requirements, made where it is not there."""
    recipe = known_recipe("torch")
    image = images.find(f"torch:{images.digest(recipe.requirements)}")
    if image is not None:
        return image
    home = cache()
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free
    if free < NEEDED_BYTES:
        raise SkippedError(
            f"PyTorch needs {NEEDED_BYTES / 1e9:.0f} GB and {home} has {free / 1e9:.1f} GB left; "
            "free some, or set TRN_CACHE to a directory on another disk"
        )
    try:
        return images.make(recipe, _say)
    except NotOfferedError as error:
        last = str(error).splitlines()[-1].strip()
        raise SkippedError(
            f"no package index that can be reached from here has {recipe.first} ({last}); "
            "set PIP_INDEX_URL to one that has it"
        ) from None


def _say(line):
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
