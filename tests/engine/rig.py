"""A Pulumi CLI on a copy of the project, with the simulated clouds attached: nothing of the repository is changed."""

import contextlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from engine.simulated_aws.inventory import Inventory
from engine.simulated_aws.server import serving

from components import _training_operator
from trainium_eks.fetched import FetchError
from trainium_eks.plan.recording.program import record_program
from trainium_eks.plan.recording.project import load_project

REPOSITORY = Path(__file__).resolve().parents[2]

TOOLS = ("pulumi", "pulumi-language-python")

# As tests/conftest.py: what a shell may hold, and the day that rule R05 takes for today.
_AMBIENT = ("AWS_", "KUBECONFIG", "PULUMI_", "HELM_")
_TODAY = {"SOURCE_DATE_EPOCH": "1795219200"}


@dataclass(frozen=True)
class Step:
    operation: str
    """``same``, ``create``, ``update``, ``replace``, ``delete`` and the parts of a replacement."""
    urn: str
    state: Mapping[str, Any] = field(default_factory=dict)
    """Of a preview: as it is to be, or as it was when it is deleted."""

    @property
    def name(self):
        return called(self.urn)


@dataclass(frozen=True)
class Run:
    code: int
    steps: tuple[Step, ...]
    messages: str
    """What it said: errors and warnings."""

    @property
    def custom(self):
        """Of a preview: the names of the resources that are no components."""
        return {step.name for step in self.steps if step.state.get("custom")}

    def of(self, *operations):
        return {step.name for step in self.steps if step.operation in operations}

    def changes(self):
        """Operation to resources, for all that is not the same. A replacement counts once."""
        parts = ("same", "create-replacement", "delete-replaced")
        operations = sorted({step.operation for step in self.steps} - set(parts))
        return {operation: self.of(operation) for operation in operations}


def succeeded(run):
    """The run, which must have succeeded; a test fails with what the CLI said otherwise."""
    assert run.code == 0, run.messages[-5000:]
    return run


def called(urn):
    """Type and name of a resource: ``NodeGroup trn-dev-cluster-cpu-nodes``."""
    return f"{urn.split('::')[2].rpartition(':')[2]} {urn.split('::', 3)[3]}"


