"""Finding: what was asked of AWS, what it answered, and what to do about it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a question ended."""

    PASS = "pass"
    """AWS has what the stack needs."""
    WARN = "warn"
    """It works, and the reader should know something first."""
    FAIL = "fail"
    """An ``up`` would fail, or wait for what does not come."""
    NOT_CHECKED = "not checked"
    """AWS could not be asked: no credentials, a missing right, throttling, no network."""


@dataclass(frozen=True)
class Verdict:
    """The answer to one question."""

    outcome: Outcome
    detail: str
    """What was found; one line."""
    remedy: str = ""
    """What mends it, with the number or the command; one line."""


@dataclass(frozen=True)
class Question:
    """One thing to ask of AWS."""

    id: str
    """``<section>/<what>``: the same in every run, so that tools can follow it (``quotas/L-2C3B7624``)."""
    subject: str
    """What is looked at, as people call it."""
    ask: Callable[[], Verdict]
    """Asks and judges.

    Raises:
        NotChecked: AWS could not be asked.
    """


@dataclass(frozen=True)
class Finding:
    """A question with its answer."""

    id: str
    subject: str
    outcome: Outcome
    detail: str
    remedy: str = ""

    @property
    def section(self) -> str:
        """The first part of the id (``quotas``)."""
        return self.id.split("/", 1)[0]

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {**asdict(self), "outcome": self.outcome.value}


def passed(detail: str) -> Verdict:
    """As the stack needs it."""
    return Verdict(Outcome.PASS, detail)


def warned(detail: str, remedy: str) -> Verdict:
    """As the stack needs it, but."""
    return Verdict(Outcome.WARN, detail, remedy)


def failed(detail: str, remedy: str) -> Verdict:
    """Not as the stack needs it."""
    return Verdict(Outcome.FAIL, detail, remedy)
