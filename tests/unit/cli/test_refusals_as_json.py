"""With --json, what stops a command is one JSON document on standard output, too."""

import json

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app

COMMANDS = (
    ("verify",),
    ("doctor",),
    ("jobs",),
    ("status", "job"),
    ("logs", "job"),
    ("tensorboard", "job"),
    ("profile", "job"),
    ("cancel", "job"),
    ("train", "--example", "gradient-sum"),
    ("scale", "group", "1"),
    ("kubeconfig",),
    ("stage", "https://example.com/data", "--to", "data"),
    ("image", "build"),
    ("image", "push"),
    ("image", "mirror", "example.com/image:1"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_outputs_that_are_missing_are_a_problem_in_json(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--outputs", "/nowhere/outputs.json", "--json"])
    assert shown.exit_code == 2, shown.output
    document = json.loads(shown.stdout)
    assert "/nowhere/outputs.json" in document["problems"][0]["reason"], document
    assert shown.stderr == ""
