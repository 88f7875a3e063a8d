"""Lines beside the output of a command, on standard error: a pipe gets the output alone."""

import sys
from collections.abc import Callable

from trainium_eks.client.failure import as_typed
from trainium_eks.kube.pod_text import printable

Say = Callable[[str], None]


def notice(text: str) -> None:
    """Write a line that begins with two dashes: of what happens meanwhile."""
    sys.stderr.write(f"-- {printable(as_typed(text))}\n")
    sys.stderr.flush()


def begin(text: str) -> None:
    """Write at a terminal what a command begins that may take seconds; nothing into a pipe, and for an empty text."""
    if text and sys.stderr.isatty():
        notice(text)


def say(text: str) -> None:
    """Write a line as it is."""
    sys.stderr.write(f"{text}\n")


def unrepeated(tell: Say) -> Say:
    """Return a function that writes a text, except an empty one and a repetition of the last."""
    told = ""

    def tell_news(text: str) -> None:
        nonlocal told
        if text and text != told:
            told = text
            tell(text)

    return tell_news


def silent(_: str) -> None:
    """Write nothing, as with ``--json``."""
