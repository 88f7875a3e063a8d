"""The checks of an account that ``trn check --json`` made, as far as they can be read."""

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
    """The checks of a document, the worst first; what is no check is left out, and a status that is not known here is
    taken for ``not-checked``. A run that failed before it asked anything is one that is not checked.

    Raises:
        ValueError: when the document has neither checks nor problems.
    """
    found = document.get("checks") if isinstance(document, Mapping) else None
    if isinstance(document, Mapping) and not isinstance(found, list) and isinstance(document.get("problems"), list):
        reasons = [str(each.get("reason", "")) for each in document["problems"] if isinstance(each, Mapping)]
        return (Check("preflight", "", "not-checked", "the preflight", "; ".join(reasons), ""),)
    if not isinstance(found, list):
        raise ValueError("it has no list `checks`")
    checks = [_check(each) for each in found if isinstance(each, Mapping)]
    statuses = get_args(CheckStatus)
    return tuple(sorted(checks, key=lambda check: (statuses.index(check.status), check.group, check.id)))


def _check(data: Mapping[str, Any]) -> Check:
    """One of ``trn check``, or of a tool of the reader's own with the plainer names."""

    def text(*names: str) -> str:
        return next((str(data[name]) for name in names if data.get(name)), "")

    statuses: tuple[CheckStatus, ...] = get_args(CheckStatus)
    unknown: CheckStatus = "not-checked"
    said = text("outcome", "status").replace(" ", "-")
    return Check(
        id=text("id"),
        group=text("group") or text("id").partition("/")[0],
        status=next((each for each in statuses if each == said), unknown),
        title=text("subject", "title", "id"),
        detail=text("detail"),
        fix=text("remedy", "fix"),
    )
