"""``trn deploy preview|up|destroy``: checks of tools, cost and account, and then the real ``pulumi``."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from trainium_eks.cli.environment import check, claims, destroy
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.command import RUNS_HERE, App
from trainium_eks.cli.shared.options import Directory, Stack
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.operate.denied_calls import find_denied_calls, format_denied_calls
from trainium_eks.plan import cost
from trainium_eks.plan.graph import Graph

app = App()

PARALLEL = 32
"""Operations at a time. Pulumi's default is 4 for each CPU: on two CPUs the long waits (node groups, add-ons,
file system, NAT) would queue behind each other."""

WAIT = "--wait-for-pods"
"""Option of ``up``: wait until no pod holds a deleted claim. Ours, not pulumi's."""

SKIP_CHECK = "--skip-check"
"""Option of ``up``: begin without the checks of ``trn check``. Ours, not pulumi's."""

CONFIRMED = ("--yes", "-y", "--non-interactive")
"""Arguments with which pulumi asks nothing, and so we do not."""


@app.command(context_settings={"ignore_unknown_options": True}, example="trn deploy preview --stack dev -- --diff")
def deploy(
    context: typer.Context,
    operation: Annotated[Literal["preview", "up", "destroy"], typer.Argument(help="preview, up or destroy.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Further arguments for pulumi, after --.")] = None,
    stack: Stack = "",
    directory: Directory = None,
) -> None:
    """Run the real `pulumi`, after checking the tools it needs and showing the hourly cost.

    `up` first runs the checks of `trn check` (not with --skip-check) and, at a terminal, asks you to accept the cost.
    It does not start while pods hold claims that it would delete; with --wait-for-pods it waits for them. It lists the
    calls that AWS denied with their remedies, and runs once more where AWS needs time after a change.
    `destroy` names the jobs that end and exports files that S3 lacks (not with --no-export; --export-minutes=120).
    """
    if context.obj == RUNS_HERE:
        raise typer.BadParameter(f"the local cloud of {stack} runs here; name the stack on AWS", param_hint="--stack")
    project = find_project(directory)
    check_stack(project, stack)
    if missing := complaints():
        raise UsageError("\n".join(missing))
    with recording.spinner(f"Recording {stack}"):
        graph = recording.record(project, stack)
    run(operation, graph, project, arguments or [])


