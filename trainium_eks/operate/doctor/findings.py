"""Findings: faults with the objects that have them, and the whole of a diagnosis."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainium_eks.jobs.explain.reason import Reason
from trainium_eks.observe.faults.catalogue import BY_NAME, in_message
from trainium_eks.observe.faults.fault import Speaker

SCHEMA_VERSION = 1
"""Version of the JSON form; changes when a field is removed or changes meaning."""

_COMMAND = re.compile(r"\btrn (logs|status|cancel) (?!-)[\w.-]++(?! --namespace)(?P<all> --all)?")

LONGEST = 300
"""Characters of a sentence: parts of it are written by pods."""


@dataclass(frozen=True)
class Finding:
    """A fault of one object."""

    fault: str
    """Name in the catalogue."""
    about: str
    """The object: ``node ip-10-0-1-2``, ``job bert of training``."""
    sentence: str
    remedy: str

    @property
    def cause(self) -> str:
        """Return the cause that the catalogue names."""
        return BY_NAME[self.fault].cause

    def to_json(self) -> dict[str, str]:
        """Return JSON for tools."""
        return {
            "fault": self.fault,
            "about": self.about,
            "sentence": self.sentence,
            "cause": self.cause,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Diagnosis:
    """The findings of one examination."""

    findings: tuple[Finding, ...]
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of its objects."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kind, or section of checks, to the reason why it was not read."""
    uncompared: Mapping[str, str] = field(default_factory=dict)
    """Objects of the stack, in words, that were not compared with the cluster, to the reason."""

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "findings": [each.to_json() for each in self.findings],
            "lookedAt": dict(self.looked_at),
            "unread": dict(self.unread),
            "uncompared": dict(self.uncompared),
        }


def found(fault: str, about: str, sentence: str, **names: object) -> Finding:
    """Return a finding with the remedy of the catalogue.

    Args:
        fault: name of the fault.
        about: the object.
        sentence: the finding; cut off at :data:`LONGEST` characters.
        names: names of objects in the remedy; ``rank`` is the rank of the node whose log tells it, None for no gang's.
    """
    remedy = _placed(BY_NAME[fault].mend(**names), str(names.get("namespace") or ""), names.get("rank"))
    return Finding(fault, about, " ".join(sentence.split())[:LONGEST], remedy)


def of_reason(reason: Reason, about: str, namespace: str) -> Finding:
    """Return the finding that an explanation of something in this namespace is."""
    return Finding(reason.fault, about, reason.sentence[:LONGEST], _placed(reason.fix, namespace))


def _placed(remedy: str, namespace: str, rank: object = None) -> str:
    """Return the remedy with commands that find the job in its namespace, and its log on the node of that rank."""

    def placed(found: re.Match[str]) -> str:
        node = f" --node {rank}" if rank is not None and found[1] == "logs" and not found["all"] else ""
        return f"{found[0]}{node} --namespace {namespace}"

    return _COMMAND.sub(placed, remedy) if namespace else remedy


def unreachable(error: Exception, stack: str) -> Diagnosis:
    """Return the diagnosis of a cluster that cannot be asked, by the words of the error."""
    known = in_message(str(error), Speaker.API)
    fault = known.name if known else "api-unreachable"
    return Diagnosis((found(fault, f"cluster of {stack or 'the outputs'}", str(error)),))


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings in their order, each fault of an object once."""
    return tuple({(each.fault, each.about): each for each in reversed([*findings])}.values())[::-1]
