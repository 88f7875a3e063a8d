"""``trn check``: a test of quotas, capacity and rights on AWS before an ``up`` begins."""

import sys
from contextlib import nullcontext
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from trainium_eks.cli.shared import output, recording
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.report import counted, sections
from trainium_eks.cli.shared.with_cluster_options import Directory, Json, NoColor, Stack
from trainium_eks.client.failure import FAILED, WRONG_USAGE, UsageError
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.model.finding import Report, Status
from trainium_eks.operate.preflight import run as preflight
from trainium_eks.plan.graph import Graph

app = App(asks_cloud=False)

_HEADINGS = {
    "account": "Account and rights",
    "quotas": "Quotas",
    "capacity": "Capacity",
    "versions": "Versions",
    "network": "Adopted subnets",
    "storage": "Buckets",
    "images": "Images",
    "names": "Names",
    "keys": "Keys",
}


@app.command(example="trn check --stack prod")
def check(stack: Stack = "", as_json: Json = False, no_color: NoColor = False, directory: Directory = None) -> None:
    """Ask AWS whether an `up` would succeed: quotas, capacity, versions, rights, names. Only reads.

    Exit code: 0, also with warnings and with questions that could not be asked; 1 when something fails; 2 for wrong
    usage, and without credentials.
    """
    project = find_project(directory)
    check_stack(project, stack)
    with recording.spinner(f"Recording {stack}"):
        graph = recording.record(project, stack)
    report = look(graph, quiet=as_json)
    if as_json:
        output.write_json(report.to_json())
    else:
        show(report, no_color=no_color)
    # Without credentials nothing was asked, so nothing is well.
    raise typer.Exit(WRONG_USAGE if not report.facts["account"] else FAILED if report.failed else 0)


def look(graph: Graph, *, quiet: bool = False) -> Report:
    """Check a recorded program against AWS, with a spinner at a terminal. CommandError: the program names no region."""
    try:
        shown = not quiet and sys.stderr.isatty()
        with Console(stderr=True).status(f"Asking AWS about {graph.stack}") if shown else nullcontext():
            return preflight.look(graph)
    except ValueError as error:
        raise UsageError(str(error)) from None


def show(report: Report, *, only_troubles: bool = False, no_color: bool = False) -> None:
    """Print a preflight to stdout; of one before an ``up``, its failures and warnings."""
    facts = report.facts
    account = facts["account"] and f"account {facts['account']}"
    header = [Text(" · ".join(filter(None, (facts["stack"], facts["region"], account))), "bold")]
    findings = report.findings
    if only_troubles:
        header, findings = [], report.of(Status.FAIL, Status.WARN)
    elif not account:
        findings = ()  # every line would repeat it
    show_sections([*header, *sections(findings, _HEADINGS), _summary(report)], no_color=no_color)


def _summary(report: Report) -> Any:
    stack, fails = report.facts["stack"], len(report.of(Status.FAIL))
    rest = counted(report.summary, Status.WARN, Status.NOT_CHECKED, Status.PASS)
    if fails:
        said = f"{fails} {'check fails' if fails == 1 else 'checks fail'}; {rest}"
        return Text(f"✗ {stack} would fail on AWS: {said}.", "bold red")
    if not report.facts["account"]:
        why = f"None of {len(report.findings)} checks could be made: {report.findings[0].text}"
        return Text(f"? {why}.", "bold yellow")
    return Text(f"✓ No check fails for {stack}: {rest}.", "bold green")
