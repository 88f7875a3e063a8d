"""Alerts for people: all alerts, and the firing ones."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainium_eks.client.failure import as_typed
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.alerts.alert import Alert
from trainium_eks.observe.alerts.firing import Firing

_COLORS = {"critical": "bold red", "warning": "yellow"}


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
