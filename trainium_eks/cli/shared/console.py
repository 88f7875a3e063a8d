"""Consoles of Rich on which no text steers the terminal."""

from collections.abc import Iterable

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from trainium_eks.kube.pod_text import printable


class Console(RichConsole):
    """A console that shows escape sequences in names and messages as text: pods and other teams write those."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as Rich does, its own control codes untouched."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)
