"""Question, verdict and finding: a query of AWS, its answer, and the remedy."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The outcome of a question."""

    PASS = "pass"
    """AWS has what the stack needs."""
    WARN = "warn"
    """The deployment works, and the reader should know something first."""
    FAIL = "fail"
    """An ``up`` would fail, or wait for a resource that never comes."""
    NOT_CHECKED = "not checked"
    """AWS could not be asked: no credentials, a missing right, throttling, no network."""


@dataclass(frozen=True)
class Verdict:
    """The answer to one question."""

    outcome: Outcome
    detail: str
    """Finding; one line."""
    remedy: str = ""
    """Remedy, with the number or the command; one line."""


@dataclass(frozen=True)
class Question:
    """One question to AWS."""

    id: str
    """``<section>/<subject>``: the same in every run, so that tools can follow it (``quotas/L-2C3B7624``)."""
    subject: str
    """Subject in words for people."""
    ask: Callable[[], Verdict]
    """Query AWS and return the verdict.

    Raises:
        NotChecked: AWS could not be queried.
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
        """Return the first part of the id (``quotas``)."""
        return self.id.split("/", 1)[0]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {**asdict(self), "outcome": self.outcome.value}


def passed(detail: str) -> Verdict:
    """Return a verdict that the account meets the stack's needs."""
    return Verdict(Outcome.PASS, detail)


def warned(detail: str, remedy: str) -> Verdict:
    """Return a verdict that the account meets the stack's needs with a reservation."""
    return Verdict(Outcome.WARN, detail, remedy)


def failed(detail: str, remedy: str) -> Verdict:
    """Return a verdict that the account does not meet the stack's needs."""
    return Verdict(Outcome.FAIL, detail, remedy)
