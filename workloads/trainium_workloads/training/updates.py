"""One update: micro-batches forward and backward, gradients of all ranks, a step of the optimizer."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trainium_workloads.training import optimizing, precision
from trainium_workloads.training.backends import Backend, Optimizer
from trainium_workloads.training.layout import Layout, Replicated
from trainium_workloads.training.options import Options
from trainium_workloads.training.order import step_seed
from trainium_workloads.training.progress import State
from trainium_workloads.training.task import Batch, Task

_EVERY_RANK = -1
"""In place of a rank's number, for random numbers that all ranks share."""


@dataclass(frozen=True)
class Values:
    """Values of an update; on the device until they are fetched."""

    tensors: dict[str, Tensor]

    def fetched(self) -> dict[str, float]:
        """Return the values, after waiting for the device once for all."""
        together = torch.stack([each.detach().float().reshape(()) for each in self.tensors.values()])
        return dict(zip(self.tensors, together.cpu().tolist(), strict=True))


class Updates:
    """The updates of a run."""

    def __init__(self, task: Task, options: Options, backend: Backend, layout: Layout, state: State) -> None:
        self._task, self._options, self._backend, self._layout = task, options, backend, layout
        self._model, self._optimizer, self._scaler = state.model, state.optimizer, state.scaler
        self._updater: Optimizer = state.optimizer
        if state.scaler.is_enabled():
            self._updater = _Scaled(state.optimizer, state.scaler)
        elif precision.parameter_type(options) is torch.bfloat16 and isinstance(layout, Replicated):
            self._updater = optimizing.UpdatedInFp32(state.optimizer, precision.rounding(options))
        self.rate = 0.0
        """Of the last update."""

    def make(self, step: int, batches: Iterator[Batch]) -> Values:
        """Make an update of the next micro-batches; return their values."""
        options, model = self._options, self._model
        sums: dict[str, Tensor] = {}
        for micro in range(options.accumulate):
            batch = next(batches)
            with self._layout.micro_batch(model, is_last=micro == options.accumulate - 1):
                with precision.autocast(options, self._backend.device):
                    loss = self._task.loss(model, batch)
                self._scaler.scale(loss.total / options.accumulate).backward()
            for name, value in {"loss": loss.total, **loss.parts}.items():
                part = value.detach().float() / options.accumulate
                sums[name] = sums[name] + part if name in sums else part
        self._layout.reduce(model, self._backend)
        if self._scaler.is_enabled():
            self._scaler.unscale_(self._optimizer)
        norm = self._layout.clip(model, options.clip)
        self.rate = options.learning_rate * optimizing.rate_factor(step, options)
        optimizing.set_rate(self._optimizer, self.rate)
        # Ranks have to round alike: each of them updates a whole model.
        self._backend.seed(step_seed(options.seed, step, _EVERY_RANK))
        self._backend.step(self._updater)
        self._optimizer.zero_grad(set_to_none=True)
        return Values({**sums, "gradient_norm": norm})


class _Scaled:
    """Updater in FP16: it leaves out an update with overflowed gradients, and lowers the scale."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        self._optimizer, self._scaler = optimizer, scaler

    def step(self) -> None:
        self._scaler.step(self._optimizer)
        self._scaler.update()
