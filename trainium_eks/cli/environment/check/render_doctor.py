"""Findings, faults and alerts for people."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.client.failure import as_typed
from trainium_eks.kube.pod_text import printable
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.alerts.alert import Alert
from trainium_eks.observe.alerts.firing import Firing
from trainium_eks.observe.faults.fault import Fault
from trainium_eks.operate.doctor.findings import Diagnosis, Finding

_COLORS = {"critical": "bold red", "warning": "yellow"}


def diagnosis(found: Diagnosis, subject: str) -> RenderableType:
    """Return the findings, the number of objects that were looked at, and the kinds that were not."""
    counts = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in found.looked_at.items())
    looked = f"Looked at {counts}." if counts else ""
    lines = [line for each in found.findings for line in _finding(each)]
    if found.findings:
        number = "1 fault" if len(found.findings) == 1 else f"{len(found.findings)} faults"
        lines.append(Text(f"✗ {subject}: {number}. {looked}", "bold red"))
    else:
        lines.append(Text(f"✓ {subject}: no fault found. {looked}", "bold green"))
    if found.unread:
        lines.append(Text(f"Not looked at: {', '.join(found.unread)}, which your user may not list.", "dim"))
    if found.uncompared:
        what = "; ".join(f"{each} ({why})" for each, why in found.uncompared.items())
        lines.append(Text(f"Not compared with the state of the stack: {what}.", "dim"))
    return Group(*lines)


def _finding(each: Finding) -> Iterator[Text]:
    # Parts of both are written by pods.
    yield Text.assemble(("✗ ", "bold red"), (each.fault, "bold"), f"  {printable(each.about)}")
    yield Text(f"  {printable(each.sentence)}")
    yield Text(f"  {each.cause}", "dim")
    yield Text(f"  → {printable(as_typed(each.remedy))}", "cyan")
    yield Text("")


def faults(found: Sequence[Fault]) -> RenderableType:
    """Return a table with a line for each fault."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("FAULT", no_wrap=True)
    table.add_column("YOU SEE", overflow="fold")
    for fault in found:
        table.add_row(Text(fault.name), Text(fault.symptom.replace("`", "")))
    return table


def listed(found: Sequence[Alert]) -> RenderableType:
    """Return a table with a line for each alert and its meaning."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("ALERT", no_wrap=True)
    table.add_column("SEVERITY", no_wrap=True)
    table.add_column("MEANS", overflow="fold")
    for alert in found:
        table.add_row(Text(alert.name), _severity(alert.severity), Text(runbook.about(alert.name).replace("`", "")))
    return table


def firing(found: Sequence[Firing]) -> RenderableType:
    """Return the firing alerts with their summaries and next steps; then the names of the pending alerts."""
    now = [each for each in found if each.state == "firing"]
    soon = sorted({each.name for each in found if each.state != "firing"})
    lines = [line for each in now for line in _one(each)] or [Text("Nothing fires.")]
    if soon:
        lines.append(Text(f"Will fire if nothing changes: {', '.join(soon)}", "dim"))
    return Group(*lines)


def _one(alert: Firing) -> Iterator[Text]:
    yield Text.assemble(_severity(alert.severity or "-"), "  ", (alert.name, "bold"), f"  since {alert.since}")
    yield Text(f"  {alert.summary}")
    if alert.annotations.get("description", alert.summary) != alert.summary:
        yield Text(f"  {alert.annotations['description']}", "dim")
    if alert.annotations.get("next"):
        yield Text(f"  Next: {as_typed(alert.annotations['next'])}")
    yield Text("")


def _severity(severity: str) -> Text:
    return Text(severity, _COLORS.get(severity, ""))
