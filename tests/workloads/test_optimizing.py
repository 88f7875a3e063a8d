"""Optimizers, schedules, clipping, rounding by chance; and which example comes when."""

import itertools
import math

import pytest
import torch
from torch import nn
from trainium_workloads.training import optimizing
from trainium_workloads.training.optimizing import Lamb, UpdatedInFp32, clip, rate_factor, round_stochastically
from trainium_workloads.training.options import Options
from trainium_workloads.training.order import Order, permuted, step_seed


def test_stochastic_rounding_keeps_the_mean():
    torch.manual_seed(0)
    value = torch.full((200_000,), 1.0 + 0.3 / 128)  # BF16 has 1 and 1 + 1/128 there
    rounded = round_stochastically(value).float()
    assert set(rounded.unique().tolist()) == {1.0, 1.0 + 1 / 128}
    assert rounded.mean().item() == pytest.approx(1.0 + 0.3 / 128, abs=5e-5)
    assert (value.to(torch.bfloat16) == 1).all(), "to nearest, it would always be 1"


def test_values_representable_in_bf16_are_unchanged():
    values = torch.tensor([0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), 2.0**-126])
    assert torch.equal(round_stochastically(values).float(), values)
    assert round_stochastically(torch.tensor([float("nan")])).isnan().all()
    negative = round_stochastically(torch.full((1000,), -1.0 - 0.5 / 128)).float()
    assert set(negative.unique().tolist()) == {-1.0, -1.0 - 1 / 128}


def test_small_updates_accumulate_only_with_stochastic_rounding():
    torch.manual_seed(0)
    ends = {}
    for by_chance in (False, True):
        parameter = nn.Parameter(torch.ones(2000, dtype=torch.bfloat16))
        optimizer: torch.optim.Optimizer = torch.optim.SGD([parameter], lr=1e-4)
        updater = UpdatedInFp32(optimizer, round_stochastically) if by_chance else optimizer
        for _ in range(500):
            parameter.grad = torch.ones_like(parameter)
            updater.step()
        assert parameter.dtype is torch.bfloat16
        ends[by_chance] = parameter.float().mean().item()
    assert ends[False] == 1.0
    assert ends[True] == pytest.approx(0.95, abs=0.002)


def test_second_moments_of_bf16_parameters_change():
    parameter = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    updater = UpdatedInFp32(optimizer, torch.Tensor.bfloat16)
    for _ in range(500):
        parameter.grad = torch.ones_like(parameter) if not optimizer.state else torch.zeros_like(parameter)
        updater.step()
    moment = optimizer.state[parameter]["exp_avg_sq"]
    assert (moment.dtype, parameter.dtype) == (torch.float32, torch.bfloat16)
    assert moment[0].item() == pytest.approx(0.001 * 0.999**499, rel=1e-3)


def test_optimizer_state_is_restored_unchanged():
    parameters = [nn.Parameter(torch.ones(3, dtype=torch.bfloat16)) for _ in range(2)]
    optimizers = [torch.optim.AdamW([each], lr=1e-3) for each in parameters]
    parameters[0].grad = torch.full_like(parameters[0], 1 / 3)
    UpdatedInFp32(optimizers[0], torch.Tensor.bfloat16).step()
    optimizing.load_state(optimizers[1], optimizers[0].state_dict())
    for name in ("exp_avg", "exp_avg_sq"):
        saved, loaded = (each.state[of][name] for each, of in zip(optimizers, parameters, strict=True))
        assert loaded.dtype is torch.float32
        assert torch.equal(saved, loaded)
    assert optimizers[1].state[parameters[1]]["step"] == 1


@pytest.mark.parametrize("limit", [0.5, 1000.0, 0])
def test_clipping_equals_pytorchs_and_no_limit_changes_nothing(limit):
    torch.manual_seed(0)
    mine, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    norm = clip(mine.parameters(), limit)
    assert norm == pytest.approx(nn.utils.clip_grad_norm_(theirs.parameters(), limit or math.inf))
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_biases_and_norms_do_not_decay():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    groups = optimizing.optimizer_of(model, Options(weight_decay=0.1)).param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 2), (0.0, 4)]


@pytest.mark.parametrize(
    ("schedule", "end"), [("linear", (1e-6, 0.02)), ("cosine", (1e-6, 0.02)), ("constant", (1, 1))]
)
def test_learning_rate_warms_up_and_decays(schedule, end):
    options = Options(steps=100, warmup_steps=10, schedule=schedule)
    factors = [rate_factor(step, options) for step in range(1, 101)]
    assert factors[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert factors[10] == 1.0
    assert factors[9:] == sorted(factors[9:], reverse=True)
    assert end[0] <= factors[-1] <= end[1]


def test_lamb_scales_updates_by_layer_norm():
    """A first update of a layer is as long as the rate times the layer, whatever its gradients are (no decay)."""
    torch.manual_seed(0)
    for scale in (1e-3, 1e3):
        parameter = nn.Parameter(torch.randn(50))
        before = parameter.detach().clone()
        parameter.grad = torch.randn(50) * scale
        Lamb([{"params": [parameter]}], lr=0.1).step()
        assert (parameter.detach() - before).norm().item() == pytest.approx(0.1 * before.norm().item(), rel=1e-3)


def test_lamb_skips_missing_gradients_and_moves_zero_parameters():
    still, zero = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
    zero.grad = torch.ones(3)
    Lamb([{"params": [still, zero]}], lr=0.1).step()
    assert torch.equal(still, torch.ones(3))
    assert zero.tolist() == pytest.approx([-0.1] * 3, rel=1e-4)


def test_a_rate_that_is_a_tensor_is_set_in_place():
    parameter = nn.Parameter(torch.ones(2))
    rate = torch.tensor(1.0)
    optimizer = torch.optim.AdamW([parameter], lr=rate, capturable=False, foreach=False)
    optimizing.set_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == 0.25


# --- Order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000])
def test_each_example_is_seen_once_an_epoch(size):
    assert sorted(permuted(place, size, "key") for place in range(size)) == list(range(size))


def test_order_differs_by_epoch_and_seed():
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


def test_epoch_may_end_within_a_step():
    stream = [each for step in steps_of(Order(10, 7, 4, 1, 0, 1), 1, 5) for each in step]
    assert [epoch for epoch, _ in stream] == [0] * 10 + [1] * 10
    assert sorted(index for _, index in stream[:10]) == list(range(10))


def test_seeds_of_steps_differ_and_fit_a_signed_integer():
    seeds = {step_seed(seed, step, rank) for seed in range(3) for step in range(20) for rank in range(20)}
    assert len(seeds) == 3 * 20 * 20
    assert all(0 <= each < 1 << 63 for each in seeds)
