"""A preflight for people: findings by section, each failure with its remedy."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.shared.console import show_sections
from trainium_eks.client.failure import as_typed
from trainium_eks.operate.preflight.finding import Finding, Outcome
from trainium_eks.operate.preflight.run import Preflight

SUBJECT_WIDTH = 34
"""Most columns of the subjects, so that details have room on a narrow screen."""

_HEADINGS = {
    "account": "Account and rights",
    "quotas": "Quotas",
    "capacity": "Capacity",
    "versions": "Versions",
    "network": "Adopted subnets",
    "storage": "Buckets",
    "images": "Images",
    "names": "Names",
}
_MARKS = {
    Outcome.PASS: ("✓", "green", ""),
    Outcome.WARN: ("!", "yellow", "yellow"),
    Outcome.FAIL: ("✗", "bold red", "red"),
    Outcome.NOT_CHECKED: ("?", "dim", "dim"),
}


def show(found: Preflight, *, no_color: bool = False) -> None:
    """Print a preflight to stdout."""
    # Where nobody could be asked, every line would say so.
    sections = _sections(found.findings) if found.account else ()
    show_sections([_header(found), *sections, summary(found)], no_color=no_color)


def show_troubles(found: Preflight) -> None:
    """Print the failures and warnings before an ``up``, and a summary."""
    troubles = found.of(Outcome.FAIL, Outcome.WARN)
    show_sections([*_sections(troubles), summary(found)])


def summary(found: Preflight) -> Text:
    """Return the last line: the result, in numbers."""
    counts = found.summary
    words = ((Outcome.WARN, "warn"), (Outcome.NOT_CHECKED, "not checked"), (Outcome.PASS, "pass"))
    rest = ", ".join(f"{counts[outcome.value]} {word}" for outcome, word in words if counts[outcome.value])
    if found.failed:
        fails = counts[Outcome.FAIL.value]
        return Text(
            f"✗ {found.stack} would fail on AWS: {fails} {'check fails' if fails == 1 else 'checks fail'}; {rest}.",
            "bold red",
        )
    if not found.account:
        number = len(found.findings)
        return Text(f"? None of {number} checks could be made: {found.findings[0].detail}.", "bold yellow")
    return Text(f"✓ Nothing that was checked stands in the way of {found.stack}: {rest}.", "bold green")


def _header(found: Preflight) -> RenderableType:
    where = f"account {found.account}" if found.account else ""
    return Text(" · ".join(filter(None, (found.stack, found.region, where))), "bold")


def _sections(findings: Sequence[Finding]) -> Iterable[RenderableType]:
    for section, of_section in groupby(findings, key=lambda each: each.section):
        yield Group(Text(_HEADINGS[section], "bold underline"), Padding(_table(of_section), (0, 0, 0, 2), expand=False))


def _table(findings: Iterable[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mark")
    table.add_column("subject", overflow="fold", max_width=SUBJECT_WIDTH)
    table.add_column("found", overflow="fold")
    for each in findings:
        mark, color, style = _MARKS[each.outcome]
        told = f"not checked: {each.detail}" if each.outcome is Outcome.NOT_CHECKED else each.detail
        lines = [Text(told, style)]
        if each.remedy:
            lines.append(Text(f"→ {as_typed(each.remedy)}", "cyan"))
        table.add_row(Text(mark, color), Text(each.subject), Group(*lines))
    return table
