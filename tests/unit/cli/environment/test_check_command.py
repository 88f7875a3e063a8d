"""`trn check`: its table, its JSON and its exit codes."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.environment.check import check
from trainium_eks.cli.shared import recording
from trainium_eks.operate.preflight import run as preflight
from trainium_eks.operate.preflight.finding import Finding, Outcome
from trainium_eks.operate.preflight.run import Preflight
from trainium_eks.plan.graph import Graph

FAILS = Finding("quotas/L-F678F1CE", "VPCs", Outcome.FAIL, "1 needed, quota 5, others use 5", "request 6 or more")
WARNS = Finding("account/role", "role x", Outcome.WARN, "not there", "aws iam create-service-linked-role")
OPEN = Finding("versions/kubernetes", "Kubernetes 1.35", Outcome.NOT_CHECKED, "the right eks:X is missing")
GOOD = Finding("names/cluster", "cluster", Outcome.PASS, "free")


def run(monkeypatch: pytest.MonkeyPatch, *findings: Finding, account: str = "111122223333", options: str = "") -> Any:
    monkeypatch.setattr(recording, "record", lambda _, stack: Graph("p", stack, (), {}))
    monkeypatch.setattr(preflight, "look", lambda graph: Preflight(graph.stack, "us-west-2", account, findings))
    return CliRunner().invoke(app, ["check", "--stack", "dev", *options.split()])


@pytest.mark.parametrize(
    ("findings", "code"), [((FAILS, GOOD), 1), ((WARNS, OPEN, GOOD), 0), ((OPEN,), 0), ((GOOD,), 0)]
)
def test_only_a_failure_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, findings: tuple[Finding, ...], code: int
) -> None:
    assert run(monkeypatch, *findings).exit_code == code
    assert run(monkeypatch, *findings, options="--json").exit_code == code


def test_the_table_says_what_fails_and_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, WARNS, FAILS, OPEN, GOOD, options="--no-color").output
    assert "dev · us-west-2 · account 111122223333" in shown
    assert [line for line in shown.split("\n") if line in ("Account and rights", "Quotas", "Versions", "Names")]
    assert "✗  VPCs" in shown
    assert "→ request 6 or more" in shown
    assert "not checked: the right eks:X is missing" in shown
    assert "✗ dev would fail on AWS: 1 check fails; 1 warn, 1 not checked, 1 pass." in shown


def test_without_credentials_one_line_says_so_and_nothing_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, OPEN, OPEN, account="", options="--no-color")
    assert "? None of 2 checks could be made: the right eks:X is missing." in shown.output
    assert "Kubernetes 1.35" not in shown.output
    assert shown.exit_code == 2
    assert run(monkeypatch, OPEN, account="", options="--json").exit_code == 2


def test_the_json_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.loads(run(monkeypatch, FAILS, GOOD, options="--json").output)
    assert data["summary"] == {"pass": 1, "warn": 0, "fail": 1, "not checked": 0}
    assert data["failed"] is True
    assert data["checks"][0] == {
        "id": "quotas/L-F678F1CE",
        "subject": "VPCs",
        "outcome": "fail",
        "detail": "1 needed, quota 5, others use 5",
        "remedy": "request 6 or more",
    }


def test_a_program_without_a_region_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "record", lambda _, stack: Graph("p", stack, (), {}))
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code == 2
    assert "names no region" in json.loads(result.output)["problems"][0]["reason"]
    assert check.CheckOptions("dev").as_json is False
