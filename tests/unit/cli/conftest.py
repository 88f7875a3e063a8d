"""Small Pulumi projects for the command, and ways to call it."""

import pytest
from hand_built import environment
from small_project import PROGRAM, Project
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.shared import recording


@pytest.fixture
def project(tmp_path):
    """A project with a stack dev and a program that makes one key."""
    path = tmp_path / "project"
    path.mkdir()
    made = Project(path)
    made.write("Pulumi.yaml", "name: small\nruntime: python\n")
    made.write("Pulumi.dev.yaml", "config:\n  small:purpose: tests\n")
    made.write("__main__.py", PROGRAM)
    return made


@pytest.fixture
def trn(monkeypatch):
    """Calls the command in this process."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def planned(monkeypatch, project, trn):
    """Plans a graph as if the project's program had made it."""

    def run(*arguments, graph=None):
        found = graph or environment()
        monkeypatch.setattr(recording, "record", lambda *_: found)
        return trn("plan", "--directory", project.path, *arguments)

    return run
