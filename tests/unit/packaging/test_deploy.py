"""`make preview|up|destroy` and `trn deploy`: what they check and say before they hand over to pulumi."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainium_eks.cli.environment import check
from trainium_eks.cli.environment.change import deploy
from trainium_eks.operate.finding import Finding, Report, Status
from trainium_eks.plan.graph import Graph, Options, Resource


def _tool(directory: Path, name: str, output: str, code: int = 0) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.chdir(tmp_path)  # `run` changes the directory; this brings it back for the tests after
    return tmp_path


def test_both_tools_missing_are_named_with_how_to_install_them(path: Path) -> None:
    found = deploy.complaints()
    assert [line.split()[0] for line in found] == ["pulumi", "aws"]
    assert all("Install: https://" in line for line in found)


def test_old_aws_cli_is_named_with_the_version_that_works(path: Path) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/1.18.69 Python/3.8")
    assert deploy.complaints() == [
        f"aws 1.18.69 is too old, 1.24.0 or 2.7.0 or newer is needed.\n  Install: {deploy.TOOLS[1].install}"
    ]


def test_tools_that_work_raise_no_complaint(path: Path) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    assert deploy.complaints() == []


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("1.23.9", False),
        ("1.24.0", True),
        ("1.45.11", True),
        ("2.6.9", False),
        ("2.7.0", True),
        ("3.0.1", True),
        ("0.9.0", False),
    ],
)
def test_aws_cli_of_either_major_works_from_the_version_that_can_get_tokens(
    path: Path, version: str, good: bool
) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", f"aws-cli/{version} Python/3.13")
    assert (deploy.complaints() == []) is good


def test_broken_tool_is_shown_with_its_own_words(path: Path) -> None:
    _tool(path, "pulumi", "cannot start", code=3)
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    assert "cannot start" in deploy.complaints()[0]


@pytest.mark.parametrize(
    ("resource", "fate"),
    [
        (Resource("u", "aws:fsx/lustreFileSystem:LustreFileSystem", "f", options=Options(protect=True)), "protected"),
        (
            Resource(
                "u",
                "aws:fsx/lustreFileSystem:LustreFileSystem",
                "f",
                inputs={"skipFinalBackup": False, "automaticBackupRetentionDays": 7},
            ),
            "DELETED, after a final backup",
        ),
        (Resource("u", "aws:fsx/lustreFileSystem:LustreFileSystem", "f"), "is lost"),
        (Resource("u", "aws:s3/bucket:Bucket", "b", options=Options(retain_on_delete=True)), "kept in the account"),
        (Resource("u", "aws:s3/bucket:Bucket", "b", inputs={"forceDestroy": True}), "with its contents"),
        (Resource("u", "aws:s3/bucket:Bucket", "b"), "deleted if empty"),
        (Resource("u", "aws:kms/key:Key", "k", inputs={"deletionWindowInDays": 7}), "in 7 days"),
    ],
)
def test_destroy_says_what_becomes_of_data(resource: Resource, fate: str) -> None:
    graph = Graph("p", "s", (resource,), {})
    [line] = deploy.data_lines(graph)
    assert fate in line


def test_run_hands_over_to_pulumi_with_parallelism(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    handed: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: handed.append(command))
    deploy.run("preview", Graph("p", "dev", (), {}), path, ["--diff"])
    deploy.run("up", Graph("p", "dev", (), {}), path, ["--parallel", "4"])
    assert handed == [
        ["pulumi", "preview", "--stack", "dev", "--diff", "--parallel", "32"],
        ["pulumi", "up", "--stack", "dev", "--parallel", "4"],
    ]


def test_run_without_tools_stops_before_pulumi(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        deploy.run("up", Graph("p", "dev", (), {}), path, [])
    assert stopped.value.code == 2
    assert "pulumi is not on PATH" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--skip-preview"], ["--yes", "-f"]])
def test_destroy_of_a_stack_that_protects_something_is_not_started(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    handed: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: handed.append(command))
    kept = Resource("u", "aws:fsx/lustreFileSystem:LustreFileSystem", "files", options=Options(protect=True))
    with pytest.raises(SystemExit) as stopped:
        deploy.run("destroy", Graph("p", "prod", (kept,), {}), path, arguments)
    said = capsys.readouterr()
    assert stopped.value.code == 1
    assert handed == []
    assert "prod protects 1 resources (files" in said.err
    assert "production: false" in said.err
    assert "files: protected" in said.out


def test_destroy_of_an_unprotected_stack_is_handed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    handed: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: handed.append(command))
    deploy.run("destroy", Graph("p", "dev", (Resource("u", "aws:ec2/vpc:Vpc", "v"),), {}), path, [])
    assert handed == [["pulumi", "destroy", "--stack", "dev", "--parallel", "32"]]


PROVIDER = Resource(
    "urn:pulumi:dev::p::pulumi:providers:aws::aws", "pulumi:providers:aws", "aws", inputs={"region": "us-west-2"}
)


@pytest.fixture
def handed(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pulumi was called with."""
    _tool(path, "pulumi", "v3.260.0")
    _tool(path, "aws", "aws-cli/2.31.2 Python/3.13")
    commands: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: commands.append(command))
    return commands


