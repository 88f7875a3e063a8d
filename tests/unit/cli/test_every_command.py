"""What holds for every command: an example in its help, its stack and its exit codes by one rule."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command_lines import ROOT, commands, imported, parse, words
from outcome import raising
from typer.testing import CliRunner

from trainium_eks import __version__, cli
from trainium_eks.cli.app import app
from trainium_eks.cli.shared.command import ENVIRONMENT, IMAGES, JOBS, LOCAL, RUNS_HERE, Entry, LazyGroup, choose
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, CommandError, UsageError, as_typed, complain
from trainium_eks.client.notices import begin
from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.paths import Paths

README = Path(__file__).parents[3] / "README.md"

COMMANDS = [pytest.param(path, command, id=" ".join(path)) for path, command in commands()]
OF_A_STACK = [
    param for param in COMMANDS if any(each.name == "stack" and each.default == "" for each in param.values[1].params)
]


def example(command):
    return words(command.epilog.removeprefix("Example: "))[1:]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a stack dev, on a machine without any tool and without credentials."""
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path / "no-tools"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "proposed"),
    [("train --retrys 1", "--retries"), ("train --gpus 8", ""), ("destory", ""), ("cancl a", "'cancel'")],
)
def test_suggestion_for_a_misspelt_word_is_close(line, proposed):
    shown = CliRunner().invoke(app, line.split()).stderr
    assert re.findall(r"Possible options: ([^)]+)\)|Did you mean ([^?]+)\?", shown) == (
        [(proposed, "")] if proposed.startswith("--") else [("", proposed)] if proposed else []
    )


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_help_ends_with_a_valid_example(path, command):
    assert command.epilog.startswith(f"Example: trn {' '.join(path)}")
    assert parse(example(command))[0] == path[-1]


def test_help_groups_commands_like_the_readme_and_unknown_options_fail():
    shown = {}
    for name, command in ROOT.commands.items():
        shown.setdefault(command.rich_help_panel, []).append(name)
    rows = re.findall(r"^\| \*\*(\w+)\*\* \| (.*) \|$", README.read_text(), re.MULTILINE)
    listed = {group: re.findall(r"`([a-z ]+)`", text) for group, text in rows}
    for group in (IMAGES, LOCAL):
        name, first = listed[group][0].split()
        assert {first, *listed[group][1:]} == imported(ROOT, name).commands.keys()
        listed[group] = [name]
    assert [*shown] == [*listed] == [ENVIRONMENT, JOBS, IMAGES, LOCAL]
    assert shown == listed
    codes = {path: CliRunner().invoke(app, [*path, "--no-such-option"]).exit_code for path, _ in commands()}
    assert codes == dict.fromkeys(codes, 2)
    assert CliRunner().invoke(app, ["--version"]).stdout == f"trn {__version__}\n"


@pytest.fixture
def noted(monkeypatch):
    """What each command is called with, in place of running it."""
    calls = {}
    for _, command in commands():
        monkeypatch.setattr(command, "callback", lambda **given: calls.update(given))
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT)
    return calls


@pytest.mark.parametrize(("path", "command"), OF_A_STACK)
def test_stack_is_chosen_by_the_common_rule_and_shown_first(path, command, noted, project, monkeypatch):
    line = [word for word in example(command) if word not in ("--stack", "dev", "prod", "local") or word in path]
    last = "local" if path[0] == "local" else "dev"
    for named, stack in (("", last), ("blue", "blue")):
        monkeypatch.setenv("TRN_STACK", named)
        shown = CliRunner().invoke(app, line)
        assert shown.exit_code == 0, shown.output
        assert shown.stderr.startswith(f"Stack {stack} (")
        assert noted["stack"] == stack
    shown = CliRunner().invoke(app, [*path, "--stack", "green", *line[len(path) :]])
    assert (shown.stderr.partition(" (")[0], noted["stack"]) == ("Stack green", "green")
    if any(each.name == "as_json" for each in command.params):
        assert CliRunner().invoke(app, [*path, "--json", *line[len(path) :]]).stderr == ""


def _runs(monkeypatch, project, *stacks):
    """These local clouds run, and one is stopped."""
    for stack in (*stacks, "stopped"):
        paths = Paths.of(project, stack)
        paths.root.mkdir(parents=True)
        paths.settings.touch()
    monkeypatch.setattr(processes, "running", lambda paths: [paths] if paths.root.name in stacks else [])


