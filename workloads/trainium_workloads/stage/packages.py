"""Packages of the copier, installed where its image has none of them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from trainium_workloads.stage.files import StageError
from trainium_workloads.stage.progress import Progress

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_NEEDED = {"s3": "boto3", "hf": "huggingface_hub", "http": "urllib3", "https": "urllib3"}
"""Scheme of a source to its package."""


def provide(scheme: str, progress: Progress) -> None:
    """Install the packages into the directory that ``TRN_STAGE_PACKAGES`` names, unless a source's own is there.

    Raises:
        StageError: they cannot be installed.
    """
    target = os.environ.get("TRN_STAGE_PACKAGES", "")
    if target:
        sys.path.append(target)
    missing = _NEEDED.get(scheme)
    if missing is None or importlib.util.find_spec(missing):
        return
    why = "pip is not there either"
    if target and importlib.util.find_spec("pip"):
        progress.tell(f"installing {missing}, which this image does not have", "waiting")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        command += ["--target", target, "--requirement", str(_REQUIREMENTS)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if not done.returncode:
            importlib.invalidate_caches()
            return
        why = f"pip ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    raise StageError(
        f"the image has no {missing}, and {why}. Name an image that has it with --image "
        "(trn image push makes one), or let pods reach a package index on port 443"
    )
