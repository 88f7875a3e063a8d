"""The plan's training section for people: the useful share of a gang's time, and the price of a useful hour."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainium_eks.cli.shared.durations import duration
from trainium_eks.plan.goodput import Gang, Training

NARROW = 62
"""Columns below which only the share and its price are shown."""

_HEADINGS = ("a fault every", "save every", "takes", "useful", "$/useful hour")


def training(found: Training) -> RenderableType:
    """Return one line for each gang, then the assumptions."""
    notes = (Text(note, "dim") for note in _notes(found))
    parts: list[RenderableType] = [_Gangs(found.gangs), *notes]
    return Group(Text("Training", "bold underline"), *(Padding(each, (0, 0, 0, 2), expand=False) for each in parts))


class _Gangs:
    """The table, as wide as there is room."""

    def __init__(self, gangs: Sequence[Gang]) -> None:
        self._rows = dict.fromkeys(tuple(_row(gang)) for gang in gangs)  # groups of the same size say the same

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        first = 0 if options.max_width >= NARROW else _HEADINGS.index("useful")
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("all nodes at once", no_wrap=True)
        for heading in _HEADINGS[first:]:
            table.add_column(heading, justify="right", style="bold" if heading == "useful" else "")
        for gang, *cells in self._rows:
            table.add_row(gang, *cells[first:])
        yield table


def _row(gang: Gang) -> Iterator[str]:
    expected, dollars = gang.expected, gang.usd_per_useful_hour
    between = expected.run.seconds_between_faults
    yield f"{gang.nodes} × {gang.instance_type}"
    yield duration(between) if math.isfinite(between) else "never"
    yield duration(expected.interval_seconds)
    yield duration(expected.run.checkpoint_seconds)
    yield f"{100 * expected.useful_fraction:.1f} %"
    yield "?" if dollars is None else f"${dollars:,.2f}" if math.isfinite(dollars) else "never"


def _notes(found: Training) -> Iterator[str]:
    state = f"{found.state_gigabytes:g} GB (training.checkpointGigabytes)"
    yield f"Checkpoints of {state} at {found.megabytes_per_second:,.0f} MB/s, which the file system writes."
    for rate in dict.fromkeys(gang.rate for gang in found.gangs):
        where = f"as {rate.source} says" if rate.is_configured else f"as in {rate.source}"
        assumed = "; none is published for these" if rate.is_assumed else ""
        yield f"A node fails {rate.per_node_year:.2g} times a year, {where}{assumed}."
    if any(gang.is_spot and not gang.rate.is_configured for gang in found.gangs):
        yield "Spot interruptions come on top: training.failuresPerNodeYear."
    unknown = dict.fromkeys(gang.instance_type for gang in found.gangs if gang.hourly_usd is None)
    if unknown:
        yield f"No price is known for {', '.join(unknown)}."
