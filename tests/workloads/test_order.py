"""Which example comes when."""

import itertools

import pytest
from trainium_workloads.training.order import Order, permuted, step_seed


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000])
def test_each_example_comes_once_an_epoch(size):
    assert sorted(permuted(place, size, "key") for place in range(size)) == list(range(size))


def test_epochs_and_seeds_differ_and_are_mixed():
    orders = {tuple(permuted(place, 100, key) for place in range(100)) for key in ("1 0", "1 1", "2 0")}
    assert len(orders) == 3
    # Of a random permutation of 100, one element on average stays where it is.
    assert all(sum(place == found for place, found in enumerate(order)) < 10 for order in orders)
    neighbours = [abs(a - b) == 1 for order in orders for a, b in itertools.pairwise(order)]
    assert sum(neighbours) < 30


def steps_of(order, first, last):
    """Per step, what it saw."""
    batches = [[(each.epoch, each.index) for each in batch] for batch in order.batches(first, last)]
    per_step = [batches[at : at + order.accumulate] for at in range(0, len(batches), order.accumulate)]
    return [[each for batch in group for each in batch] for group in per_step]


def seen(ranks, batch_size, accumulate, first, last):
    """Per step, what all ranks saw together; no example twice."""
    together = [steps_of(Order(50, 7, batch_size, accumulate, rank, ranks), first, last) for rank in range(ranks)]
    for_steps = [list(itertools.chain(*parts)) for parts in zip(*together, strict=True)]
    assert all(len(set(step)) == len(step) for step in for_steps)
    return [set(step) for step in for_steps]


def test_any_number_of_ranks_sees_the_same_in_a_step():
    alone = seen(1, 4, 4, 1, 9)
    assert seen(2, 4, 2, 1, 9) == seen(4, 4, 1, 1, 9) == seen(4, 2, 2, 1, 9) == alone
    assert seen(4, 4, 1, 6, 9) == alone[5:], "from any step on"


def test_an_epoch_ends_in_the_middle_of_a_step():
    stream = [each for step in steps_of(Order(10, 7, 4, 1, 0, 1), 1, 5) for each in step]
    assert [epoch for epoch, _ in stream] == [0] * 10 + [1] * 10
    assert sorted(index for _, index in stream[:10]) == list(range(10))


def test_seeds_of_steps_differ_and_fit_a_signed_integer():
    seeds = {step_seed(seed, step, rank) for seed in range(3) for step in range(20) for rank in range(20)}
    assert len(seeds) == 3 * 20 * 20
    assert all(0 <= each < 1 << 63 for each in seeds)
