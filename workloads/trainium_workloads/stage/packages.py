"""Packages of the copier, installed where its image has none of them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from trainium_workloads.stage.files import StageError
from trainium_workloads.stage.progress import Progress

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_NEEDED = {"s3": ("boto3", "filelock"), "hf": ("huggingface_hub",), "file": ("filelock",)}
"""Scheme of a source to its packages; web servers have others. The lock's package is one of huggingface_hub's own."""


def provide(scheme: str, progress: Progress) -> None:
    """Install the packages into the directory that ``TRN_STAGE_PACKAGES`` names, unless a source's own are there.

    Raises:
        StageError: they cannot be installed.
    """
    target = os.environ.get("TRN_STAGE_PACKAGES", "")
    if target:
        sys.path.append(target)
    needed = _NEEDED.get(scheme, ("urllib3", "filelock"))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return
    why = "pip is not there either"
    if target and importlib.util.find_spec("pip"):
        progress.tell(f"installing {' and '.join(missing)}, which this image does not have", "waiting")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        command += ["--target", target, "--requirement", str(_REQUIREMENTS)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if not done.returncode:
            importlib.invalidate_caches()
            return
        why = f"pip ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    raise StageError(
        f"the image has no {' and no '.join(missing)}, and {why}. Name an image that has them with --image "
        "(trn image push makes one), or let pods reach a package index on port 443"
    )
