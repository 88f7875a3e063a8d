"""Optimizers, the rate's schedule, clipping, and updates that are rounded by chance."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainium_workloads.training.options import Options


def optimizer_of(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """Return AdamW or LAMB over the parameters that are learnt. Biases and norms, which have one dimension, do
    not decay."""
    learnt = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {"params": [each for each in learnt if each.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [each for each in learnt if each.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # On XLA a number may become a part of the graph, and each new one a new graph; a tensor is an input.
    is_traced = options.backend == "xla"
    rate = torch.tensor(options.learning_rate) if is_traced else options.learning_rate
    if options.optimizer == "lamb":
        return Lamb(groups, lr=rate)
    # PyTorch's choice is an operation at a time: on CPUs for each tensor, on GPUs with twice the memory's traffic.
    fused = True if options.backend in ("cpu", "cuda") else None
    return torch.optim.AdamW(groups, lr=rate, capturable=is_traced, fused=fused)


class Lamb(torch.optim.Optimizer):
    """LAMB, layer-wise adaptive rates for large batches (You et al., 2020, arXiv:1904.00962), with bias correction."""

    def __init__(self, groups: Iterable[dict[str, object]], lr: float | Tensor) -> None:
        super().__init__(groups, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        """Make one update."""
        for group in self.param_groups:
            first_beta, second_beta = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                first = state["exp_avg"].lerp_(parameter.grad, 1 - first_beta) / (1 - first_beta ** state["step"])
                squares = parameter.grad.square()
                second = state["exp_avg_sq"].lerp_(squares, 1 - second_beta) / (1 - second_beta ** state["step"])
                change = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * parameter
                size, length = parameter.norm(), change.norm()
                # A layer that is all zeros, or does not change, has no ratio.
                trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
                parameter.sub_(change * (group["lr"] * trust))


def rate_factor(step: int, options: Options) -> float:
    """Return the factor of the rate in a step, from 1."""
    if step <= options.warmup_steps:
        return step / max(options.warmup_steps, 1)
    if options.schedule == "constant":
        return 1.0
    span = max(options.steps - options.warmup_steps, 1)
    # The last step still moves: the rate would be 0 one step later.
    done = min((step - 1 - options.warmup_steps) / span, 1.0)
    return 1.0 - done if options.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate for the next update."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def clip(parameters: Iterable[nn.Parameter], limit: float, share: Tensor | None = None) -> Tensor:
    """Divide the gradients by a share, and scale them down to a norm of at most ``limit`` (0: no limit); return their
    norm in between, in FP32. It is a tensor on the device, and no branch depends on its value: it is not waited for."""
    learnt = [each for each in parameters if each.grad is not None]
    by_mesh: dict[object, list[Tensor]] = {}  # PyTorch adds up the norms of one mesh at a time
    for gradient in (each.grad for each in learnt if each.grad is not None):
        by_mesh.setdefault(getattr(gradient, "device_mesh", None), []).append(gradient.float())
    norms = [nn.utils.get_total_norm(gradients) for gradients in by_mesh.values()]
    norm = nn.utils.get_total_norm([each.full_tensor() if isinstance(each, DTensor) else each for each in norms])
    factor = torch.ones_like(norm) if share is None else 1 / share.to(norm.dtype)
    norm = norm * factor
    if limit:
        factor = factor * torch.clamp(limit / (norm + 1e-6), max=1.0)
    if limit or share is not None:
        # A rank's parts are scaled as a whole gradient is, and without what DTensor does for each operation.
        parts = [each.grad.to_local() if isinstance(each.grad, DTensor) else each.grad for each in learnt]
        torch._foreach_mul_(parts, factor)
    return norm


def round_stochastically(values: Tensor) -> Tensor:
    """Return FP32 values in BF16: rounded up or down by chance, so that the expected value is exact.

    An update that is smaller than half of a step of BF16 is then made some of the time instead of never. Trainium does
    the same in hardware (``NEURON_RT_STOCHASTIC_ROUNDING_EN=1``).
    """
    bits = values.float().view(torch.int32)
    # BF16 is the upper half of FP32: a number added below it carries with the probability of the part cut off.
    chance = torch.randint_like(bits, 1 << 16)
    rounded = ((bits + chance) & -(1 << 16)).view(torch.float32)
    return torch.where(torch.isfinite(values), rounded, values).bfloat16()


class UpdatedInFp32:
    """Optimizer for parameters in BF16: it updates in FP32, as is its state, and then rounds. In BF16 a second moment
    would stand still: 0.999 of it is rounded back to its old value."""

    def __init__(self, optimizer: torch.optim.Optimizer, rounded: Callable[[Tensor], Tensor]) -> None:
        self._optimizer, self._rounded = optimizer, rounded

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        """Make one update."""
        changed = [each for group in self._optimizer.param_groups for each in group["params"] if each.grad is not None]
        for each in changed:
            gradient, each.grad = each.grad.float(), None
            each.data = each.data.float()
            each.grad = gradient
        self._optimizer.step()
        for each in changed:
            each.grad = None
            each.data = self._rounded(each.data)


def load_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load an optimizer's state and keep its types: ``load_state_dict`` would make BF16 of FP32 because the
    parameters are."""
    optimizer.load_state_dict(state)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for parameter, number in zip(parameters, numbers, strict=True):
        for name, value in state["state"].get(number, {}).items():
            if isinstance(value, Tensor) and value.dtype != optimizer.state[parameter][name].dtype:
                optimizer.state[parameter][name] = value.to(parameter.device)


def make_state(optimizer: torch.optim.Optimizer) -> None:
    """Make the state of an optimizer before its first update, to load into: the values are not set. PyTorch would make
    an update of all parameters for it."""
    groups = optimizer.param_groups
    for group in groups:
        sample = nn.Parameter(torch.zeros(1, dtype=group["params"][0].dtype, device=group["params"][0].device))
        sample.grad = torch.zeros_like(sample)
        optimizer.param_groups = [{**group, "params": [sample]}]
        optimizer.step()
        made = optimizer.state.pop(sample)
        for each in group["params"]:
            optimizer.state[each] = {
                name: torch.empty_like(each, dtype=value.dtype) if value.dim() else value.clone()
                for name, value in made.items()
            }
    optimizer.param_groups = groups
