"""Cost of a change, resource by resource, with a bound where a price is unknown.

An unknown price is not zero: when a changed resource has no known price, the sum of the other prices is at best a
bound, and never a saving.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.cost import Cost
from trainium_eks.plan.graph import grouped

LEAST_USD = 0.005
"""Smallest change that is listed, USD an hour."""


@dataclass(frozen=True)
class CostStep:
    """The rise or fall in cost of one resource."""

    urn: str
    what: str
    """The new priced things and the old ones: ``2 × trn1n.32xlarge instead of 2 × trn1.32xlarge``."""
    hourly_usd: float | None
    """Rise in USD an hour; None when a price that counts is unknown."""
    maximum_hourly_usd: float | None
    """The same with every group at its largest."""


@dataclass(frozen=True)
class CostDifference:
    """The difference in cost between two programs."""

    steps: tuple[CostStep, ...]
    """Steps of unknown cost first, then by size."""
    hourly_usd: float | None
    """Sum of the steps; None when a price that counts is unknown."""
    maximum_hourly_usd: float | None
    at_least_hourly_usd: float | None
    """A lower bound when the sum is unknown and things without a price are only added; otherwise None."""
    unknown: tuple[str, ...]
    """Names of the changed things without a known price, each once."""

    def __bool__(self) -> bool:
        return bool(self.steps)


def difference(before: Cost, after: Cost) -> CostDifference:
    """Return the difference in cost from ``before`` to ``after``."""
    old, new = (grouped((line.urn, line) for line in cost.lines) for cost in (before, after))
    steps: list[CostStep] = []
    gone: list[Line] = []
    added: list[Line] = []
    for urn in sorted({*old, *new}):
        was, now = Counter(old.get(urn, ())), Counter(new.get(urn, ()))
        less, more = list((was - now).elements()), list((now - was).elements())
        gone += less
        added += more
        hourly = _minus([line.hourly_usd for line in more], [line.hourly_usd for line in less])
        most = _minus([line.maximum_hourly_usd for line in more], [line.maximum_hourly_usd for line in less])
        if hourly is None or most is None or max(abs(hourly), abs(most)) >= LEAST_USD:
            steps.append(CostStep(urn, _describe_lines(less, more), hourly, most))
    steps.sort(key=lambda step: (step.hourly_usd is not None, -abs(step.hourly_usd or 0), step.urn))
    whole = _minus([step.hourly_usd for step in steps], [])
    return CostDifference(
        tuple(steps),
        whole,
        _minus([step.maximum_hourly_usd for step in steps], []),
        _bound(gone, added) if whole is None else None,
        bill.unknown([*gone, *added]),
    )


def _minus(more: list[float | None], less: list[float | None]) -> float | None:
    if None in more or None in less:
        return None
    return sum(each or 0.0 for each in more) - sum(each or 0.0 for each in less)


def _bound(gone: list[Line], added: list[Line]) -> float | None:
    if any(line.hourly_usd is None for line in gone):
        return None
    bound = sum(line.hourly_usd or 0.0 for line in added) - sum(line.hourly_usd or 0.0 for line in gone)
    return bound if bound >= LEAST_USD else None


def _describe_lines(less: Sequence[Line], more: Sequence[Line]) -> str:
    was, is_ = _lines(less), _lines(more)
    if was and is_:
        return f"{is_} instead of {was}"
    return is_ or f"no more {was}"


def _lines(lines: Sequence[Line]) -> str:
    return ", ".join(
        f"{line.quantity:g} × {line.what} (up to {line.maximum:g})"
        if line.maximum != line.quantity
        else f"{line.quantity:g} × {line.what}"
        for line in lines
    )