class Rig:
    """A project directory, with a separate Pulumi home and state."""

    def __init__(self, root):
        self.project, self._home, self._state, self._tools = (
            root / name for name in ("project", "home", "state", "tools")
        )
        self.inventory_file = root / "inventory.json"
        for directory in (self.project, self._home, self._state, self._tools):
            directory.mkdir(parents=True)
        aws = self._tools / "aws"
        aws.write_text("#!/bin/sh\necho aws-cli/2.31.2 Python/3.13\n")
        aws.chmod(0o755)
        shutil.copy2(REPOSITORY / "__main__.py", self.project)
        for name in ("charts", "components", "trainium_eks"):
            shutil.copytree(REPOSITORY / name, self.project / name, ignore=shutil.ignore_patterns("__pycache__"))
        settings = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
        settings["runtime"]["options"]["virtualenv"] = sys.prefix
        (self.project / "Pulumi.yaml").write_text(yaml.safe_dump(settings))

    def configure(self, stack, *changes):
        content = yaml.safe_load((REPOSITORY / f"Pulumi.{stack}.yaml").read_text())
        for change in changes:
            change(content["config"])
        (self.project / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(content))

    def begin(self, stack, *changes):
        """Makes a new stack; skips the test where what its program fetches cannot be had here."""
        if stack == "gpu":
            try:
                _training_operator.kustomization(gangs=True)
            except FetchError as error:
                pytest.skip(str(error))
        self.configure(stack, *changes)
        self.pulumi("stack", "init", stack)

    def preview(self, stack, *arguments, forgetful=False):
        code, answer, said = self.preview_document(stack, *arguments, forgetful=forgetful)
        steps = tuple(
            Step(step["op"], step["urn"], step.get("newState") or step.get("oldState") or {})
            for step in answer.get("steps", ())
        )
        return Run(code, steps, f"{_error_text(answer.get('diagnostics', ()))}\n{said}")

    def preview_document(self, stack, *arguments, forgetful=False):
        """The exit code of a preview, its document as the CLI prints it, and its stderr."""
        done = self._run("preview", "--json", "--stack", stack, *arguments, forgetful=forgetful)
        # Without an answer, what it says on stderr is why.
        _, brace, rest = done.stdout.partition("{")
        return done.returncode, json.loads(brace + rest or "{}"), done.stderr

    def refused(self, stack, *arguments):
        code, document, said = self.preview_document(stack, *arguments)
        assert code != 0
        return f"{document.get('diagnostics')}\n{said}"

    def says(self, *arguments):
        return _text(self._run(*arguments))

    def up(self, stack, *arguments, failing=""):
        return self._events("up", "--yes", "--skip-preview", "--json", "--stack", stack, *arguments, failing=failing)

    def refresh(self, stack):
        return self._events("refresh", "--yes", "--skip-preview", "--json", "--expect-no-changes", "--stack", stack)

    def destroy(self, stack, *arguments):
        return self._events("destroy", "--yes", "--skip-preview", "--json", "--stack", stack, *arguments)

    def recorded(self, stack, *, dry_run=False):
        """What `trn plan` has of the stack, in this process: a separate process for each would take too long."""
        project = load_project(self.project)
        settings = project.stack(stack)
        # The engine runs a program in its project, and charts are named from there; here they are the repository's.
        with contextlib.chdir(REPOSITORY):
            return record_program(
                lambda: runpy.run_path(str(project.program), run_name="__main__"),
                project=project.name,
                stack=stack,
                config=settings.config,
                secret_keys=settings.secret_keys,
                dry_run=dry_run,
            )

    def resources(self, stack):
        deployment = json.loads(self.pulumi("stack", "export", "--stack", stack))["deployment"]
        assert not deployment.get("pending_operations")
        return tuple(deployment.get("resources") or ())

    def interrupt(self, stack, urn):
        """Leaves the state as an update does that is killed while it creates a resource, and before it creates what
        depends on that; the resource's id, and the names of the dependents.

        In the backend's own file: `pulumi stack import` takes no open operations.
        """
        [file] = [each for each in self._state.rglob(f"{stack}.json") if "stacks" in each.parts]
        held = json.loads(file.read_text())
        latest = held["checkpoint"]["latest"]
        [made] = [each for each in latest["resources"] if each["urn"] == urn]
        lost = {urn: made}
        for each in latest["resources"]:  # dependents come later in a state
            inputs = (each.get("propertyDependencies") or {}).values()
            if lost.keys() & {each.get("parent"), *(each.get("dependencies") or ()), *chain.from_iterable(inputs)}:
                lost[each["urn"]] = each
        latest["resources"] = [each for each in latest["resources"] if each["urn"] not in lost]
        open_ = {key: value for key, value in made.items() if key not in ("id", "outputs")}
        latest["pending_operations"] = [{"resource": open_, "type": "creating"}]
        file.write_text(json.dumps(held))
        with Inventory(self.inventory_file) as there:
            there.remove(*(thing for thing in there.things() if thing.urn in lost.keys() - {urn}))
        return str(made["id"]), {called(each) for each in lost} - {called(urn)}

    def inventory(self):
        return tuple(json.loads(self.inventory_file.read_text())["things"])

    def pulumi(self, *arguments):
        """Runs a command that must succeed; what it prints."""
        done = self._run(*arguments)
        assert done.returncode == 0, f"pulumi {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def example(self, folder):
        """Copies an example in Python into the project, to be run by this interpreter; its directory."""
        there = self.project / "examples" / folder
        shutil.copytree(REPOSITORY / "examples" / folder, there, ignore=shutil.ignore_patterns("__pycache__"))
        for file in there.rglob("Pulumi.yaml"):
            settings = yaml.safe_load(file.read_text())
            settings["runtime"] = {"name": "python", "options": {"virtualenv": sys.prefix}}
            file.write_text(yaml.safe_dump(settings))
        return there

    def python(self, *arguments):
        """Runs this interpreter in the project, with an AWS CLI that only says its version: exit code and text."""
        path = f"{self._tools}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(self.project), "AWS_EC2_METADATA_DISABLED": "true"}
        with serving(self.inventory_file) as providers:
            return _text(self._execute([sys.executable, *arguments], {**providers, **own}))

    def _events(self, *arguments, failing=""):
        done = self._run(*arguments, failing=failing)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        metadata = [line["resourcePreEvent"]["metadata"] for line in lines if "resourcePreEvent" in line]
        said = _error_text(line["diagnosticEvent"] for line in lines if "diagnosticEvent" in line)
        steps = tuple(Step(each["op"], each["urn"]) for each in metadata)
        return Run(done.returncode, steps, f"{said}\n{done.stderr}")

    def _run(self, *arguments, failing="", forgetful=False):
        """The clouds run for as long as the command: what exists is in the file alone."""
        with serving(self.inventory_file, failing=failing, forgetful=forgetful) as providers:
            return self._execute(["pulumi", "--non-interactive", *arguments], providers)

    def _execute(self, command, more):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_AMBIENT)}
        own = {
            "PULUMI_HOME": str(self._home),
            "PULUMI_BACKEND_URL": self._state.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # A provider that is not attached must not be looked for on the network.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }
        env = {**inherited, **_TODAY, **own, **more}
        # A command takes 5 to 20 seconds on an idle machine; this ends only one that hangs.
        return subprocess.run(
            command, cwd=self.project, env=env, capture_output=True, text=True, timeout=1200, check=False
        )


def why_not():
    """Why there is no engine here, in one line with what to do; empty when there is one."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    named = " and ".join(f"no {tool}" for tool in missing)
    return f"{named} on PATH: install the Pulumi CLI >= 3.231 to run tests/engine" if missing else ""


def _text(done):
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def _error_text(diagnostics):
    return "\n".join(each["message"] for each in diagnostics if each["severity"] in ("error", "warning"))