def answered(outcome: Status) -> Report:
    facts = {"stack": "dev", "region": "us-west-2", "account": "1"}
    return Report(facts, (Finding("quotas/L-1", outcome, "VPCs", "1 needed", "ask for more"),))


@pytest.mark.parametrize(
    ("outcome", "arguments", "begins"),
    [
        (Status.PASS, [], True),
        (Status.WARN, [], True),
        (Status.NOT_CHECKED, [], True),
        (Status.FAIL, [], False),
        (Status.FAIL, ["--yes"], False),
        (Status.FAIL, ["--skip-check"], True),
    ],
)
def test_up_begins_unless_a_check_fails(
    path: Path,
    handed: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: Status,
    arguments: list[str],
    begins: bool,
) -> None:
    monkeypatch.setattr(check, "look", lambda _: answered(outcome))
    graph = Graph("p", "dev", (PROVIDER,), {})
    if begins:
        deploy.run("up", graph, path, arguments)
        assert handed == [["pulumi", "up", "--stack", "dev", "--parallel", "32"]]
        return
    with pytest.raises(SystemExit) as stopped:
        deploy.run("up", graph, path, arguments)
    assert (stopped.value.code, handed) == (1, [])
    shown = capsys.readouterr()
    assert "ask for more" in shown.out
    assert "--skip-check" in shown.err


def test_only_up_is_checked(path: Path, handed: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "look", lambda _: answered(Status.FAIL))
    deploy.run("preview", Graph("p", "dev", (PROVIDER,), {}), path, [])
    deploy.run("destroy", Graph("p", "dev", (PROVIDER,), {}), path, [])
    assert [command[1] for command in handed] == ["preview", "destroy"]


@pytest.mark.parametrize(
    ("terminal", "arguments", "variable", "asked"),
    [
        (True, [], "", True),
        (True, ["--yes"], "", False),
        (True, ["-y"], "", False),
        (True, [], "true", False),
        (False, [], "", False),
    ],
)
def test_the_hourly_cost_is_confirmed_where_pulumi_would_ask_too(
    path: Path,
    handed: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    arguments: list[str],
    variable: str,
    asked: bool,
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(check, "look", lambda _: answered(Status.PASS))
    monkeypatch.setattr(deploy.typer, "confirm", lambda text: questions.append(text) or False)
    monkeypatch.setattr(deploy.sys, "stdin", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.setattr(deploy.sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("PULUMI_SKIP_CONFIRMATIONS", variable)
    graph = Graph("p", "dev", (PROVIDER,), {})
    if asked:
        with pytest.raises(SystemExit):
            deploy.run("up", graph, path, arguments)
    else:
        deploy.run("up", graph, path, arguments)
    assert [bool(questions), bool(handed)] == [asked, not asked]
    assert all("$0.00 an hour" in question for question in questions)
