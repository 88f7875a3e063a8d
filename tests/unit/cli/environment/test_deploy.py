"""`make preview|up|destroy` and `trn deploy`: what they check and say before they hand over to pulumi."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from outcome import ends
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.environment import check, deploy, destroy
from trainium_eks.client.failure import CommandError
from trainium_eks.operate.finding import Finding, Report, Status
from trainium_eks.plan.graph import Graph, Options, Resource

FILES = "aws:fsx/lustreFileSystem:LustreFileSystem"
PROVIDER = Resource(
    "urn:pulumi:dev::p::pulumi:providers:aws::aws", "pulumi:providers:aws", "aws", inputs={"region": "us-west-2"}
)


def _tool(directory: Path, name: str, output: str, code: int = 0) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of programs but for the shell's, with a pulumi that works."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.chdir(tmp_path)  # `run` changes the directory; this brings it back for the tests after
    _tool(tmp_path, "pulumi", "v3.260.0")
    return tmp_path


@pytest.fixture
def handed(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pulumi was called with."""
    del path
    commands: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: commands.append(command))
    return commands


def test_missing_tools_are_named_with_how_to_install_them_before_pulumi_begins(path: Path) -> None:
    (path / "pulumi").unlink()
    (path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (path / "__main__.py").write_text("")
    said = ends(2, CliRunner().invoke(app, ["deploy", "up", "--stack", "dev"]), "pulumi is not on PATH")
    assert said.count("Install: https://") == 2


@pytest.mark.parametrize("good", [True, False])
def test_aws_cli_of_either_major_works_from_the_version_that_can_get_tokens(path: Path, good: bool) -> None:
    for version in ("1.24.0", "1.45.11", "2.7.0", "3.0.1") if good else ("0.9.0", "1.18.69", "1.23.9", "2.6.9"):
        _tool(path, "aws", f"aws-cli/{version} Python/3.13")
        too_old = f"aws {version} is too old, 1.24.0 or 2.7.0 or newer is needed."
        assert deploy.complaints() == ([] if good else [f"{too_old}\n  Install: {deploy.TOOLS[1].install}"])


def test_broken_tool_is_shown_with_its_own_words(path: Path) -> None:
    _tool(path, "pulumi", "cannot start", code=3)
    assert "cannot start" in deploy.complaints()[0]


BUCKET, KEY = "aws:s3/bucket:Bucket", "aws:kms/key:Key"


@pytest.mark.parametrize(
    ("type_", "inputs", "options", "fate"),
    [
        (FILES, {}, Options(protect=True), "protected"),
        (FILES, {"skipFinalBackup": False, "automaticBackupRetentionDays": 7}, Options(), "DELETED, after a final"),
        (FILES, {}, Options(), "is lost"),
        (BUCKET, {}, Options(retain_on_delete=True), "kept in the account"),
        (BUCKET, {"forceDestroy": True}, Options(), "with its contents"),
        (BUCKET, {}, Options(), "deleted if empty"),
        (KEY, {"deletionWindowInDays": 7}, Options(), "in 7 days"),
    ],
)
def test_destroy_says_what_becomes_of_data(type_: str, inputs: dict[str, Any], options: Options, fate: str) -> None:
    [line] = destroy.data_lines(Graph("p", "s", (Resource("u", type_, "n", inputs=inputs, options=options),), {}))
    assert fate in line


def test_run_hands_over_to_pulumi_with_parallelism(path: Path, handed: list[list[str]]) -> None:
    deploy.run("preview", Graph("p", "dev", (), {}), path, ["--diff"])
    deploy.run("up", Graph("p", "dev", (), {}), path, ["--parallel", "4"])
    deploy.run("destroy", Graph("p", "dev", (Resource("u", "aws:ec2/vpc:Vpc", "v"),), {}), path, [])
    assert handed == [
        ["pulumi", "preview", "--stack", "dev", "--diff", "--parallel", "32"],
        ["pulumi", "up", "--stack", "dev", "--parallel", "4"],
        ["pulumi", "destroy", "--stack", "dev", "--parallel", "32"],
    ]


@pytest.mark.parametrize("arguments", [[], ["--skip-preview"], ["--yes", "-f"]])
def test_destroy_of_a_stack_that_protects_something_is_not_started(
    path: Path, handed: list[list[str]], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    kept = Resource("u", FILES, "files", options=Options(protect=True))
    with pytest.raises(CommandError, match=r"prod protects 1 resources \(files(.|\n)*production: false") as stopped:
        deploy.run("destroy", Graph("p", "prod", (kept,), {}), path, arguments)
    assert (stopped.value.code, handed) == (1, [])
    assert "files: protected" in capsys.readouterr().out


def answered(outcome: Status) -> Report:
    facts = {"stack": "dev", "region": "us-west-2", "account": "1"}
    return Report(facts, (Finding("quotas/L-1", outcome, "VPCs", "1 needed", "ask for more"),))


@pytest.mark.parametrize(
    ("command", "outcome", "arguments", "begins"),
    [
        ("up", Status.PASS, [], True),
        ("up", Status.WARN, [], True),
        ("up", Status.NOT_CHECKED, [], True),
        ("up", Status.FAIL, [], False),
        ("up", Status.FAIL, ["--yes"], False),
        ("up", Status.FAIL, ["--skip-check"], True),
        ("preview", Status.FAIL, [], True),
        ("destroy", Status.FAIL, [], True),
    ],
)
def test_up_alone_does_not_begin_where_a_check_fails(
    path: Path,
    handed: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    outcome: Status,
    arguments: list[str],
    begins: bool,
) -> None:
    monkeypatch.setattr(check, "look", lambda _: answered(outcome))
    graph = Graph("p", "dev", (PROVIDER,), {})
    if begins:
        deploy.run(command, graph, path, arguments)
        assert handed == [["pulumi", command, "--stack", "dev", "--parallel", "32"]]
        return
    with pytest.raises(CommandError, match="--skip-check") as stopped:
        deploy.run(command, graph, path, arguments)
    assert (stopped.value.code, handed) == (1, [])
    assert "ask for more" in capsys.readouterr().out


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
    with pytest.raises(CommandError, match="Nothing was changed") if asked else nullcontext():
        deploy.run("up", graph, path, arguments)
    assert [bool(questions), bool(handed)] == [asked, not asked]
    assert all("$0.00 an hour" in question for question in questions)
