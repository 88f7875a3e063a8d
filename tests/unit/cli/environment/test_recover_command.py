"""`trn recover`: its text, its JSON and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble
from typer.testing import CliRunner

from trainium_eks.aws import account
from trainium_eks.cli.app import app

URN = "urn:pulumi:dev::p::a$aws:eks/nodeGroup:NodeGroup::workers"
INPUTS = {"clusterName": "c", "nodeGroupName": "workers-1"}
CREATING = {"type": "creating", "resource": {"urn": URN, "type": "aws:eks/nodeGroup:NodeGroup", "inputs": INPUTS}}
ACTIVE = {"eks:DescribeNodegroup": {"nodegroup": {"status": "ACTIVE"}}}


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: Any, *options: str, pending: Any = (CREATING,)
) -> Any:
    monkeypatch.chdir(tmp_path)
    real = account.Account
    monkeypatch.setattr(account, "Account", lambda region: real(region, AwsDouble(answers).session()))
    document = {"version": 3, "deployment": {"pending_operations": list(pending)}}
    arguments = ["recover", "--state", "-", "--region", "us-west-2", *options]
    return CliRunner().invoke(app, arguments, input=json.dumps(document))


def test_it_ends_with_the_command_that_can_be_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, ACTIVE, "--no-color")
    assert result.exit_code == 0
    assert "pulumi cancel --stack dev" in " ".join(result.output.split()), "a narrow terminal folds the line"
    assert "import c:workers-1  workers (aws:eks/nodeGroup:NodeGroup)" in result.output
    assert result.output.endswith(
        "Then:\n\n"
        "  pulumi import aws:eks/nodeGroup:NodeGroup workers c:workers-1 --stack dev \\\n"
        "    --protect=false --generate-code=false\n"
        "  pulumi refresh --stack dev --clear-pending-creates\n"
    )


def test_what_is_left_to_the_reader_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, {}, "--no-color")
    assert result.exit_code == 1
    assert "look  workers" in result.output
    assert "1 of 1 are left to you" in result.output


def test_the_json_is_one_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = json.loads(run(monkeypatch, tmp_path, ACTIVE, "--json").output)
    [operation] = data["operations"]
    assert (operation["urn"], operation["action"], operation["id"]) == (URN, "import", "c:workers-1")
    assert data["commands"][-1] == "pulumi refresh --stack dev --clear-pending-creates"


def test_a_state_without_open_operations_asks_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, {}, pending=())
    assert result.exit_code == 0
    assert "No operation is open" in result.output