def test_offline_command_uses_the_default_of_two_stacks(project, monkeypatch):
    _runs(monkeypatch, project, "mine", "yours")
    assert choose("", None, "dev", asks_cloud=False)[0] == "dev"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_stream_ends_no_command(closed, tmp_path):
    """The stream's number goes to no file that the command opens."""
    script = (
        "import os, sys\n"
        "from trainium_eks.cli import _open_closed_streams\n"
        "_open_closed_streams()\n"
        "opened = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "print('out'); print('err', file=sys.stderr); sys.stdin.read()\n"
        "sys.exit(opened < 3)\n"
    )
    command = f'{sys.executable} -c "$SCRIPT" {tmp_path}/file {closed}'
    environment = {**os.environ, "SCRIPT": script}
    done = subprocess.run(["sh", "-c", command], check=False, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0


def test_command_shows_progress_within_a_second(monkeypatch):
    said = threading.Event()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            said.set()
            return super().write(text)

    class SlowModule:
        @property
        def app(self):
            assert said.wait(30), "nothing was said while the modules were imported"
            said.clear()
            return LazyGroup(name="group") if command else lambda **_: None

    terminal, command = Terminal(), ""
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(cli, "_ALIVE_SECONDS", 0.01)
    monkeypatch.setitem(sys.modules, "trainium_eks.cli.app", SlowModule())
    cli.main()
    command = "slow"
    monkeypatch.setattr("importlib.import_module", lambda _: SlowModule())
    assert LazyGroup(entries={command: Entry("jobs.slow", "A command.")}).load(command).name == command
    assert terminal.getvalue() == "trn: loading its modules ...\n" * 2


def test_running_local_cloud_precedes_the_default_stack(project, monkeypatch):
    _runs(monkeypatch, project, "mine")
    assert choose("", None, "dev") == ("mine", RUNS_HERE)
    assert choose("prod", None, "dev")[0] == "prod"
    monkeypatch.setenv("TRN_STACK", "blue")
    assert choose("", None, "dev")[0] == "blue"


@pytest.mark.parametrize(
    ("running", "line", "said"), [(("a", "b"), "jobs", "name a or b"), (("dev",), "deploy up", "name the stack on AWS")]
)
def test_ambiguous_stack_must_be_named(project, monkeypatch, running, line, said):
    _runs(monkeypatch, project, *running)
    shown = CliRunner().invoke(app, line.split())
    assert shown.exit_code == 2
    assert said in " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown.stderr).split())


NOT_RUN = {"local up", "local images make", "local images remove", "local images path", "local exec"}
"""Commands that make or take away something on this machine, or whose answer is this machine's."""


@pytest.mark.parametrize(("path", "command"), [each for each in COMMANDS if " ".join(each.values[0]) not in NOT_RUN])
def test_command_that_cannot_start_exits_2(path, command, project):
    line = ["dev" if word in ("prod", "local") and word not in path else word for word in example(command)]
    shown = CliRunner().invoke(app, line, input="")
    assert shown.exit_code == 2, shown.output
    assert shown.exception is None or isinstance(shown.exception, SystemExit)


WITH_OUTPUTS = [param for param in COMMANDS if {"outputs", "as_json"} <= {each.name for each in param.values[1].params}]


@pytest.mark.parametrize(("path", "command"), WITH_OUTPUTS)
def test_failed_command_names_its_work_and_prints_one_json_document(path, command, monkeypatch):
    begun = []
    for module in ("shared.command", "environment.doctor"):
        monkeypatch.setattr(f"trainium_eks.cli.{module}.begin", begun.append)
    named, given = example(command)[: len(path)], example(command)[len(path) :]
    shown = CliRunner().invoke(app, [*named, "--outputs", "/nowhere/outputs.json", "--json", *given])
    assert shown.exit_code == 2, shown.output
    assert "/nowhere/outputs.json" in json.loads(shown.stdout)["problems"][0]["reason"]
    assert shown.stderr == ""
    assert any(begun)


def test_notice_of_work_is_printed_only_at_a_terminal(monkeypatch, capsys):
    begin("reading")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    begin("")
    assert capsys.readouterr().err == ""
    begin("reading")
    assert capsys.readouterr().err == "-- reading\n"


# --- Why a command stopped --------------------------------------------------------------------------------------------


def test_command_is_shown_shell_quoted(monkeypatch, capsys):
    text = "run `trn local up`, then trn doctor; not attrn plan"
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/trn")
    assert as_typed(text) == text
    monkeypatch.setattr(shutil, "which", lambda _: None)
    typed = "run `./trn local up`, then ./trn doctor; not attrn plan"
    assert as_typed(text) == as_typed(typed) == typed
    assert complain(CommandError(text)) == FAILED
    assert capsys.readouterr().err == f"{typed}\n"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (UsageError("no such job"), WRONG_USAGE, "no such job\n"),
        (ClusterError("nobody answers"), FAILED, "nobody answers\n"),
        (MissingError("there is no kubectl"), WRONG_USAGE, "there is no kubectl\n"),
        (KeyboardInterrupt(), INTERRUPTED, "\nInterrupted.\n"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else None,
)
@pytest.mark.parametrize("as_json", [False, True])
def test_failed_command_reports_its_error(monkeypatch, error, code, told, as_json):
    monkeypatch.setattr("trainium_eks.cli.jobs.training.open_team", raising(error))
    # After `--` stand the script's own arguments.
    shown = CliRunner().invoke(app, ["train", "--stack", "dev", *(["--json"] if as_json else []), "--", "--json"])
    assert shown.exit_code == code
    if as_json and isinstance(error, Exception):
        assert [each["reason"] for each in json.loads(shown.stdout)["problems"]] == [told.strip()]
    else:
        assert shown.stderr.removeprefix("Stack dev (--stack)\n") == told
