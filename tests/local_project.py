"""A Pulumi project in its own directory, and `trn` for it: for tests of the local cloud."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml

from trainium_eks.local.toolchain import kubernetes, provide
from trainium_eks.model.catalogue.versions import KUBERNETES

ROOT = Path(__file__).resolve().parent.parent

TIMEOUT_SECONDS = 1200
"""For a command, on a machine that does much else."""
_HELD = {"capture_output": True, "text": True, "timeout": TIMEOUT_SECONDS}

_KILLED_AS_IT_SAYS = """\
import os, runpy, signal, sys
last = sys.argv.pop(1)
write = sys.stderr.write
def told(text):
    write(text)
    if last in text:
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return len(text)
sys.stderr.write = told
runpy.run_module("trainium_eks.cli", run_name="__main__", alter_sys=True)
"""
"""From without, the kill would come when this process gets its turn: with luck before the command has ended."""


@dataclass(frozen=True)
class LocalProject:
    """A project directory with stacks."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_the_repository(path, **environment):
        """The repository's own program, without its stacks: they are written by the tests."""
        path.mkdir(exist_ok=True)
        for name in ("Pulumi.yaml", "__main__.py", "components", "charts", "trainium_eks"):
            (path / name).symlink_to(ROOT / name)
        return LocalProject(path, environment)

    @staticmethod
    def small(path, program):
        """A project of one file."""
        path.mkdir(exist_ok=True)
        (path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
        (path / "Pulumi.dev.yaml").write_text("config: {}\n")
        (path / "__main__.py").write_text(program)
        return LocalProject(path)

    def configure(self, stack, **changes):
        """Writes a stack's file: the repository's local stack, with some of its keys replaced."""
        document = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
        document["config"].update({f"trainium-eks:{key}": value for key, value in changes.items()})
        (self.path / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(document, width=10_000))

    def command(self, *arguments):
        """What runs `trn`."""
        return [sys.executable, "-m", "trainium_eks.cli", *arguments]

    def surroundings(self):
        """The environment that `trn` runs in.

        Volcano runs where it was put on PATH: what a machine's cache happens to hold must not decide what is tested.
        The Training Operator takes minutes to build: a test that wants it asks for it.
        """
        ours = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}
        ours["TRN_TRAINING_OPERATOR"] = "off"
        if shutil.which("vc-scheduler") is None:
            ours["TRN_VOLCANO"] = "off"
        return {**os.environ, **ours, **self.environment}

    def trn(self, *arguments):
        """Runs `trn` in the project."""
        return subprocess.run(self.command(*arguments), cwd=self.path, env=self.surroundings(), check=False, **_HELD)

    @contextmanager
    def up(self, stack="local", *options, volcano=False):
        """A stack, up until the end of the block, with the real Volcano or its tests are skipped; what `up` said."""
        shown = self.trn("local", "up", "--stack", stack, *options)
        try:
            assert shown.returncode == 0, shown.stdout[-3000:] + shown.stderr[-3000:]
            if volcano and "vc-scheduler" not in self.processes(stack):
                pytest.skip("no Volcano on this machine: put its programs on PATH, or let it be built")
            yield shown.stdout + shown.stderr
        finally:
            self.trn("local", "down", "--stack", stack)

    def researcher(self, stack="local"):
        """Options with which kubectl acts as a researcher of the team `training`."""
        shown = self.trn("kubeconfig", "--namespace", "training", "--path", "--stack", stack)
        assert shown.returncode == 0, shown.stderr
        return (f"--kubeconfig={shown.stdout.strip()}", "-n", "training")

    def kill_when(self, said, *arguments):
        """Runs `trn`, which is killed (SIGKILL) the moment that it says something on stderr."""
        # Not a pipe: what it has started keeps that open.
        with tempfile.TemporaryFile("w+") as lines:
            done = subprocess.run(
                [sys.executable, "-c", _KILLED_AS_IT_SAYS, said, *arguments],
                cwd=self.path,
                env=self.surroundings(),
                stdout=subprocess.DEVNULL,
                stderr=lines,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            lines.seek(0)
            assert done.returncode == -signal.SIGKILL, f"it ended before it said {said!r}:\n{lines.read()}"

    def kubectl(self, stack, *arguments, given=""):
        """Return what kubectl prints, given this on stdin. Called as itself it takes a third of `trn local kubectl`'s
        time."""
        program = provide(*kubernetes(KUBERNETES), progress=lambda _: None)["kubectl"].path
        kubeconfig = self.path / ".local" / stack / "kubeconfig"
        command = [str(program), f"--kubeconfig={kubeconfig}", *arguments]
        shown = subprocess.run(command, input=given, check=False, **_HELD)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    def get(self, stack, *arguments):
        """Objects, as `kubectl get` finds them."""
        return json.loads(self.kubectl(stack, "get", *arguments, "-o", "json"))["items"]

    def apply(self, stack, *manifests):
        """Makes objects, or changes them."""
        self.kubectl(stack, "apply", "-f", "-", given=yaml.safe_dump_all(manifests))

    def outputs(self, stack):
        """The outputs of the last complete `up`."""
        return json.loads((self.path / ".local" / stack / "outputs.json").read_text())

    def processes(self, stack):
        """Names of the processes that have the stack's directory on their command line."""
        root = str(self.path / ".local" / stack)
        return sorted(
            process.info["name"]
            for process in psutil.process_iter(["name", "cmdline"])
            if any(root in argument for argument in process.info["cmdline"] or ())
        )


REAL_VOLCANO = {"TRN_VOLCANO": os.environ.get("TRN_VOLCANO", "")}


@contextmanager
def repository_cloud(folder, *options, environment=REAL_VOLCANO, volcano=True, **config):
    """The repository's stack `local` with changes of its config, up; with a real Volcano, or its tests are skipped."""
    project = LocalProject.of_the_repository(folder, **environment)
    (folder / "workloads").symlink_to(ROOT / "workloads")
    project.configure("local", **config)
    with project.up("local", *options, volcano=volcano) as said:
        (folder / "up.txt").write_text(said)
        yield project
