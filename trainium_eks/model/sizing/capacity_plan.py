"""The cheapest capacity for a run with a deadline: one Capacity Block, several with gaps, On-Demand, or both.

A run goes on from its checkpoint on the stack's file system, so that all its capacity is in one region. Each change of
capacity costs the start of a gang. Pure functions; times are in UTC.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from trainium_eks.model.sizing.block_times import EKS_DRAIN

DAYS = (*range(1, 15), *range(21, 183, 7))
"""Durations that EC2 sells, days (DescribeCapacityBlockOfferings, ``CapacityDurationHours``)."""

AHEAD = timedelta(days=56)
"""How long before its start a block is sold at the earliest (EC2 user guide, Capacity Blocks)."""

MOST_PARTS = 7
"""Blocks shorter than this part of a run are not searched: each is another start."""

_SLACK = 1.005
"""A plan is not looked for that saves less than half a percent."""

_MOST_LABELS = 128


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
    on_demand_usd: float | None = None
    """Price of all nodes On-Demand for an hour; None where none is known."""

    def training_seconds(self, offer: Offer) -> float:
        """Return the seconds of training that a block gives before the deadline; 0 for one that starts too early."""
        lasts = (min(offer.ends - self.drain, self.deadline) - offer.starts).total_seconds()
        return max(lasts - self.start_seconds, 0.0) if offer.starts >= self.earliest else 0.0


@dataclass(frozen=True)
class Stretch:
    """A part of a run on one capacity."""

    starts: datetime
    ends: datetime
    """End of the training on it."""
    usd: float
    offer: Offer | None
    """The block; None for On-Demand."""


@dataclass(frozen=True)
class Plan:
    """Capacity for a whole run, in order of time."""

    kind: str
    """``block``, ``blocks``, ``on-demand`` or ``mixed``."""
    region: str
    usd: float
    done: datetime
    """When the run has all its hours."""
    stretches: tuple[Stretch, ...]


class _Block(NamedTuple):
    """A block as numbers: seconds from the run's earliest start, with the start of the gang."""

    ends: float
    starts: float
    seconds: float
    usd: float
    offer: Offer


class _Label(NamedTuple):
    """Blocks that follow each other."""

    usd: float
    seconds: float
    chain: tuple[_Block, ...]


def durations(need: Need) -> tuple[int, ...]:
    """Return the durations to search, days: the shortest that is long enough for the run, the next, and those for a
    run in at most :data:`MOST_PARTS` parts."""
    wanted = need.hours * 3600 + need.start_seconds + need.drain.total_seconds()
    first = next((index for index, days in enumerate(DAYS) if days * 86_400 >= wanted), len(DAYS) - 1)
    return tuple(days for days in DAYS[: first + 2] if days * MOST_PARTS >= DAYS[first])


def plans(offers: Iterable[Offer], need: Need, on_demand_regions: Iterable[str] = ()) -> list[Plan]:
    """Return the cheapest plan of each kind, cheapest first, and none where nothing holds the deadline. Those in
    several parts are within a few percent of the cheapest, and left out where a simpler one is cheaper.

    ``on_demand_regions``: regions that offer the type On-Demand; that EC2 has nodes free there is not known.
    """
    by_region: dict[str, list[Offer]] = {}
    for offer in offers:
        by_region.setdefault(offer.region, []).append(offer)
    demanded = set(on_demand_regions) if need.on_demand_usd is not None else set()
    found: dict[str, Plan] = {}
    for region in sorted({*by_region, *demanded}):
        blocks = _blocks(by_region.get(region, []), need)
        whole = min((each for each in blocks if each.seconds >= need.hours * 3600), key=lambda x: x.usd, default=None)
        for is_mixed in (False, True) if region in demanded else (False,):
            chains = [()] if is_mixed else [(whole,)] if whole else list[tuple[_Block, ...]]()
            bound = min((each.usd for each in found.values() if is_mixed or "block" in each.kind), default=math.inf)
            bound = min([bound, *(sum(each.usd for each in chain) for chain in chains if chain)])
            chains += [chain] if (chain := _cheapest_chain(blocks, need, bound, is_mixed=is_mixed)) else []
            for plan in filter(None, (_plan(region, chain, need) for chain in chains)):
                found[plan.kind] = min(plan, found.get(plan.kind, plan), key=lambda each: each.usd)
    simple = min((each.usd for each in found.values() if len(each.stretches) == 1), default=math.inf)
    kept = [each for each in found.values() if each.usd < simple or len(each.stretches) == 1]
    return sorted(kept, key=lambda plan: (plan.usd, plan.done))


