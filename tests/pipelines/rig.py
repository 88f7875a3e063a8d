"""Means of the tests of pipelines: the cloud as a team and as its administrator, and the environments of the tools."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from local_project import ROOT, LocalProject
from waiting import until

EXAMPLES = ROOT / "examples" / "pipelines"


@dataclass(frozen=True)
class Cloud:
    """The stack ``local``, as a team's pipeline and as its administrator."""

    project: LocalProject

    @property
    def outputs(self):
        return self.project.path / ".local" / "local" / "outputs.json"

    def jobs(self):
        """Names of the team's jobs that are there, with their uid."""
        found = self.project.get("local", "jobs.batch.volcano.sh", "-n", "training")
        return {job["metadata"]["name"]: job["metadata"]["uid"] for job in found}

    def status(self, name):
        jobs = self.project.get("local", "jobs.batch.volcano.sh", "-n", "training")
        [status] = [job["status"] for job in jobs if job["metadata"]["name"] == name]
        return status

    def await_step(self, name):
        """Waits until rank 0 of a gang has reported a step."""

        def log():
            pods = [pod["metadata"]["name"] for pod in self.project.get("local", "pods", "-n", "training")]
            first = f"{name}-trainer-0-0"
            return first in pods and '"step"' in self.project.trn("logs", name).stdout

        until(log, f"{name} takes a step")

    def delete_pod(self, name):
        """Takes the last pod of a gang away, as a lost node does."""
        pods = self.project.get("local", "pods", "-n", "training", "-l", f"volcano.sh/job-name={name}")
        last = max(pod["metadata"]["name"] for pod in pods)
        self.project.kubectl("local", "delete", "pod", "-n", "training", last, "--wait=false", "--grace-period=1")


@dataclass(frozen=True)
class Tool:
    """Programs of one environment, with `trn` on their PATH."""

    programs: Path
    environment: Mapping[str, str]

    def start(self, folder, *command, log):
        with log.open("ab") as lines:
            return subprocess.Popen(
                [str(self.programs / command[0]), *command[1:]],
                cwd=folder,
                env=dict(self.environment),
                stdout=lines,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def kill(process):
    """Kills a program and all that it has started, as a lost machine does: Airflow's tasks have separate process
    groups."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait()


def tool(name, cloud, folder):
    """The environment of a tool; its tests are skipped without it."""
    programs = Path(os.environ.get("TRN_PIPELINES", "/nowhere")) / name / "bin"
    if not programs.is_dir():
        pytest.skip(f"no {name}: `make test-pipelines` installs it and runs these tests")
    commands = folder / "commands"
    commands.mkdir()
    command = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {cloud.project.command()[0]} -m trainium_eks.cli "$@"\n'
    (commands / "trn").write_text(command)
    (commands / "trn").chmod(0o755)
    path = f"{programs}:{commands}:{os.environ['PATH']}"
    return Tool(programs, {**os.environ, "PATH": path, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)})
