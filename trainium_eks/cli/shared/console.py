"""Consoles of Rich on which no text steers the terminal, and the output of parts to one."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from trainium_eks.cli.shared import output
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.kube.pod_text import printable

PIPED_WIDTH = 100
"""Columns of output into a pipe or a file."""

THEME = Theme({"markdown.code": "cyan", "markdown.item.bullet": "dim"})

Line = tuple[str, str]
"""A line for people, and its style; two spaces before it indent all that it is folded into."""


class Console(RichConsole):
    """A console that shows escape sequences in names and messages as text: pods and other teams write those."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as Rich does, its own control codes untouched."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)


def show_sections(parts: Iterable[RenderableType], *, no_color: bool = False) -> None:
    """Print parts to standard output, an empty line after each."""
    piped = not sys.stdout.isatty()
    # Into a buffer: Rich itself cannot say that standard output is full.
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=None if piped else True,
        no_color=no_color or None,
        width=PIPED_WIDTH if piped and not os.environ.get("COLUMNS") else None,
        highlight=False,
        emoji=False,
        theme=THEME,
    )
    for section in parts:
        console.print(section)
        console.print()
    text = buffer.getvalue()
    # Tables pad their last column, which a file or a pull request should not keep.
    output.write("".join(f"{line.rstrip()}\n" for line in text.splitlines()) if piped else text)


def lines(found: Iterable[Line]) -> Group:
    """Return lines one below the other."""
    return Group(
        *(
            Padding(Text(text[2:], style), (0, 0, 0, 2)) if text.startswith("  ") else Text(text, style)
            for text, style in found
        )
    )


def table(*headings: str, folded: Sequence[str] = (), wide: bool = True) -> Table:
    """Return a table without lines, of which these columns are folded where there is no room."""
    made = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="bold")
    for heading in headings:
        folds = heading in folded
        made.add_column(heading, no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    return made


def answer(
    cluster: ClusterOptions, document: Mapping[str, Any], *parts: RenderableType, indent: int | None = 2
) -> None:
    """Write the result of a researcher's command: with ``--json`` the document with its version, else the parts."""
    if cluster.as_json:
        output.write_json({"schemaVersion": output.SCHEMA_VERSION, **document}, indent=indent)
    else:
        show_sections(parts, no_color=cluster.no_color)


@contextmanager
def screen(cluster: ClusterOptions) -> Iterator[Callable[[RenderableType], None] | None]:
    """Yield a function that draws in the place of the previous picture; None where standard output is no terminal, or
    with ``--json``."""
    if cluster.as_json or not sys.stdout.isatty():
        yield None
        return
    from rich.live import Live

    console = Console(no_color=cluster.no_color or None, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        yield lambda picture: live.update(picture, refresh=True)
