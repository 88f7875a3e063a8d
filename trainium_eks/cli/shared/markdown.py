"""Markdown in a terminal: what a plan and a comment say, as tables and lists of Rich."""

from collections.abc import Iterable
from typing import ClassVar

from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

MARKS = {"✓": "green", "✗": "red", "!": "yellow", "~": "yellow", "?": "yellow"}
"""Colour of a line or a cell by its first character."""
_MARKS_OF_COMMENTS = str.maketrans({"✅": "✓", "⛔": "✗", "🔎": "!"})
_CHANGES = {"+": "green", "-": "red", "!": "magenta", "@": "bold"}
"""Colour of a line of a ``diff`` by its first character."""
WORD_WIDTH = 20
"""Columns of a cell's longest word that a table must have room for; a longer word is folded."""


class _Paragraph(markdown.Paragraph):
    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield _marked(self.text)


class _Block(markdown.CodeBlock):
    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).splitlines():
            yield Padding(Text(line, _CHANGES.get(line[:1], "")), (0, 0, 0, 2))


class _Table(markdown.TableElement):
    """A table without lines; on a screen that is too narrow each row is a paragraph, with a line for each cell."""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None
        assert self.header.row is not None
        heads = self.header.row.cells
        names = [head.content.plain.strip() for head in heads]
        rows = [[_marked(cell.content) for cell in row.cells] for row in (self.body.rows if self.body else ())]
        columns = zip(names, *([cell.plain for cell in row] for row in rows), strict=True)
        least = [_width(column, whole=head.justify == "right") for head, column in zip(heads, columns, strict=True)]
        if sum(least) + 2 * len(least) > options.max_width:
            yield Padding(Text("\n\n").join(_paragraph(names, row) for row in rows), (0, 0, 0, 2))
            return
        table = Table(box=None, show_header=any(names), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for name, head, width in zip(names, heads, least, strict=True):
            table.add_column(Text(name), justify=head.justify, min_width=width, overflow="fold")
        for row in rows:
            table.add_row(*row)
        yield Padding(table, (0, 0, 0, 2), expand=False)


class Markdown(markdown.Markdown):
    """Markdown as we write it: its only HTML are line breaks in cells."""

    elements: ClassVar = {
        **markdown.Markdown.elements, "paragraph_open": _Paragraph, "fence": _Block, "table_open": _Table
    }  # fmt: skip

    def __init__(self, text: str) -> None:
        super().__init__(text.translate(_MARKS_OF_COMMENTS), hyperlinks=False)
        for inside in (each for token in self.parsed for each in token.children or ()):
            if inside.type == "html_inline" and inside.content == "<br>":
                inside.type = "hardbreak"


def _marked(text: Text) -> Text:
    text.stylize(MARKS.get(text.plain[:1], ""))
    return text


def _width(column: Iterable[str], *, whole: bool) -> int:
    """Return the columns that a column needs: of its longest cell, or of its longest word where cells may wrap."""
    longest = max(len(word) for text in column for word in ([text] if whole else ["", *text.split()]))
    return longest if whole else min(longest, WORD_WIDTH)


def _paragraph(names: Iterable[str], row: Iterable[Text]) -> Text:
    text = Text()
    for name, cell in zip(names, row, strict=True):
        if cell.plain.strip():
            text.append("" if not text else "\n" if name else " ")
            text.append(f"{name}: " if name else "", "dim").append_text(cell)
    return text
