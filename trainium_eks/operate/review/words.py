"""Wording of a comment's parts: every word of the request's own goes through here, scrubbed and made safe."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.operate.review import safe_text
from trainium_eks.operate.review.scrubbing import WINDOW, Scrubber
from trainium_eks.plan.differences.changes import PathChange
from trainium_eks.plan.graph import Resource

VALUE_LENGTH = 96
ALL = 1_000_000
"""Number of rows where a table shows all of them."""
_MOST_PARTS = 40
"""Number of entries of a list or a mapping that are looked at."""


@dataclass(frozen=True)
class Words:
    """Formatting with one environment's scrubber."""

    scrubber: Scrubber

    def code(self, text: str, length: int = 160) -> str:
        """Return a code span."""
        return safe_text.code(self.scrubber.text(text), length)

    def sentence(self, text: str, length: int = 400) -> str:
        """Return a sentence of a rule, a check or a refusal."""
        return safe_text.sentence(self.scrubber.text(text), length)

    def in_block(self, text: str) -> str:
        """Return a line in a code block."""
        return safe_text.in_block(self.scrubber.text(text))

    def resource(self, resource: Resource) -> str:
        """Return the type and the name."""
        return self.code(called(resource))

    def path(self, resource: Resource, change: PathChange) -> str:
        """Return an input with both its values, as text for a block; see :meth:`why` for a cell."""
        if change.cause:
            return f"{change.path}: a new value, from {name_of(change.cause)}"
        before, after = apart(
            self._text(resource.type, change.path, change.before), self._text(resource.type, change.path, change.after)
        )
        return f"{change.path}: {before} → {after}"

    def why(self, resource: Resource, paths: Sequence[PathChange], most: int = 3) -> str:
        """Return the inputs for a cell, the replacing ones first."""
        ordered = sorted(paths, key=lambda each: not each.replaces)
        # The values are scrubbed by their paths already; a second scrubbing would see words that the cut has broken.
        listed = [safe_text.code(self.path(resource, each), 2 * VALUE_LENGTH + 80) for each in ordered[:most]]
        more = len(paths) - most
        return "<br>".join(listed + ([f"and {more} more"] if more > 0 else []))

    def _text(self, type_: str, path: str, value: Any) -> str:
        if value is None:
            return "(none)"
        clean = self.scrubber.value(type_, path, _first(value))
        text = clean if isinstance(clean, str) else json.dumps(clean, ensure_ascii=False, sort_keys=True)
        return " ".join(text.split())


def _first(value: Any) -> Any:
    """Return as much of a value as can be shown: a list of megabytes is not walked for a line of a hundred
    characters."""
    if isinstance(value, Mapping):
        return {key: _first(inner) for key, inner in list(value.items())[:_MOST_PARTS]}
    if isinstance(value, list | tuple):
        return [_first(inner) for inner in value[:_MOST_PARTS]]
    return value[:WINDOW] if isinstance(value, str) else value


def apart(before: str, after: str, length: int = VALUE_LENGTH) -> tuple[str, str]:
    """Return two values cut to a length that still shows where they first differ."""
    if max(len(before), len(after)) <= length:
        return before, after
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    start = same - length // 4 if same > length // 2 else 0
    lead = "…" if start > 0 else ""
    return tuple(  # type: ignore[return-value]
        each if len(each) <= length // 2 else lead + safe_text.cut(each[max(start, 0) :], length - 1)
        for each in (before, after)
    )


def short_type(type_: str) -> str:
    """Return the last part of a type: ``NatGateway``, ``kubernetes provider``."""
    return f"{type_.rsplit(':', 1)[-1]}{' provider' if type_.startswith('pulumi:providers:') else ''}"


def name_of(urn: str) -> str:
    """Return the name in a URN."""
    return urn.rsplit("::", 1)[-1]


def called(resource: Resource) -> str:
    """Return ``NodeGroup trn-dev-nodes``, ``kubernetes provider trn-dev``."""
    return f"{short_type(resource.type)} {resource.name}"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], most: int = ALL, kind: str = "more", right: int = 0
) -> list[str]:
    """Return a table with at most ``most`` rows, its last ``right`` columns for numbers, and a line that counts the
    other rows; nothing without rows."""
    listed = list(rows)
    if not listed:
        return []
    rule = " --- |" * (len(head) - right) + " ---: |" * right
    lines = ["| " + " | ".join(head) + " |", f"|{rule}"]
    lines += ["| " + " | ".join(cell or " " for cell in row) + " |" for row in listed[:most]]
    if len(listed) > most:
        lines += ["", f"… and {len(listed) - most} {kind}"]
    return [*lines, ""]


def money(amount: float, digits: int = 2) -> str:
    """Return ``+$43.00``."""
    return f"{'-' if round(amount, digits) < 0 else '+'}${abs(amount):,.{digits}f}"


def minutes(seconds: float) -> str:
    """Return ``14 min``."""
    return f"{round(seconds / 60)} min" if seconds >= 60 else f"{round(seconds)} s"
