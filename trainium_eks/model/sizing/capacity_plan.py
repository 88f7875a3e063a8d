"""The cheapest capacity for a run with a deadline: one Capacity Block, several with gaps, On-Demand, or both.

A run goes on from its checkpoint on the stack's file system, so that all its capacity is in one region. Each change of
capacity costs the start of a gang. Pure functions; times are aware datetimes in UTC.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

MOST_NODES = 64
"""Most instances of one Capacity Block (EC2 user guide, Capacity Blocks)."""

DAYS = (*range(1, 15), *range(21, 183, 7))
"""Durations that EC2 sells, days (EC2's DescribeCapacityBlockOfferings, ``CapacityDurationHours``)."""

AHEAD_DAYS = 56
"""How long before its start a block is sold: 30 minutes to 8 weeks."""

DRAIN_SECONDS, ULTRASERVER_DRAIN_SECONDS = 40 * 60, 75 * 60
"""Time before a block's end at which its nodes are drained: by EKS, and by the stack where EC2 begins to end
UltraServers' instances 60 minutes before."""

MOST_PIECES = 7
"""Blocks shorter than this part of the run are not searched: each is another start."""

_SLACK = 1.03
"""A plan is not looked for that saves less than 3 %."""

_MOST_LABELS = 128


@dataclass(frozen=True)
class Offer:
    """A Capacity Block that EC2 sells, with all its nodes."""

    id: str
    """Offering (``cb-…``)."""
    region: str
    zone_id: str
    """Zone id (``usw2-az4``); the zone's name where its id could not be read."""
    starts: datetime
    ends: datetime
    usd: Decimal
    """Price of the whole block, paid when it is bought."""
    nodes: int


@dataclass(frozen=True)
class Need:
    """A run that needs capacity."""

    hours: float
    """Hours of training by the clock, above 0: without the starts of the gang, with faults."""
    earliest: datetime
    deadline: datetime
    start_seconds: float
    """Time from new capacity to the first step: nodes join, the gang starts and loads its checkpoint."""
    drain_seconds: float = DRAIN_SECONDS
    on_demand_usd: float | None = None
    """Price of all nodes On-Demand for an hour; None where no price is known or no zone has them."""

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return self.hours * 3600

    def usable_until(self, offer: Offer) -> datetime:
        """Return when training on a block stops: at its drain, or at the deadline."""
        return min(offer.ends - timedelta(seconds=self.drain_seconds), self.deadline)

    def training_seconds(self, offer: Offer) -> float:
        """Return the seconds of training that a block gives before the deadline; 0 for one that starts too early or
        late."""
        if offer.starts < self.earliest:
            return 0.0
        return max((self.usable_until(offer) - offer.starts).total_seconds() - self.start_seconds, 0.0)


@dataclass(frozen=True)
class Stretch:
    """A part of a run on one capacity."""

    starts: datetime
    ends: datetime
    """When training on it ends."""
    usd: float
    offer: Offer | None = None
    """The block; None for On-Demand."""


@dataclass(frozen=True)
class Plan:
    """Capacity for a whole run, in order of time."""

    region: str
    stretches: tuple[Stretch, ...]

    @property
    def usd(self) -> float:
        """Price of all of it."""
        return sum(each.usd for each in self.stretches)

    @property
    def done(self) -> datetime:
        """When the run has all its hours."""
        return self.stretches[-1].ends

    @property
    def kind(self) -> str:
        """``block``, ``blocks``, ``on-demand`` or ``mixed``."""
        blocks = sum(each.offer is not None for each in self.stretches)
        if not blocks:
            return "on-demand"
        return "mixed" if blocks < len(self.stretches) else "block" if blocks == 1 else "blocks"


def durations(need: Need) -> tuple[int, ...]:
    """Return the durations to search, days: the shortest that is long enough for the run and the next, and those for a
    run in at most :data:`MOST_PIECES` parts."""
    wanted = need.seconds + need.start_seconds + need.drain_seconds
    first = next((index for index, days in enumerate(DAYS) if days * 86_400 >= wanted), len(DAYS) - 1)
    return tuple(days for days in DAYS[: first + 2] if days * MOST_PIECES >= DAYS[first])


def plans(offers: Iterable[Offer], need: Need, on_demand_regions: Iterable[str] = ()) -> list[Plan]:
    """Return the cheapest plan of each kind, cheapest first; none where nothing holds the deadline.

    Those of several blocks are within a few percent of the cheapest. ``on_demand_regions``: regions with zones that
    offer the type On-Demand; that EC2 has nodes free there is not known.
    """
    by_region: dict[str, list[Offer]] = {}
    for offer in offers:
        by_region.setdefault(offer.region, []).append(offer)
    found: dict[str, Plan] = {}
    with_demand = set(on_demand_regions) if need.on_demand_usd is not None else set()
    for region in sorted({*by_region, *with_demand}):
        for is_mixed in (False, True) if region in with_demand else (False,):
            for plan in _plans_in(region, by_region.get(region, []), need, found, is_mixed=is_mixed):
                if plan.kind not in found or plan.usd < found[plan.kind].usd:
                    found[plan.kind] = plan
    # A run in parts has to be cheaper than a simpler one.
    simple = [found[kind].usd for kind in ("block", "on-demand") if kind in found]
    kept = [each for each in found.values() if each.usd < min(simple, default=math.inf) or len(each.stretches) == 1]
    return sorted(kept, key=lambda plan: (plan.usd, plan.done))


class _Item(NamedTuple):
    """A block as numbers, seconds from the run's earliest start."""

    ends: float
    starts: float
    seconds: float
    usd: float
    offer: Offer


class _Label(NamedTuple):
    """Some blocks that follow each other."""

    usd: float
    seconds: float
    chain: Any
    """The last block with the chain before it; None for no block."""


def _items(offers: Sequence[Offer], need: Need) -> list[_Item]:
    """Return the usable blocks in order of their ends, of those with the same times the cheapest."""
    cheapest: dict[tuple[datetime, datetime], Offer] = {}
    for offer in sorted(offers, key=lambda each: each.usd):
        cheapest.setdefault((offer.starts, offer.ends), offer)
    items = []
    for offer in cheapest.values():
        if seconds := need.training_seconds(offer):
            starts = (offer.starts - need.earliest).total_seconds()
            ends = starts + need.start_seconds + seconds
            items.append(_Item(ends, starts, seconds, float(offer.usd), offer))
    return sorted(items, key=lambda each: each[:2])


def _plans_in(
    region: str, offers: Sequence[Offer], need: Need, found: dict[str, Plan], *, is_mixed: bool
) -> Iterator[Plan]:
    """Yield plans of one region: without ``is_mixed`` of blocks alone, one and several; with it On-Demand, too.
    ``found``: the best so far, in any region."""
    items = _items(offers, need)
    if is_mixed and (alone := _finished(region, (), need)):
        yield alone
    single = min((each for each in items if each.seconds >= need.seconds), key=lambda each: each.usd, default=None)
    if single and not is_mixed:
        yield _plan(region, [single], need)
    kinds = ("block", "blocks", "on-demand", "mixed") if is_mixed else ("block", "blocks")
    bounds = [found[kind].usd for kind in kinds if kind in found]
    if chain := _cheapest_chain(items, need, min(bounds, default=math.inf), is_mixed=is_mixed):
        plan = _finished(region, chain, need) if is_mixed else _plan(region, chain, need)
        if plan:
            yield plan


def _cheapest_chain(items: Sequence[_Item], need: Need, bound: float, *, is_mixed: bool) -> list[_Item]:
    """Return the cheapest blocks that follow each other and hold the run, cheaper than ``bound``; empty for none.

    Labels with less training for more money are dropped, and those that can no longer be 3 % cheaper than the best:
    what they lack costs at least the lowest price of a second among the blocks that may follow.
    """
    demand = need.on_demand_usd / 3600 if is_mixed and need.on_demand_usd is not None else math.inf
    best, chosen = bound, list[_Item]()
    greedy = _greedy_chain(items, need)
    if greedy and sum(each.usd for each in greedy) < best:
        best, chosen = sum(each.usd for each in greedy), greedy
    cheapest_after = [demand] * (len(items) + 1)
    for index in range(len(items) - 1, -1, -1):
        cheapest_after[index] = min(cheapest_after[index + 1], items[index].usd / items[index].seconds)
    ends = [each.ends for each in items]
    frontiers: list[list[_Label]] = [[_Label(0.0, 0.0, None)]]
    for index, item in enumerate(items):
        extended = []
        for before in frontiers[bisect_right(ends, item.starts, 0, index)]:
            label = _Label(before.usd + item.usd, before.seconds + item.seconds, (item, before.chain))
            lacking = need.seconds - label.seconds
            if lacking <= 0:
                if label.usd < best:
                    best, chosen = label.usd, _unrolled(label.chain)
                continue
            if (label.usd + lacking * cheapest_after[index + 1]) * _SLACK >= best:
                continue
            extended.append(label)
            if is_mixed and label.usd + (lacking + need.start_seconds) * demand < best:
                chain = _unrolled(label.chain)
                if demanded := _demanded(chain, need):
                    usd = label.usd + sum((end - start) * demand for start, end in demanded)
                    best, chosen = (usd, chain) if usd < best else (best, chosen)
        frontiers.append(_merged(frontiers[-1], extended) if extended else frontiers[-1])
    return chosen


def _greedy_chain(items: Sequence[_Item], need: Need) -> list[_Item]:
    """Return blocks that hold the run, taken by their price of a second; empty for none."""
    taken: list[_Item] = []
    for item in sorted(items, key=lambda each: each.usd / min(each.seconds, need.seconds)):
        if all(item.starts >= each.ends or item.ends <= each.starts for each in taken):
            taken.append(item)
            if sum(each.seconds for each in taken) >= need.seconds:
                break
    else:
        return []
    for item in sorted(taken, key=lambda each: -each.usd):
        if sum(each.seconds for each in taken) - item.seconds >= need.seconds:
            taken.remove(item)
    return sorted(taken, key=lambda each: each.starts)


def _merged(first: list[_Label], second: list[_Label]) -> list[_Label]:
    """Return the labels of both that no other is better than, by price."""
    kept: list[_Label] = []
    for label in sorted([*first, *second], key=lambda each: (each.usd, -each.seconds)):
        if not kept or label.seconds > kept[-1].seconds:
            kept.append(label)
    if len(kept) <= _MOST_LABELS:
        return kept
    width = kept[-1].usd / _MOST_LABELS
    buckets = {int(label.usd / width): label for label in kept}  # of each bucket the last has the most training
    return [kept[0], *(label for label in buckets.values() if label is not kept[0])]


def _unrolled(chain: Any) -> list[_Item]:
    items = []
    while chain is not None:
        items.append(chain[0])
        chain = chain[1]
    return items[::-1]


def _demanded(chain: Sequence[_Item], need: Need) -> list[tuple[float, float]] | None:
    """Return the times, starts of the gang included, at which the rest of a run is On-Demand: in as few gaps as can be,
    of those that are long enough for it in the last. None where the gaps are too short."""
    rest = need.seconds - sum(each.seconds for each in chain)
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


def _finished(region: str, chain: Sequence[_Item], need: Need) -> Plan | None:
    """Return blocks with the rest of the run On-Demand; None where the deadline leaves too little time."""
    demanded, hourly = _demanded(chain, need), need.on_demand_usd
    if demanded is None or hourly is None:
        return None
    stretches = [
        Stretch(
            need.earliest + timedelta(seconds=starts),
            need.earliest + timedelta(seconds=ends),
            (ends - starts) / 3600 * hourly,
        )
        for starts, ends in demanded
    ]
    return _plan(region, chain, need, stretches)


def _plan(region: str, chain: Sequence[_Item], need: Need, others: Sequence[Stretch] = ()) -> Plan:
    stretches = [Stretch(each.offer.starts, need.usable_until(each.offer), each.usd, each.offer) for each in chain]
    ordered = sorted([*stretches, *others], key=lambda each: each.starts)
    rest, last = need.seconds, ordered[-1]
    for each in ordered[:-1]:
        rest -= (each.ends - each.starts).total_seconds() - need.start_seconds
    done = last.starts + timedelta(seconds=need.start_seconds + max(rest, 0.0))
    return Plan(region, (*ordered[:-1], Stretch(last.starts, done, last.usd, last.offer)))
