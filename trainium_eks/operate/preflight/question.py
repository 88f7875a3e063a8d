"""Question to AWS, answered by a finding."""

from collections.abc import Callable
from dataclasses import dataclass

from trainium_eks.model.finding import Finding, Status
from trainium_eks.operate.preflight.existing_resources import AccountState


class Checks:
    """Checks of an account that answer questions."""

    def __init__(self, present: AccountState) -> None:
        self._present = present
        self._needs = present.needs
        self._account = present.account


@dataclass(frozen=True)
class Question:
    """One question to AWS."""

    id: str
    """``<section>/<subject>``: the same in every run, so that tools can follow it (``quotas/L-2C3B7624``)."""
    subject: str
    ask: Callable[[], Finding]
    """Query of AWS; its finding gets the question's id and subject. It fails where an ``up`` would fail or wait for
    ever. Raises NotCheckedError where AWS could not be asked."""


def passed(text: str) -> Finding:
    """Return the answer that the account meets the stack's needs."""
    return Finding(Status.PASS, "", text)


def warned(text: str, fix: str) -> Finding:
    """Return the answer that the account meets the stack's needs with a reservation."""
    return Finding(Status.WARN, "", text, fix)


def failed(text: str, fix: str) -> Finding:
    """Return the answer that the account does not meet the stack's needs."""
    return Finding(Status.FAIL, "", text, fix)
