"""Prometheus' rule files as data."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

Rule = Mapping[str, Any]
"""One rule: ``record`` or ``alert``, ``expr``, and further fields of the rule file."""


class Group(TypedDict):
    """Rules that are computed one after the other: each sees the results of earlier ones at the same moment."""

    name: str
    interval: str
    rules: Sequence[Rule]


INTERVAL = "30s"
"""Time between two computations of a group."""


def group(name: str, rules: Sequence[Rule]) -> Group:
    """Return a group that is computed every :data:`INTERVAL`."""
    return {"name": name, "interval": INTERVAL, "rules": [*rules]}


def lines(text: str) -> str:
    """Return an expression without the margin and the empty lines that it has in the source."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
