"""A verification for people: checks by section, with their faults and remedies."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.environment.plan.render import MOST_FAULTS
from trainium_eks.cli.shared.console import shortened, show_sections
from trainium_eks.client.failure import as_typed
from trainium_eks.operate.verify.check import Check, CheckStatus
from trainium_eks.operate.verify.verify import Verification

SUBJECT_WIDTH = 36
"""Most columns of the subjects, so that details have room on a narrow screen."""

_HEADINGS = {
    "server": "API server",
    "nodes": "Nodes",
    "devices": "Devices",
    "plugins": "Plugins and add-ons",
    "storage": "Storage",
    "volcano": "Volcano",
    "topology": "Network topology",
    "namespaces": "Namespaces",
    "queues": "Queues",
    "objects": "What the stack made",
}
_MARKS = {
    CheckStatus.PASS: ("✓", "green"),
    CheckStatus.FAIL: ("✗", "bold red"),
    CheckStatus.NOT_INSTALLED: ("~", "yellow"),
    CheckStatus.NOT_APPLICABLE: ("-", "dim"),
}


def show(found: Verification, *, no_color: bool = False) -> None:
    """Print the verification to stdout."""
    show_sections([*_sections(found), summary(found)], no_color=no_color)


def failures(found: Verification) -> RenderableType:
    """Return the failed checks, each with its remedy."""
    failed = [check for check in found.checks if check.status is CheckStatus.FAIL]
    return Group(
        Text("Not as the stack says", "bold underline"), Padding(checks_table(failed), (0, 0, 0, 2), expand=False)
    )


def _sections(found: Verification) -> Iterable[RenderableType]:
    yield _header(found)
    for section, checks in groupby(found.checks, key=lambda check: check.section):
        yield Group(
            Text(_HEADINGS[section], "bold underline"), Padding(checks_table([*checks]), (0, 0, 0, 2), expand=False)
        )

    reasons = {check.detail for check in found.checks if check.status is CheckStatus.NOT_INSTALLED}
    if long := sorted(reason for reason in reasons if shortened(reason) != reason):
        lines = [Padding(Text(reason, "yellow"), (0, 0, 0, 2), expand=False) for reason in long]
        yield Group(Text("Not installed, in full", "bold underline"), *lines)


def _header(found: Verification) -> RenderableType:
    where = "local cloud" if found.local is not None else ""
    title = Text(" · ".join(filter(None, (found.stack, found.cluster, where))), "bold")
    lines = [title, Text(found.server, "dim")]
    if found.local is not None:
        packages = f", the answers of {', '.join(found.local.simulated)} made up" if found.local.simulated else ""
        lines.append(Text(f"Kubernetes is real; nodes and the pods on them are simulated{packages}.", "yellow"))
    return Group(*lines)


def checks_table(checks: Sequence[Check]) -> Table:
    """Return the checks as a table: mark, subject, finding with its faults and remedy."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mark")
    table.add_column("subject", overflow="fold", max_width=SUBJECT_WIDTH)
    table.add_column("found", overflow="fold")
    for check in checks:
        mark, color = _MARKS[check.status]
        table.add_row(Text(mark, color), Text(check.subject), Group(*_found(check)))
    return table


def _found(check: Check) -> Iterable[Text]:
    if check.status is CheckStatus.NOT_INSTALLED:
        yield Text(f"not installed: {shortened(check.detail)}", "yellow")
        return
    yield Text(check.detail, {CheckStatus.FAIL: "red", CheckStatus.NOT_APPLICABLE: "dim"}.get(check.status, ""))
    shown = check.faults if len(check.faults) <= MOST_FAULTS else check.faults[: MOST_FAULTS - 1]
    yield from (Text(fault) for fault in shown)
    if len(shown) < len(check.faults):
        yield Text(f"and {len(check.faults) - len(shown)} more", "dim")
    if check.remedy:
        yield Text(f"→ {as_typed(check.remedy)}", "cyan")


def summary(found: Verification) -> Text:
    """Return one line: whether the cluster is as its stack says."""
    counts = found.summary
    name = found.stack or found.cluster
    words = (("pass", "pass"), ("notInstalled", "not installed here"), ("notApplicable", "do not apply"))
    rest = ", ".join(f"{counts[key]} {word}" for key, word in words if counts[key])
    if not found.failed:
        return Text(f"✓ {name} is as its stack says: {rest}.", "bold green")
    fail = "1 check fails" if counts["fail"] == 1 else f"{counts['fail']} checks fail"
    return Text(f"✗ {name} is not as its stack says: {fail}; {rest}.", "bold red")
