"""Checks of an account in the output of ``trn check --json``, as far as they can be read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

CheckStatus = Literal["fail", "warn", "not-checked", "pass"]
"""Worst first."""


@dataclass(frozen=True)
class Check:
    """One line of the preflight table."""

    id: str
    group: str
    status: CheckStatus
    title: str
    detail: str
    fix: str


def parse(document: object) -> tuple[Check, ...]:
    """Return the checks of a document, the worst first. Other entries are left out, and an unknown status is taken for
    ``not-checked``. A run that failed before its first check counts as one check, ``not-checked``. ValueError: the
    document has neither findings nor problems.
    """
    found = document.get("findings") if isinstance(document, Mapping) else None
    if isinstance(document, Mapping) and not isinstance(found, list) and isinstance(document.get("problems"), list):
        reasons = [str(each.get("reason", "")) for each in document["problems"] if isinstance(each, Mapping)]
        return (Check("preflight", "", "not-checked", "the preflight", "; ".join(reasons), ""),)
    if not isinstance(found, list):
        raise ValueError("it has no list `findings`")
    checks = [_check(each) for each in found if isinstance(each, Mapping)]
    statuses = get_args(CheckStatus)
    return tuple(sorted(checks, key=lambda check: (statuses.index(check.status), check.group, check.id)))


def _check(data: Mapping[str, Any]) -> Check:
    def text(name: str) -> str:
        return str(data.get(name) or "")

    statuses: tuple[CheckStatus, ...] = get_args(CheckStatus)
    unknown: CheckStatus = "not-checked"
    said = text("status").replace(" ", "-")
    return Check(
        id=text("id"),
        group=text("id").partition("/")[0],
        status=next((each for each in statuses if each == said), unknown),
        title=text("subject") or text("id"),
        detail=text("text"),
        fix=text("fix"),
    )
