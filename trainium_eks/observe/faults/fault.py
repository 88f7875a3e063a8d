"""The parts of a fault."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\{(\w+)(?:\|([^}]*))?\}")


@dataclass(frozen=True)
class Fault:
    """One fault. A finding fills the placeholders in ``remedy``. In a page ``{node}`` becomes ``NODE``, and
    ``{plugin|device plugin}`` becomes the words after the bar."""

    name: str
    """Name in findings, pages and ``trn doctor NAME``: lower-case words and dashes."""
    symptom: str
    """One line: the effect that a person sees."""
    cause: str
    """One or two sentences."""
    remedy: str
    """Remedy with the command to type; in findings, ``trn`` commands appear as they can be typed here."""
    source: str
    """Where the fault is described: a document of its maker, or the code that reports it."""
    alert: str = ""
    """Name of the alert whose page includes this entry; empty where no alert is about it."""
    waits: bool = False
    """Whether waiting mends it: then it is a reason of one job, and nothing is wrong with the stack."""
    log: str = ""
    """Regular expression that finds it in a line that a container has written."""
    event: str = ""
    """Regular expression that finds it in the message of a warning, or of a container that cannot start."""

    def mend(self, **names: object) -> str:
        """Return the remedy with these names in it."""

        def filled(found: re.Match[str]) -> str:
            return str(names.get(found[1]) or found[2] or found[1].upper())

        return _PLACEHOLDER.sub(filled, self.remedy)

    def page(self) -> str:
        """Return the entry as Markdown, without a heading."""
        alert = f" Alert: [{self.alert}](alerts.md#{self.alert.lower()})." if self.alert else ""
        return (
            f"{self.symptom}\n\n**Cause.** {self.cause}\n\n**Remedy.** {self.mend()}\n\nSource: {self.source}.{alert}\n"
        )


def first_in(faults: tuple[Fault, ...], field: str, texts: Iterator[str]) -> tuple[Fault, str] | None:
    """Return the first fault in the catalogue's order with an expression that finds a text, and the text; None without.

    Args:
        faults: in order: the more specific come first.
        field: ``log`` or ``event``.
        texts: lines of a log, or messages.
    """
    known = [*texts]
    for fault in faults:
        if pattern := getattr(fault, field):
            found = next((text for text in known if re.search(pattern, text, re.IGNORECASE)), None)
            if found is not None:
                return fault, found
    return None
