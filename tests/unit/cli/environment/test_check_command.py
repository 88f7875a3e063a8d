"""`trn check`: its table, its JSON and its exit codes."""

import json

import pytest
from outcome import ends
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.shared import recording
from trainium_eks.model.finding import Finding, Report, Status, failed, not_checked, passed
from trainium_eks.operate.preflight import run as preflight
from trainium_eks.plan.graph import Graph

FAILS = failed("quotas/L-F678F1CE", "VPCs", "1 needed, quota 5, others use 5", "request 6 or more")
WARNS = Finding(Status.WARN, "role x", "not there", "aws iam create-service-linked-role", "account/role")
OPEN = not_checked("versions/kubernetes", "Kubernetes 1.35", "the right eks:X is missing")
GOOD = passed("names/cluster", "cluster", "free")


@pytest.fixture(autouse=True)
def _in_a_project(project, monkeypatch):
    monkeypatch.chdir(project.path)


def run(monkeypatch, *findings, account="111122223333", options=""):
    facts = {"stack": "dev", "region": "us-west-2", "account": account}
    monkeypatch.setattr(recording, "record", lambda _, stack: Graph("p", stack, (), {}))
    monkeypatch.setattr(preflight, "look", lambda _: Report(facts, findings))
    return CliRunner().invoke(app, ["check", "--stack", "dev", *options.split()])


@pytest.mark.parametrize(
    ("findings", "account", "code"), [((FAILS, GOOD), "1", 1), ((WARNS, OPEN, GOOD), "1", 0), ((OPEN,), "", 2)]
)
def test_exit_code_follows_failures_and_missing_credentials(monkeypatch, findings, account, code):
    assert run(monkeypatch, *findings, account=account).exit_code == code
    assert run(monkeypatch, *findings, account=account, options="--json").exit_code == code


def test_check_shows_failures_with_fixes_as_a_table_or_one_json_document(monkeypatch):
    shown = run(monkeypatch, WARNS, FAILS, OPEN, GOOD, options="--no-color")
    last = "✗ dev would fail on AWS: 1 check fails; 1 warn, 1 not checked, 1 pass."
    text = ends(1, shown, "dev · us-west-2 · account 111122223333", "✗  VPCs", "→ request 6 or more", last)
    assert "not checked: the right eks:X is missing" in text
    headings = ("Account and rights", "Quotas", "Versions", "Names")
    assert [line for line in shown.output.split("\n") if line in headings] == [*headings]
    shown = run(monkeypatch, OPEN, OPEN, account="", options="--no-color")
    assert (shown.exit_code, "Kubernetes 1.35" in shown.output) == (2, False)
    assert "? None of 2 checks could be made: the right eks:X is missing." in shown.output
    data = json.loads(run(monkeypatch, FAILS, GOOD, options="--json").output)
    [first, _] = data.pop("findings")
    summary = {"pass": 1, "warn": 0, "fail": 1, "not checked": 0, "not applicable": 0}
    facts = {"stack": "dev", "region": "us-west-2", "account": "111122223333"}
    assert data == {"schemaVersion": 2, **facts, "failed": True, "summary": summary}
    told = {"subject": "VPCs", "text": "1 needed, quota 5, others use 5", "fix": "request 6 or more", "details": []}
    assert first == {"id": "quotas/L-F678F1CE", "status": "fail", **told}


def test_program_without_a_region_is_a_usage_error(monkeypatch):
    monkeypatch.setattr(recording, "record", lambda _, stack: Graph("p", stack, (), {}))
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code == 2
    assert "names no region" in json.loads(result.output)["problems"][0]["reason"]
