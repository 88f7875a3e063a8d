"""``trn deploy preview|up|destroy``: checks of tools, cost and account, and then the real ``pulumi``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from trainium_eks.cli.environment.change import claims
from trainium_eks.cli.shared import recording
from trainium_eks.cli.shared.recording import spinner
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.plan import cost
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import registry

PARALLEL = 32
"""Operations at a time. Pulumi's default is 4 for each CPU: on two CPUs the long waits (node groups, add-ons,
file system, NAT) would queue behind each other."""


@dataclass(frozen=True)
class Tool:
    """A program that has to be on PATH."""

    name: str
    minimums: tuple[tuple[int, int, int], ...]
    """Lowest version of each major that works, in order; a later major works too."""
    version_arguments: tuple[str, ...]
    needed_for: str
    install: str

    def complaint(self, which: Callable[[str], str | None] = shutil.which) -> str | None:
        """Return why the tool is unusable here, with the remedy; None when it is installed and new enough."""
        path = which(self.name)
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


def complaints(tools: Sequence[Tool] = TOOLS) -> list[str]:
    """Return the unusable tools of this machine, each with its remedy."""
    return [complaint for tool in tools if (complaint := tool.complaint()) is not None]


def cost_line(graph: Graph) -> str:
    """Return a line with the running cost of the environment."""
    bill = cost.estimate(graph)
    line = f"{graph.stack}: about ${bill.hourly_usd:,.2f} an hour, ${bill.monthly_usd:,.0f} a month at desired sizes"
    return f"{line}; no price known for {', '.join(bill.unknown)}" if bill.unknown else line


def data_lines(graph: Graph) -> list[str]:
    """Return a line for each resource with data and its fate at a destroy: protected, kept, backed up or lost."""
    holding = []
    for resource in graph.resources:
        holds = registry.of(resource).holds if resource.custom else None
        if holds is not None and holds.when_deleted is not None:
            holding.append((holds.worth, resource.urn, f"  {resource.name}: {fate(resource, holds.when_deleted)}"))
    return [line for _, _, line in sorted(holding)]


def fate(resource: Resource, when_deleted: Callable[[Resource], str]) -> str:
    """Return the fate of a resource with data at a ``pulumi destroy``.

    Args:
        resource: a resource of a type that holds data.
        when_deleted: its type's answer for a resource that is neither protected nor retained.
    """
    if resource.options.protect:
        return "protected: kept until `production` (or `protect`) is lifted and applied"
    if resource.options.retain_on_delete or resource.inputs.get("skipDestroy"):
        return "kept in the account, no longer managed"
    return when_deleted(resource)


SKIP_PREVIEW = ("--skip-preview", "-f")


def refusal(operation: str, graph: Graph, arguments: Sequence[str]) -> str | None:
    """Return the reason why an operation is not started; None when it may be.

    Without a preview Pulumi deletes all unprotected resources before it comes to the protected ones: of a production
    stack it would leave the file system and nothing to use it with (seen on a real engine).
    """
    if operation != "destroy":
        return None
    kept = [resource.name for resource in graph.resources if resource.options.protect and resource.custom]
    if not kept:
        return None
    skipped = next((argument for argument in arguments if argument in SKIP_PREVIEW), None)
    flag = f" {skipped} would also bypass Pulumi's protection check." if skipped else ""
    return (
        f"{graph.stack} protects {len(kept)} resources ({', '.join(kept[:3])}, …), so it is not destroyed.{flag}\n"
        "  To destroy it anyway: set `production: false` (and `fileSystem.protect: false` where it is set) in "
        f"Pulumi.{graph.stack}.yaml, run `make up STACK={graph.stack}`, then destroy."
    )


WAIT = "--wait-for-pods"
"""Option of ``up``: wait until no pod holds a deleted claim. Ours, not pulumi's."""


SKIP_CHECK = "--skip-check"
"""Option of ``up``: begin without the checks of ``trn check``. Ours, not pulumi's."""

CONFIRMED = ("--yes", "-y", "--non-interactive")
"""Arguments with which pulumi asks nothing, and so we do not."""


