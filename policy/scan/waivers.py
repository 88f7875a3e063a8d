"""Waivers of a scanner's findings, each with its reason: one file, in which every waiver must excuse a finding."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import parse_yaml

KEYS = ("checks", "resources", "reason")
"""Keys of each entry of the file, all required; other keys are refused."""


@dataclass(frozen=True)
class Finding:
    """A check that failed."""

    check: str
    """``CKV_AWS_18``."""
    title: str
    """The check's demand, in the scanner's words."""
    resource: str
    """``prod/aws_s3_bucket.trn-prod-data``: the environment and the scanner's name of the resource."""


@dataclass(frozen=True)
class Waiver:
    """The reason why checks may fail for some resources."""

    checks: tuple[str, ...]
    resources: tuple[str, ...]
    """Patterns of :attr:`Finding.resource`, with ``*`` and ``?`` as in a shell."""
    reason: str

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """Return each check with each pattern: every pair must excuse a finding."""
        return product(self.checks, self.resources)


class BadWaivers(Exception):  # noqa: N818 (names the file)
    """An invalid file of waivers; the message has one line for each fault."""


@dataclass(frozen=True)
class Judgement:
    """Findings compared with waivers."""

    standing: tuple[Finding, ...]
    """Findings that no waiver excuses."""
    waived: tuple[Finding, ...]
    stale: tuple[str, ...]
    """One line for each check and pattern of a waiver that excuse no finding."""


def read(file: Path) -> tuple[Waiver, ...]:
    """Return the waivers of a file; none when the file does not exist.

    Raises:
        BadWaivers: when the file cannot be read, an entry lacks a key or its reason, or repeats another entry.
    """
    try:
        entries = (parse_yaml(file.read_text(encoding="utf-8")) if file.exists() else None) or []
    except (OSError, ValueError) as error:
        raise BadWaivers(f"{file} cannot be read: {error}") from None
    faults = [f"{file.name}, entry {number}: {fault}" for number, fault in _faults(entries)]
    if faults:
        raise BadWaivers("\n".join(faults))
    return tuple(Waiver(tuple(each["checks"]), tuple(each["resources"]), each["reason"]) for each in entries)


def judge(findings: Iterable[Finding], waivers: Sequence[Waiver], *, everything_seen: bool) -> Judgement:
    """Divide findings into standing and waived ones, and list the waivers that are no longer needed.

    Args:
        findings: the scanner's findings.
        waivers: the waivers of the file.
        everything_seen: whether every resource that a waiver may name was scanned; if not, no waiver is called stale.
    """
    found = tuple(findings)
    excused: set[Finding] = set()
    stale = []
    for check, pattern in (part for waiver in waivers for part in waiver.parts):
        meant = [each for each in found if each.check == check and fnmatchcase(each.resource, pattern)]
        excused.update(meant)
        if not meant:
            stale.append(f"{check} is waived for {pattern}, where it does not fail; remove that")
    return Judgement(
        tuple(each for each in found if each not in excused),
        tuple(each for each in found if each in excused),
        tuple(stale) if everything_seen else (),
    )


def _faults(entries: Any) -> Iterator[tuple[int, str]]:
    if not isinstance(entries, list):
        yield 0, f"wanted a list of entries with {', '.join(KEYS)}"
        return
    said: set[tuple[str, str]] = set()
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping) or set(entry) != set(KEYS):
            has = ", ".join(map(str, entry)) if isinstance(entry, Mapping) else str(entry)
            yield number, f"wanted {', '.join(KEYS)}; it has {has}"
            continue
        if not _is_names(entry["checks"]) or not _is_names(entry["resources"]):
            yield number, "checks and resources must be lists, such as [CKV_AWS_18] and [prod/aws_s3_bucket.*]"
            continue
        if not isinstance(entry["reason"], str) or not entry["reason"].strip():
            yield number, f"{', '.join(entry['checks'])} waived without a reason"
        for check, pattern in product(entry["checks"], entry["resources"]):
            if (check, pattern) in said:
                yield number, f"{check} is waived for {pattern} twice"
            said.add((check, pattern))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
