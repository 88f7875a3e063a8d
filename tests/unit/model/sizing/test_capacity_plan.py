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


def gives(chosen, need):
    """Seconds of training in blocks of one region; none where two overlap or one starts too early."""
    if chosen[0].starts < need.earliest or any(one.ends > two.starts for one, two in pairwise(chosen)):
        return 0
    lasts = [(min(each.ends - need.drain, need.deadline) - each.starts).total_seconds() for each in chosen]
    return sum(max(each - need.start_seconds, 0) for each in lasts)


def exact(offers, need):
    """The lowest price of all sets of blocks of one region that hold the run."""
    best = math.inf
    for region in {each.region for each in offers}:
        there = sorted((each for each in offers if each.region == region), key=lambda each: each.starts)
        for count in range(1, len(there) + 1):
            for chosen in combinations(there, count):
                if gives(chosen, need) >= need.hours * 3600:
                    best = min(best, sum(float(each.usd) for each in chosen))
    return best


def test_plan_is_within_a_tenth_of_the_optimum_on_200_markets():
    worst, parts = 1.0, []
    for seed in range(200):
        rng = random.Random(seed)
        hours = rng.choice((20, 60, 72, 150, 300))
        deadline = NOW + timedelta(hours=hours * rng.choice((1.3, 2, 4)))
        need = Need(hours, NOW, deadline, rng.choice((600, 3600)), timedelta(seconds=rng.choice((2400, 4500))))
        offers = market(rng, rng.choice((1, 3)), max(2, hours // 12), rng.choice((6, 11)), (1, 2, 3, 4, 7))
        found, optimum = plans(offers, need), exact(offers, need)
        for plan in found:
            assert gives(plan.offers, need) >= hours * 3600
            assert {each.region for each in plan.offers} == {plan.region}
            assert plan.usd == pytest.approx(float(sum(each.usd for each in plan.offers)))
            assert plan.offers[-1].starts < plan.done <= min(need.deadline, plan.offers[-1].ends - need.drain)
        assert bool(found) == math.isfinite(optimum), seed
        if found:
            parts.append(len(found[0].offers))
            worst = max(worst, found[0].usd / optimum)
    several = sum(each > 1 for each in parts)
    sys.stdout.write(
        f"200 markets, {len(parts)} with a plan, {several} in parts: the worst is {worst:.3f} of the optimum\n"
    )
    assert worst <= 1.10
    assert several > 50
    assert len(parts) > several + 20


def test_answers_of_30_regions_and_56_days_take_under_a_second():
    taken = []
    for hours in (72, 400, 900):
        need = Need(hours, NOW, NOW + timedelta(days=60), 600)
        offers = market(random.Random(1), 30, 56, 6 * 56, durations(need))
        began = time.process_time()
        assert plans(offers, need)
        taken.append(time.process_time() - began)
    seconds = ", ".join(f"{each:.2f}" for each in taken)
    sys.stdout.write(f"{len(offers)} offers: {seconds} s for 72, 400 and 900 hours\n")
    assert max(taken) < 1.0


def test_run_goes_on_in_a_later_block_of_the_same_region():
    need = Need(60, NOW, NOW + 200 * HOUR, start_seconds=3600)
    [split] = plans([offer(0, 1, 699.99), offer(0, 2, 700), offer(4, 1, 400), offer(5, 1, 300, "us-east-1")], need)
    assert (split.usd, [each.usd for each in split.offers]) == (1100, [700, 400])
    # 48 h less 40 minutes and an hour, and the rest after the start of the second.
    assert split.done == NOW + 96 * HOUR + HOUR + (60 - 48 + 40 / 60 + 1) * HOUR
    assert plans([offer(0, 2, 700), offer(1, 1, 400)], need) == []


@pytest.mark.parametrize(
    ("hours", "found"), [(20, (1, 2)), (72, (1, 2, 3, 4, 5)), (336, (3, *range(4, 15), 21, 28)), (9999, DAYS[-23:])]
)
def test_searched_durations_are_those_that_ec2_sells(hours, found):
    searched = durations(Need(hours, NOW, NOW + 9999 * HOUR, 600))
    assert searched == tuple(each for each in DAYS if each in searched)
    assert searched == found
