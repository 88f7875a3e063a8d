"""What a change costs, resource by resource, and how much of that can be said.

A price that nobody knows is not nothing: where one is among what changes, the sum of the others is at best a bound,
and never a saving.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.cost import Cost, CostItem

LEAST_USD = 0.005
"""Dollars an hour from which a step is worth a line."""


@dataclass(frozen=True)
class CostStep:
    """What one resource costs more, or less."""

    urn: str
    what: str
    """What it has in place of what it had: ``2 × trn1n.32xlarge instead of 2 × trn1.32xlarge``."""
    hourly_usd: float | None
    """None where a price that counts is unknown."""
    maximum_hourly_usd: float | None
    """The same with every group at its largest."""


@dataclass(frozen=True)
class CostDifference:
    """Between two programs."""

    steps: tuple[CostStep, ...]
    """Unknown first, then by size."""
    hourly_usd: float | None
    """The whole; None where a price that counts is unknown."""
    maximum_hourly_usd: float | None
    at_least_hourly_usd: float | None
    """A bound from below where the whole is unknown and what has no price is only added; otherwise None."""
    unknown: tuple[str, ...]
    """What changes and has no known price, each once."""

    def __bool__(self) -> bool:
        return bool(self.steps)


def difference(before: Cost, after: Cost) -> CostDifference:
    """What ``after`` costs more than ``before``."""
    old, new = _by_urn(before.items), _by_urn(after.items)
    steps: list[CostStep] = []
    gone: list[Line] = []
    added: list[Line] = []
    for urn in sorted({*old, *new}):
        less, more = _apart(old.get(urn, ()), new.get(urn, ()))
        gone += less
        added += more
        hourly = _minus([line.hourly_usd for line in more], [line.hourly_usd for line in less])
        most = _minus([line.maximum_hourly_usd for line in more], [line.maximum_hourly_usd for line in less])
        if hourly is None or most is None or max(abs(hourly), abs(most)) >= LEAST_USD:
            steps.append(CostStep(urn, _told(less, more), hourly, most))
    steps.sort(key=lambda step: (step.hourly_usd is not None, -abs(step.hourly_usd or 0), step.urn))
    whole = _minus([step.hourly_usd for step in steps], [])
    return CostDifference(
        tuple(steps),
        whole,
        _minus([step.maximum_hourly_usd for step in steps], []),
        _bound(gone, added) if whole is None else None,
        bill.unknown([*gone, *added]),
    )


def _by_urn(items: Iterable[CostItem]) -> dict[str, tuple[Line, ...]]:
    found: dict[str, tuple[Line, ...]] = {}
    for item in items:
        found[item.urn] = (*found.get(item.urn, ()), item.line)
    return found


def _apart(old: Iterable[Line], new: Iterable[Line]) -> tuple[list[Line], list[Line]]:
    """The lines that only one side has."""
    less, more = Counter(old), Counter(new)
    return list((less - more).elements()), list((more - less).elements())


def _minus(more: list[float | None], less: list[float | None]) -> float | None:
    if None in more or None in less:
        return None
    return sum(each or 0.0 for each in more) - sum(each or 0.0 for each in less)


def _bound(gone: list[Line], added: list[Line]) -> float | None:
    if any(line.hourly_usd is None for line in gone):
        return None
    bound = sum(line.hourly_usd or 0.0 for line in added) - sum(line.hourly_usd or 0.0 for line in gone)
    return bound if bound >= LEAST_USD else None


def _told(less: list[Line], more: list[Line]) -> str:
    was, is_ = _lines(less), _lines(more)
    if was and is_:
        return f"{is_} instead of {was}"
    return is_ or f"no more {was}"


def _lines(lines: list[Line]) -> str:
    return ", ".join(
        f"{line.quantity:g} × {line.what} (up to {line.maximum:g})"
        if line.maximum != line.quantity
        else f"{line.quantity:g} × {line.what}"
        for line in lines
    )
