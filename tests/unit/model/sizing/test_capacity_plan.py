"""Plans of capacity against all sets of blocks, tried one by one."""

import math
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations, pairwise

import pytest

from trainium_eks.model.sizing.capacity_plan import DAYS, Need, Offer, durations, plans

NOW = datetime(2027, 1, 1, 11, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def offer(day, days, usd, region="us-west-2", late=0.0):
    """A block that ends at 11:30, as all do; a block of today starts later in the day."""
    starts = NOW + timedelta(days=day, hours=late)
    name = f"cb-{region}-{day}-{days}-{usd}"
    return Offer(name, region, "usw2-az4", starts, NOW + timedelta(days=day + days), 8, Decimal(str(usd)), days)


def market(rng, regions, days, offers, lengths):
    made = []
    for region in range(regions):
        for _ in range(offers):
            length, late = rng.choice(lengths), rng.choice((0, 0, 6.5))
            usd = round((24 * length - late) * 8 * rng.uniform(12, 30), 2)
            made.append(offer(rng.randrange(days), length, usd, f"region-{region}", late))
    return made


def exact(offers, need, regions):
    """Return the lowest price of all sets of blocks of one region that do not overlap, with the rest On-Demand."""
    last, start = need.deadline.timestamp(), need.start_seconds
    best = math.inf
    for region in {*regions, *(each.region for each in offers)}:
        usable = []
        for each in offers:
            begins, ends = each.starts.timestamp(), min(each.ends.timestamp() - need.drain.total_seconds(), last)
            if each.region == region and each.starts >= need.earliest and ends - begins > start:
                usable.append((begins, ends, float(each.usd)))
        for count in range(len(usable) + 1):
            for chosen in combinations(sorted(usable), count):
                if any(second[0] < first[1] for first, second in pairwise(chosen)):
                    continue
                rest = need.hours * 3600 - sum(ends - begins - start for begins, ends, _ in chosen)
                usd = sum(each[2] for each in chosen)
                if rest <= 0:
                    best = min(best, usd)
                elif region in regions and need.on_demand_usd:
                    edges = [need.earliest.timestamp(), *(edge for each in chosen for edge in each[:2]), last]
                    gaps = sorted((end - begin - start for begin, end in zip(edges[::2], edges[1::2], strict=True)))
                    stretches = 0
                    left = rest
                    while left > 1e-6 and gaps and gaps[-1] > 0:
                        left -= gaps.pop()
                        stretches += 1
                    if left <= 1e-6:
                        best = min(best, usd + (rest + stretches * start) * need.on_demand_usd / 3600)
    return best


def check(plan, need):
    """A plan must hold what it promises: blocks one after the other, all hours, before the deadline."""
    seconds = 0.0
    for stretch in plan.stretches:
        assert stretch.starts >= need.earliest
        assert stretch.offer is None or stretch.ends <= stretch.offer.ends - need.drain
        assert stretch.offer is None or stretch.offer.region == plan.region
        seconds += (stretch.ends - stretch.starts).total_seconds() - need.start_seconds
    assert all(first.ends <= second.starts for first, second in pairwise(plan.stretches))
    assert plan.done <= need.deadline
    assert seconds >= need.hours * 3600 - 1e-3


def test_plan_is_within_a_tenth_of_the_optimum_on_200_markets():
    worst, feasible, kinds = 1.0, 0, set()
    for seed in range(200):
        rng = random.Random(seed)
        hours = rng.choice((20, 60, 72, 150, 300))
        need = Need(
            hours=hours,
            earliest=NOW,
            deadline=NOW + timedelta(hours=hours * rng.choice((1.1, 1.6, 4))),
            start_seconds=rng.choice((600, 3600)),
            drain=timedelta(seconds=rng.choice((2400, 4500))),
            on_demand_usd=rng.choice((None, 8 * 15.0, 8 * 24.0, 8 * 40.0)),
        )
        offers = market(rng, rng.choice((1, 3)), max(1, hours // 12), rng.choice((4, 10)), (1, 2, 3, 4, 7))
        regions = ["region-0"] if need.on_demand_usd else []
        found, optimum = plans(offers, need, regions), exact(offers, need, regions)
        for plan in found:
            check(plan, need)
            kinds.add(plan.kind)
        assert bool(found) == math.isfinite(optimum), seed
        if found:
            feasible += 1
            worst = max(worst, found[0].usd / optimum)
    sys.stdout.write(f"200 markets, {feasible} with a plan: the worst is {worst:.3f} of the optimum\n")
    assert worst <= 1.10
    assert feasible > 100
    assert kinds == {"block", "blocks", "on-demand", "mixed"}


def test_answers_of_30_regions_and_56_days_take_under_a_second():
    offers = market(random.Random(1), 30, 56, 6 * 56, (1, 2, 3, 4, 5, 7, 14))
    taken = []
    for hours, hourly in ((72, 8 * 21.5), (400, None), (900, 8 * 21.5)):
        need = Need(hours, NOW, NOW + timedelta(days=60), 600, on_demand_usd=hourly)
        began = time.process_time()
        assert plans(offers, need, {each.region for each in offers})
        taken.append(time.process_time() - began)
    sys.stdout.write(f"{len(offers):,} offers: {', '.join(f'{each:.2f}' for each in taken)} s\n")
    assert max(taken) < 1.0


def test_run_goes_on_in_a_second_block_and_pays_its_start():
    need = Need(60, NOW, NOW + 200 * HOUR, start_seconds=3600)
    [split] = plans([offer(0, 2, 700), offer(4, 1, 400), offer(5, 1, 300, "us-east-1")], need)
    assert (split.kind, split.usd, [each.offer.usd for each in split.stretches]) == ("blocks", 1100, [700, 400])
    # 48 h less 40 minutes and an hour, and the rest after the start of the second.
    assert split.done == NOW + 96 * HOUR + HOUR + (60 - 48 + 40 / 60 + 1) * HOUR
    assert plans([offer(0, 2, 700), offer(1, 1, 400)], need) == []


def test_rest_of_a_run_is_on_demand_after_the_block_where_it_is_cheaper_than_a_longer_block():
    need = Need(72, NOW, NOW + 200 * HOUR, start_seconds=600, on_demand_usd=100)
    mixed, single, demand = plans([offer(1, 3, 5000), offer(1, 4, 6800)], need, ["us-west-2"])
    assert [each.kind for each in (mixed, single, demand)] == ["mixed", "block", "on-demand"]
    assert [each.offer is None for each in mixed.stretches] == [False, True]
    assert mixed.usd == pytest.approx(5000 + 100)
    assert demand.usd == pytest.approx(7200 + 100 / 6)


@pytest.mark.parametrize(
    ("hours", "found"), [(20, (1, 2)), (72, (1, 2, 3, 4, 5)), (336, (3, *range(4, 15), 21, 28)), (9999, DAYS[-23:])]
)
def test_searched_durations_are_those_that_ec2_sells(hours, found):
    searched = durations(Need(hours, NOW, NOW + 9999 * HOUR, 600))
    assert searched == tuple(each for each in DAYS if each in searched)
    assert searched == found
