"""Question to AWS, and its answer with the remedy."""

from collections.abc import Callable
from dataclasses import dataclass

from trainium_eks.operate.finding import Status


@dataclass(frozen=True)
class Answer:
    """The answer to one question: passed, failed where an ``up`` would fail or wait for ever, or passed with a
    warning."""

    status: Status
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Question:
    """One question to AWS."""

    id: str
    """``<section>/<subject>``: the same in every run, so that tools can follow it (``quotas/L-2C3B7624``)."""
    subject: str
    ask: Callable[[], Answer]
    """Query of AWS; raises NotCheckedError where AWS could not be asked."""


def passed(text: str) -> Answer:
    """Return the answer that the account meets the stack's needs."""
    return Answer(Status.PASS, text)


def warned(text: str, fix: str) -> Answer:
    """Return the answer that the account meets the stack's needs with a reservation."""
    return Answer(Status.WARN, text, fix)


def failed(text: str, fix: str) -> Answer:
    """Return the answer that the account does not meet the stack's needs."""
    return Answer(Status.FAIL, text, fix)