@dataclass(frozen=True)
class Tool:
    """A program that has to be on PATH."""

    name: str
    minimums: tuple[tuple[int, int, int], ...]
    """Lowest version of each major that works, in order; a later major works too."""
    version_arguments: tuple[str, ...]
    needed_for: str
    install: str

    def complaint(self) -> str | None:
        """Return why the tool is unusable here, with the remedy; None when it is installed and new enough."""
        path = shutil.which(self.name)
        if path is None:
            return f"{self.name} is not on PATH; it is needed {self.needed_for}.\n  Install: {self.install}"
        shown = subprocess.run([path, *self.version_arguments], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", shown.stdout + shown.stderr)
        if shown.returncode or found is None:
            return f"{path} {' '.join(self.version_arguments)} failed: {(shown.stderr or shown.stdout).strip()}"
        major, minor, patch = (int(part or 0) for part in found.groups())
        lowest = next((each for each in self.minimums if each[0] == major), (self.minimums[-1][0], 0, 0))
        if (major, minor, patch) < lowest:
            wanted = " or ".join(".".join(map(str, each)) for each in self.minimums)
            return f"{self.name} {found.group(0)} is too old, {wanted} or newer is needed.\n  Install: {self.install}"
        return None


TOOLS = (
    Tool(
        "pulumi",
        ((3, 231, 0),),
        ("version",),
        "to build anything",
        "https://www.pulumi.com/docs/install/ (one binary; no account is needed with a file or S3 backend)",
    ),
    Tool(
        "aws",
        ((1, 24, 0), (2, 7, 0)),  # the first of each that speaks client.authentication.k8s.io/v1beta1
        ("--version",),
        "because pulumi-eks looks for it, at preview too, and the kubeconfig gets its tokens from it",
        "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    ),
)


def complaints() -> list[str]:
    """Return the unusable tools of this machine, each with its remedy."""
    return [complaint for tool in TOOLS if (complaint := tool.complaint()) is not None]


def run(operation: str, graph: Graph, project: Path, arguments: Sequence[str]) -> None:
    """Run ``pulumi`` after the operation's own checks: ``up`` as a child, to list its denied calls, the others in place
    of this process."""
    bill = cost.estimate(graph)
    line = f"{graph.stack}: about ${bill.hourly_usd:,.2f} an hour, ${bill.monthly_usd:,.0f} a month at desired sizes"
    typer.echo(f"{line}; no price known for {', '.join(bill.unknown)}" if bill.unknown else line)
    passed = [each for each in arguments if each not in (WAIT, SKIP_CHECK)]
    if operation == "destroy":
        passed = destroy.prepare(graph, project, passed)
    if operation == "up":
        if SKIP_CHECK not in arguments:
            check_account(graph)
        spare_jobs(graph, project, passed, patient=WAIT in arguments)
        confirm_cost(graph, passed, bill.hourly_usd)
    command = ["pulumi", operation, "--stack", graph.stack, *passed]
    if not any(argument.startswith(("--parallel", "-p")) for argument in passed):
        command += ["--parallel", str(PARALLEL)]
    sys.stdout.flush()
    os.chdir(project)
    if operation == "up":
        if code := run_up(command):
            raise typer.Exit(code)
        return
    os.execvp(command[0], command)


def run_up(command: Sequence[str]) -> int:
    """Run ``pulumi up``, list the calls that AWS denied, and run it once more if a wait alone can mend them all.

    Returns:
        The exit code of the last run.
    """
    for is_last in (False, True):
        code, messages = _run_with_events(command)
        calls = find_denied_calls(messages) if code else ()
        for line in format_denied_calls(calls):
            typer.echo(line, err=True)
        if is_last or not calls or not all(call.wait_seconds for call in calls):
            break
        seconds = max(call.wait_seconds for call in calls)
        typer.echo(f"All of them may pass after a wait: running it once more in {seconds} seconds.", err=True)
        time.sleep(seconds)
    return code


def _run_with_events(command: Sequence[str]) -> tuple[int, str]:
    """Run ``pulumi`` in this terminal; return its exit code and the messages of its event log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events.json"
        # The option is a debugging command; Pulumi's Automation API reads its events in the same way.
        environment = {**os.environ, "PULUMI_DEBUG_COMMANDS": "true"}
        process = subprocess.Popen([*command, "--event-log", str(log)], env=environment)
        # Ctrl-C reaches both, and pulumi ends the update in its own time; SIGTERM reaches this process alone.
        before = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGINT, signal.SIG_IGN),
                (signal.SIGTERM, lambda number, _: process.send_signal(number)),
            )
        }
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        messages = "\n".join(_messages(log.read_text(encoding="utf-8") if log.is_file() else ""))
    return (code if code >= 0 else 128 - code), messages


def _messages(events: str) -> Iterator[str]:
    """Yield the errors of an event log, and a line for each KMS key that the update makes."""
    for line in events.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a killed process
        shown = event.get("diagnosticEvent", {})
        if shown.get("severity") in ("error", "info#err"):
            yield f"error: {shown.get('message', '')}"
        made = event.get("resourcePreEvent", {}).get("metadata", {})
        if made.get("type") == "aws:kms/key:Key" and made.get("op") == "create":
            yield f"aws:kms:Key {made.get('urn')} created"


def check_account(graph: Graph) -> None:
    """Stop before an update that would fail on AWS; print the failed checks and the warnings."""
    try:
        found = check.look(graph)
    except CommandError:
        return  # a program without a region makes nothing in AWS
    check.show(found, only_troubles=True)
    if found.failed:
        raise CommandError(f"Fix the failures, or continue anyway with {SKIP_CHECK} (make up ARGS={SKIP_CHECK}).")


def confirm_cost(graph: Graph, arguments: Sequence[str], hourly_usd: float) -> None:
    """Ask at a terminal whether the environment may cost its hourly price; ask only where pulumi would ask, too."""
    told = os.environ.get("PULUMI_SKIP_CONFIRMATIONS", "").lower() in ("1", "true")
    if told or any(each in CONFIRMED for each in arguments) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    if not typer.confirm(f"{graph.stack} costs about ${hourly_usd:,.2f} an hour from now on. Begin?"):
        raise CommandError("Nothing was changed.")


def spare_jobs(graph: Graph, project: Path, arguments: Sequence[str], *, patient: bool) -> None:
    """Stop before an update that pods would hold up half-way; with ``patient``, wait for them."""
    ask = partial(claims.find_holders, project, graph.stack)
    try:
        going = claims.preview_claims(project, graph.stack, arguments)
    except CommandError as failure:
        # The update itself will say the same, or more.
        typer.echo(f"Cannot check which claims this deletes and pods hold: {failure.title}", err=True)
        return
    if not going:
        return
    typer.echo(claims.format_claims(going))
    # With its namespace a claim goes, and its pods end: the request implies that.
    held = [claim for claim in going if not claim.with_namespace]
    try:
        if patient:
            claims.wait(held, ask, typer.echo)
            return
        found = ask(held)
    except CommandError as failure:
        typer.echo(
            f"Cannot ask the cluster which pods hold them: {failure.title}\n"
            "  The engine waits five minutes for a claim and then stops, before the file system is touched.",
            err=True,
        )
        return
    if found:
        raise CommandError(claims.refusal(found))
