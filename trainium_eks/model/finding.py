"""Finding and report: the result of every check of a program, a stack, a cluster or an account."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

SCHEMA_VERSION = 2
"""Version of the JSON form; changes when a key is removed or changes meaning."""


class Status(StrEnum):
    """The outcome of an examination."""

    PASS = "pass"
    """Read, and as it should be."""
    WARN = "warn"
    """The reader should know something; nothing fails."""
    FAIL = "fail"
    """Read and wrong."""
    NOT_CHECKED = "not checked"
    """Could not be read, or is not installed here: nothing is known."""
    NOT_APPLICABLE = "not applicable"
    """There was nothing to examine: a group at zero nodes, a stack without a file system."""


@dataclass(frozen=True)
class Finding:
    """The outcome for one subject."""

    status: Status
    subject: str
    """What was examined: a node group, a queue, the URN of a resource."""
    text: str
    """One sentence: the outcome, or why nothing was examined."""
    fix: str = ""
    """Remedy with its command, one line; empty where nothing is to be mended."""
    id: str = ""
    """``<section>/<subject>``, the same in every run, so that tools can follow it (``quotas/L-2C3B7624``); empty where
    the check itself has an id, as a rule of the plan."""
    details: tuple[str, ...] = ()
    """Lines below the sentence: each faulty object, each command."""
    data: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Keys of the JSON form that only this kind of finding has: ``fault``, ``hourlyUsd``, ``objects`` (objects of
    Kubernetes that it is about, ``Kind namespace/name``)."""

    @property
    def section(self) -> str:
        """Return the first part of the id (``quotas``)."""
        return self.id.split("/", 1)[0]

    @property
    def fault(self) -> str:
        """Return the name of the fault in the catalogue, or empty."""
        return str(self.data.get("fault", ""))

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "id": self.id,
            "status": self.status.value,
            "subject": self.subject,
            "text": self.text,
            "fix": self.fix,
            "details": list(self.details),
            **self.data,
        }


def passed(id_: str, subject: str, text: str) -> Finding:
    """Return the finding of a subject that is as it should be."""
    return Finding(Status.PASS, subject, text, id=id_)


def failed(id_: str, subject: str, text: str, fix: str, details: Sequence[str] = (), **data: Any) -> Finding:
    """Return the finding of a subject that is wrong."""
    return Finding(Status.FAIL, subject, text, fix, id_, tuple(details), data)


def not_checked(id_: str, subject: str, reason: str) -> Finding:
    """Return the finding of a subject of which nothing is known."""
    return Finding(Status.NOT_CHECKED, subject, reason, id=id_)


def not_applicable(id_: str, subject: str, reason: str) -> Finding:
    """Return the finding of a subject that is not there, as it may."""
    return Finding(Status.NOT_APPLICABLE, subject, reason, id=id_)


@dataclass(frozen=True)
class Report:
    """The findings of one command."""

    facts: Mapping[str, Any]
    """Keys at the top of the JSON form: ``stack``, ``region``, ``cluster``."""
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Return whether a finding failed."""
        return any(each.status is Status.FAIL for each in self.findings)

    def of(self, *statuses: Status) -> tuple[Finding, ...]:
        """Return the findings with one of the statuses."""
        return tuple(each for each in self.findings if each.status in statuses)

    @property
    def summary(self) -> dict[str, int]:
        """Return the number of findings by status."""
        counted = Counter(each.status for each in self.findings)
        return {status.value: counted[status] for status in Status}

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            **self.facts,
            "failed": self.failed,
            "summary": self.summary,
            "findings": [each.to_json() for each in self.findings],
        }
