"""Check: a subject, a result, and a remedy."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NOT_AS_DECLARED = "not-as-declared"
"""Fault of a check without a fault of its own."""


class CheckStatus(StrEnum):
    """The outcome of a check."""

    PASS = "pass"
    """Read, and as the stack's outputs say."""
    FAIL = "fail"
    """Read and different, or impossible to read."""
    NOT_INSTALLED = "not installed"
    """The local cloud cannot have it on this machine. Never on AWS."""
    NOT_APPLICABLE = "n/a"
    """There was nothing to check: a group at zero nodes, a stack without a file system."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    id: str
    """``<section>/<subject>``: the same in every run, so that tools can follow it (``devices/ng1/nvidia.com/gpu``)."""
    subject: str
    """Subject in words for people."""
    status: CheckStatus
    detail: str
    """Finding, or why nothing was checked; one line."""
    remedy: str = ""
    """Remedy, with the command; one line, only of a failure."""
    faults: tuple[str, ...] = ()
    """Each faulty object with its value and the right one, where there are several."""
    fault: str = ""
    """Name of the fault in the catalogue, of a failure."""

    @property
    def section(self) -> str:
        """Return the first part of the id (``devices``)."""
        return self.id.split("/", 1)[0]

    def to_json(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return {
            "id": self.id,
            "subject": self.subject,
            "status": self.status.value,
            "detail": self.detail,
            "remedy": self.remedy,
            "faults": list(self.faults),
            "fault": self.fault,
        }


def passed(id_: str, subject: str, detail: str) -> Check:
    """Return a passed check."""
    return Check(id_, subject, CheckStatus.PASS, detail)


def failed(
    id_: str, subject: str, detail: str, remedy: str, faults: Sequence[str] = (), fault: str = NOT_AS_DECLARED
) -> Check:
    """Return a failed check.

    Args:
        id_: see :class:`Check`, as the following ones.
        subject: in words.
        detail: the finding.
        remedy: the remedy, from the catalogue where the fault has one of its own.
        faults: each faulty object.
        fault: name of the fault in the catalogue.
    """
    return Check(id_, subject, CheckStatus.FAIL, detail, remedy, tuple(faults), fault)


def not_installed(id_: str, subject: str, reason: str) -> Check:
    """Return a check of something that this machine cannot have, as the local cloud reports."""
    return Check(id_, subject, CheckStatus.NOT_INSTALLED, reason)


def not_applicable(id_: str, subject: str, reason: str) -> Check:
    """Return a check without a subject."""
    return Check(id_, subject, CheckStatus.NOT_APPLICABLE, reason)
