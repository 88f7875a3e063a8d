"""Check: what was looked at, what was found, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckStatus(StrEnum):
    """How a check ended."""

    PASS = "pass"
    """Looked at, and as the stack's outputs say."""
    FAIL = "fail"
    """Looked at and not so, or not to be looked at."""
    NOT_INSTALLED = "not installed"
    """The local cloud cannot have it on this machine. Never on AWS."""
    NOT_APPLICABLE = "n/a"
    """There was nothing to look at: a group at zero nodes, a stack without a file system."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    id: str
    """``<section>/<what>``: the same in every run, so that tools can follow it (``devices/ng1/nvidia.com/gpu``)."""
    subject: str
    """What was looked at, as people call it."""
    status: CheckStatus
    detail: str
    """What was found, or why nothing was looked at; one line."""
    remedy: str = ""
    """What to do, with the command; one line, only of a failure."""
    faults: tuple[str, ...] = ()
    """Each object that is wrong with what it has and what it should have, where there are several."""

    @property
    def section(self) -> str:
        """The first part of the id (``devices``)."""
        return self.id.split("/", 1)[0]

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        return {
            "id": self.id,
            "subject": self.subject,
            "status": self.status.value,
            "detail": self.detail,
            "remedy": self.remedy,
            "faults": list(self.faults),
        }


def passed(id_: str, subject: str, detail: str) -> Check:
    """Looked at, and right."""
    return Check(id_, subject, CheckStatus.PASS, detail)


def failed(id_: str, subject: str, detail: str, remedy: str, faults: Sequence[str] = ()) -> Check:
    """Looked at, and wrong."""
    return Check(id_, subject, CheckStatus.FAIL, detail, remedy, tuple(faults))


def not_installed(id_: str, subject: str, reason: str) -> Check:
    """The local cloud said that this machine cannot have it."""
    return Check(id_, subject, CheckStatus.NOT_INSTALLED, reason)


def not_applicable(id_: str, subject: str, reason: str) -> Check:
    """Nothing to look at."""
    return Check(id_, subject, CheckStatus.NOT_APPLICABLE, reason)
