"""The cheapest Capacity Blocks for a run with a deadline: one block, or several with gaps.

A run goes on from its checkpoint on the stack's file system, so that all its blocks are in one region. Each costs the
start of a gang. Pure functions; times are in UTC.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from trainium_eks.model.sizing.block_times import EKS_DRAIN

DAYS = (*range(1, 15), *range(21, 183, 7))
"""Durations that EC2 sells, days (DescribeCapacityBlockOfferings, ``CapacityDurationHours``)."""

AHEAD = timedelta(days=56)
"""How long before its start a block is sold at the earliest (EC2 user guide, Capacity Blocks)."""

MOST_PARTS = 7
"""Blocks shorter than this part of a run are not searched: each is another start."""

_PRICES, _SAVES = 128, 0.99
"""Labels of one price, to this part of a lower bound of the optimum, are one; and a plan is not looked for that saves
less than a percent. So a plan in n parts costs at most (1 + n / 128) / 0.99 of the optimum."""


@dataclass(frozen=True)
class Offer:
    """A Capacity Block, or its extension, that EC2 sells."""

    id: str
    region: str
    zone: str
    """Zone id (``usw2-az4``); the zone's name where its id could not be read."""
    starts: datetime
    ends: datetime
    nodes: int
    usd: Decimal
    """Price of all of it, paid when it is bought."""
    days: int
    """Duration that was asked for; a block that starts at once may be some hours shorter or longer."""


@dataclass(frozen=True)
class Need:
    """A run that needs capacity."""

    hours: float
    """Hours of training by the clock, above 0: without the starts of the gang, with faults."""
    earliest: datetime
    deadline: datetime
    start_seconds: float
    """Time from new capacity to the first step: nodes join, the gang starts and loads its checkpoint."""
    drain: timedelta = EKS_DRAIN
    """Time from the drain of a block's nodes to its end."""

    def training_seconds(self, offer: Offer) -> float:
        """Return the seconds of training that a block gives before the deadline; 0 for one that starts too early."""
        lasts = (min(offer.ends - self.drain, self.deadline) - offer.starts).total_seconds()
        return max(lasts - self.start_seconds, 0.0) if offer.starts >= self.earliest else 0.0


@dataclass(frozen=True)
class Plan:
    """Blocks of one region for a whole run."""

    region: str
    usd: float
    done: datetime
    """When the run has all its hours."""
    offers: tuple[Offer, ...]
    """The blocks, in order of time."""


_Label = tuple[float, float, tuple[Offer, ...]]
"""Blocks that follow each other, after their price in USD and their seconds of training."""


def durations(need: Need) -> tuple[int, ...]:
    """Return the durations to search, days: the shortest that is long enough for the run, the next, and those for a
    run in at most :data:`MOST_PARTS` parts."""
    wanted = need.hours * 3600 + need.start_seconds + need.drain.total_seconds()
    first = next((index for index, days in enumerate(DAYS) if days * 86_400 >= wanted), len(DAYS) - 1)
    return tuple(days for days in DAYS[: first + 2] if days * MOST_PARTS >= DAYS[first])


def plans(offers: Iterable[Offer], need: Need) -> list[Plan]:
    """Return each region's cheapest single block and, where they cost less, its cheapest blocks that follow each other;
    cheapest first. None where nothing holds the deadline."""
    by_region: dict[str, list[tuple[Offer, float]]] = {}
    for offer in sorted(offers, key=lambda each: (each.ends, each.starts)):
        if seconds := need.training_seconds(offer):
            by_region.setdefault(offer.region, []).append((offer, seconds))
    found = []
    for region, blocks in by_region.items():
        whole = [each for each, seconds in blocks if seconds >= need.hours * 3600]
        single = min(whole, key=lambda each: each.usd, default=None)
        chains: list[_Label] = [(float(single.usd), 0.0, (single,))] if single else []
        if (several := _cheapest(blocks, need.hours * 3600, float(single.usd) if single else math.inf))[2]:
            chains.append(several)
        for usd, before, chain in chains:
            lasts = need.start_seconds + need.hours * 3600 - before
            found.append(Plan(region, usd, chain[-1].starts + timedelta(seconds=lasts), chain))
    return sorted(found, key=lambda plan: (plan.usd, plan.done))


def _cheapest(blocks: list[tuple[Offer, float]], wanted: float, bound: float) -> _Label:
    """Return the blocks that follow each other and give ``wanted`` seconds of training for the least, below ``bound``,
    with the seconds of all but the last; no blocks for none.

    ``blocks`` are in order of their ends. Dropped are labels with less training for more money, and those that cannot
    cost less than the best: what they lack costs at least the lowest price of a second.
    """
    rate = min(float(offer.usd) / seconds for offer, seconds in blocks)
    width = rate * wanted / _PRICES
    best: _Label = (bound, 0.0, ())
    ends, frontiers = [offer.ends for offer, _ in blocks], [list[_Label]([(0.0, 0.0, ())])]
    for index, (offer, seconds) in enumerate(blocks):
        longer = []
        for usd, before, chain in frontiers[bisect_right(ends, offer.starts, 0, index)]:
            label = (usd + float(offer.usd), before + seconds, (*chain, offer))
            if label[0] + max(wanted - label[1], 0.0) * rate < best[0] * _SAVES:
                if label[1] < wanted:
                    longer.append(label)
                else:
                    best = (label[0], before, label[2])
        kept: list[_Label] = []
        for label in sorted([*frontiers[-1], *longer], key=lambda each: (each[0], -each[1])) if longer else ():
            if not kept or label[1] > kept[-1][1]:
                if kept and label[0] // width == kept[-1][0] // width:
                    kept.pop()
                kept.append(label)
        frontiers.append(kept or frontiers[-1])
    return best