def _blocks(offers: Sequence[Offer], need: Need) -> list[_Block]:
    """Return the usable blocks in order of their ends, of those with the same times the cheapest."""
    cheapest: dict[tuple[datetime, datetime], Offer] = {}
    for offer in sorted(offers, key=lambda each: each.usd):
        cheapest.setdefault((offer.starts, offer.ends), offer)
    found = []
    for offer in cheapest.values():
        if seconds := need.training_seconds(offer):
            starts = (offer.starts - need.earliest).total_seconds()
            found.append(_Block(starts + need.start_seconds + seconds, starts, seconds, float(offer.usd), offer))
    return sorted(found, key=lambda each: each[:2])


def _cheapest_chain(blocks: Sequence[_Block], need: Need, bound: float, *, is_mixed: bool) -> tuple[_Block, ...]:
    """Return the cheapest blocks that follow each other and hold the run, with ``is_mixed`` with its rest On-Demand;
    cheaper than ``bound``, and empty for none.

    Labels with less training for more money are dropped, and those that can no longer be cheaper than the best:
    what they lack costs at least the lowest price of a second among the blocks that may follow.
    """
    demand = need.on_demand_usd / 3600 if is_mixed and need.on_demand_usd is not None else math.inf
    rates = [demand]
    for block in reversed(blocks):
        rates.append(min(rates[-1], block.usd / block.seconds))
    best, chosen = bound, tuple[_Block, ...]()
    ends, frontiers = [each.ends for each in blocks], [[_Label(0.0, 0.0, ())]]
    for index, block in enumerate(blocks):
        extended = []
        for before in frontiers[bisect_right(ends, block.starts, 0, index)]:
            label = _Label(before.usd + block.usd, before.seconds + block.seconds, (*before.chain, block))
            lacking = need.hours * 3600 - label.seconds
            usd = label.usd
            if (usd + lacking * rates[-2 - index] if lacking > 0 else usd) * _SLACK < best:
                extended.append(label)
                if lacking > 0:
                    demanded = _demanded(label.chain, need) if is_mixed and usd + lacking * demand < best else None
                    usd += sum((end - start) * demand for start, end in demanded) if demanded else math.inf
                best, chosen = (usd, label.chain) if usd < best else (best, chosen)
        frontiers.append(_merged(frontiers[-1], extended) if extended else frontiers[-1])
    return chosen


def _merged(first: list[_Label], second: list[_Label]) -> list[_Label]:
    """Return the labels of both that no other is better than, by price; of too many those with the most training."""
    kept: list[_Label] = []
    for label in sorted([*first, *second], key=lambda each: (each.usd, -each.seconds)):
        if not kept or label.seconds > kept[-1].seconds:
            kept.append(label)
    if len(kept) <= _MOST_LABELS:
        return kept
    width = kept[-1].usd / _MOST_LABELS
    return [kept[0], *{math.ceil(label.usd / width): label for label in kept[1:]}.values()]


def _demanded(chain: Sequence[_Block], need: Need) -> list[tuple[float, float]] | None:
    """Return the times, starts of the gang included, at which the rest of a run is On-Demand: in as few gaps as can be,
    of those that are long enough for it in the last. None where the gaps are too short."""
    rest = need.hours * 3600 - sum(each.seconds for each in chain)
    last = (need.deadline - need.earliest).total_seconds()
    begins, until = [0.0, *(each.ends for each in chain)], [*(each.starts for each in chain), last]
    gaps = [(start, end) for start, end in zip(begins, until, strict=True) if end - start > need.start_seconds]
    taken = []
    while rest > 1e-6:
        if not gaps:
            return None
        enough = [gap for gap in gaps if gap[1] - gap[0] - need.start_seconds >= rest]
        start, end = enough[-1] if enough else max(gaps, key=lambda gap: gap[1] - gap[0])
        gaps.remove((start, end))
        used = min(end - start, rest + need.start_seconds)
        taken.append((start, start + used))
        rest -= used - need.start_seconds
    return taken


def _plan(region: str, chain: Sequence[_Block], need: Need) -> Plan | None:
    """Return blocks as a plan, with the rest of the run On-Demand; None where the deadline leaves too little time."""
    demanded = _demanded(chain, need)
    if demanded is None:
        return None
    parts: list[tuple[float, float, float, Offer | None]] = [
        (each.starts, each.ends, each.usd, each.offer) for each in chain
    ]
    parts += [(start, end, (end - start) / 3600 * (need.on_demand_usd or 0), None) for start, end in demanded]
    parts.sort(key=lambda each: each[0])
    surplus = max(sum(end - start - need.start_seconds for start, end, _, _ in parts) - need.hours * 3600, 0.0)
    parts[-1] = (parts[-1][0], parts[-1][1] - surplus, *parts[-1][2:])
    stretches = [
        Stretch(need.earliest + timedelta(seconds=start), need.earliest + timedelta(seconds=end), usd, offer)
        for start, end, usd, offer in parts
    ]
    kind = "mixed" if chain and demanded else "on-demand" if demanded else "block" if len(chain) == 1 else "blocks"
    return Plan(kind, region, sum(each.usd for each in stretches), stretches[-1].ends, tuple(stretches))