def check_account(graph: Graph) -> None:
    """Stop before an update that would fail on AWS; print the failed checks and the warnings.

    Raises:
        SystemExit: 1 when a check fails.
    """
    from trainium_eks.cli.environment import check

    try:
        found = check.look(graph)
    except Failure:
        return  # a program without a region makes nothing in AWS
    check.show(found, only_troubles=True)
    if found.failed:
        _stop(f"Mend what fails, or go on all the same with {SKIP_CHECK} (make up ARGS={SKIP_CHECK}).")


def confirm_cost(graph: Graph, arguments: Sequence[str]) -> None:
    """Ask at a terminal whether the environment may cost its hourly price; ask only where pulumi would ask, too.

    Raises:
        SystemExit: 1 when it may not.
    """
    told = os.environ.get("PULUMI_SKIP_CONFIRMATIONS", "").lower() in ("1", "true")
    if told or any(each in CONFIRMED for each in arguments) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    hourly = cost.estimate(graph).hourly_usd
    if not typer.confirm(f"{graph.stack} costs about ${hourly:,.2f} an hour from now on. Begin?"):
        _stop("Nothing was changed.")


def spare_jobs(graph: Graph, directory: Path, arguments: Sequence[str], *, patient: bool) -> None:
    """Stop before an update that pods would hold up half-way; with ``patient``, wait for them.

    Raises:
        SystemExit: 1 with the claims, the pods that hold them and the commands that free them.
    """
    ask = claims.ask_cluster(directory, graph.stack)
    try:
        going = claims.ahead(directory, graph.stack, arguments)
    except Failure as failure:
        # The update itself will say the same, or more.
        typer.echo(f"Cannot check which claims this deletes and pods hold: {failure.title}", err=True)
        return
    if not going:
        return
    typer.echo(claims.told(going))
    # With its namespace a claim goes, and its pods end: the request implies that.
    held = [claim for claim in going if not claim.with_namespace]
    try:
        if patient:
            claims.wait(held, ask, typer.echo)
        elif found := ask(held):
            _stop(claims.refusal(found))
    except Failure as failure:
        typer.echo(
            f"Cannot ask the cluster which pods hold them: {failure.title}\n"
            "  The engine waits five minutes for a claim and then stops, before the file system is touched.",
            err=True,
        )


def _prepared(graph: Graph, directory: Path, arguments: Sequence[str]) -> list[str]:
    """Show and run the steps before a destroy; return the arguments for pulumi."""
    from trainium_eks.cli.environment.change import destroy

    try:
        return destroy.prepare(graph, directory, arguments)
    except Failure as failure:
        _stop(failure.text())


def run(operation: str, graph: Graph, directory: Path, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by ``pulumi``; return only by an exception.

    Raises:
        SystemExit: 2 with the tools missing on this machine, 1 with the reason of a refusal.
    """
    patient = WAIT in arguments
    unchecked = SKIP_CHECK in arguments
    arguments = [each for each in arguments if each not in (WAIT, SKIP_CHECK)]
    missing = complaints()
    if missing:
        _stop("\n".join(missing), WRONG_USAGE)
    typer.echo(cost_line(graph))
    if operation == "destroy" and (lines := data_lines(graph)):
        typer.echo("\n".join(["What holds data:", *lines]))
    if (refused := refusal(operation, graph, arguments)) is not None:
        _stop(refused)
    if operation == "destroy":
        arguments = _prepared(graph, directory, arguments)
    if operation == "up":
        if not unchecked:
            check_account(graph)
        spare_jobs(graph, directory, arguments, patient=patient)
        confirm_cost(graph, arguments)
    command = ["pulumi", operation, "--stack", graph.stack, *arguments]
    if not any(argument.startswith(("--parallel", "-p")) for argument in arguments):
        command += ["--parallel", str(PARALLEL)]
    sys.stdout.flush()
    os.chdir(directory)
    os.execvp(command[0], command)


def _stop(message: str, code: int = FAILED) -> NoReturn:
    typer.echo(message, err=True)
    raise SystemExit(code)


def record_and_run(operation: str, stack: str, directory: Path | None, arguments: Sequence[str]) -> int:
    """Record the program, then hand over to the real `pulumi`; return only when it cannot run."""
    try:
        project = find_project(directory)
        check_stack(project, stack)
        missing = complaints()
        if missing:
            raise Failure(WRONG_USAGE, "\n".join(missing))
        with spinner(f"Recording {stack}"):
            graph = recording.record(project, stack)
    except Failure as failure:
        return complain(failure)
    return run(operation, graph, project, arguments)
