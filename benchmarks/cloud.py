"""What the benchmarks of training jobs share: a local cloud of their own, and how a job in it is watched."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 120

_Found = TypeVar("_Found")


@contextmanager
def local_cloud(name: str, *options: str) -> Iterator[Path]:
    """A local cloud with a real Volcano, by ``trn local up`` with options, as the repository's own project in a
    directory of its own."""
    with tempfile.TemporaryDirectory(prefix=f"trn-{name}-") as directory:
        project = Path(directory)
        for part in ("Pulumi.yaml", "__main__.py", "components", "charts", "trainium_eks"):
            (project / part).symlink_to(ROOT / part)
        shutil.copy(ROOT / "Pulumi.local.yaml", project)
        try:
            trn(project, "local", "up", *options)
            if not json.loads((project / ".local/local/report.json").read_text())["realVolcano"]:
                raise SystemExit("Volcano is not on this machine; docs/local-cloud.md says where it can come from")
            yield project
        finally:
            trn(project, "local", "down")


def trn(project: Path, *arguments: str) -> str:
    """What the command prints. Ends the benchmark where it fails."""
    command = [sys.executable, "-m", "trainium_eks.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    shown = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if shown.returncode:
        raise SystemExit(f"trn {' '.join(arguments)} failed:\n{shown.stdout[-3000:]}{shown.stderr[-3000:]}")
    return shown.stdout


def until(what: str, look: Callable[[], _Found | None], limit_seconds: float = LIMIT_SECONDS) -> _Found:
    """What ``look`` finds; an AssertionError where it has not found it in time."""
    deadline = time.monotonic() + limit_seconds
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"no sign of {what} within {limit_seconds:g} s"
        time.sleep(0.1)
    return found


def ranks(job: str) -> list[int]:
    """Process numbers of the job's ranks on this machine."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("TRN_JOB") == job and "RANK" in environment:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def step_times(log: str) -> list[float]:
    """When each step in a log ended, seconds since the epoch."""
    return [json.loads(line[line.index("{") :])["time"] for line in log.splitlines() if '{"step"' in line]
