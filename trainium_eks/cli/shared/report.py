"""A report of findings for people: findings by section, each failure with its remedy; and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainium_eks.client.failure import as_typed
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.finding import Finding, Status

SUBJECT_WIDTH = 36
"""Most columns of the subjects, so that the sentences have room on a narrow screen."""
MOST_DETAILS = 10

MARKS = {
    Status.PASS: ("✓", "green", ""),
    Status.WARN: ("!", "yellow", "yellow"),
    Status.FAIL: ("✗", "bold red", "red"),
    Status.NOT_CHECKED: ("?", "yellow", "yellow"),
    Status.NOT_APPLICABLE: ("-", "dim", "dim"),
}


def sections(findings: Sequence[Finding], headings: Mapping[str, str]) -> Iterable[RenderableType]:
    """Yield a table for each section of the findings, under its heading."""
    for section, found in groupby(findings, key=lambda each: each.section):
        yield Group(
            Text(headings.get(section, section), "bold underline"),
            Padding(table(found), (0, 0, 0, 2), expand=False),
        )


def counted(summary: Mapping[str, int], *statuses: Status) -> str:
    """Return the numbers of findings in words, without zeros: ``2 warn, 31 pass``."""
    return ", ".join(f"{summary[status.value]} {status.value}" for status in statuses if summary[status.value])


def table(findings: Iterable[Finding]) -> Table:
    """Return the findings as a table: mark, subject, sentence with its details and the remedy."""
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column("mark")
    rows.add_column("subject", overflow="fold", max_width=SUBJECT_WIDTH)
    rows.add_column("found", overflow="fold")
    for each in findings:
        mark, color, _ = MARKS[each.status]
        rows.add_row(Text(mark, color), Text(printable(each.subject)), Group(*_lines(each)))
    return rows


def _lines(finding: Finding) -> Iterable[Text]:
    # Parts of all of these are written by pods.
    text = f"not checked: {finding.text}" if finding.status is Status.NOT_CHECKED else finding.text
    yield Text(printable(text), MARKS[finding.status][2])
    shown = finding.details if len(finding.details) <= MOST_DETAILS else finding.details[: MOST_DETAILS - 1]
    yield from (Text(printable(line)) for line in shown)
    if len(shown) < len(finding.details):
        yield Text(f"and {len(finding.details) - len(shown)} more", "dim")
    if finding.fault:
        yield Text(f"{finding.fault}: {finding.data['cause']}", "dim")
    if finding.fix:
        yield Text(f"→ {printable(as_typed(finding.fix))}", "cyan")
