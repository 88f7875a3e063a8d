"""One update: micro-batches forward and backward, gradients of all ranks, a step of the optimizer."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from trainium_workloads.training import optimizing, precision
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.layout import Layout
from trainium_workloads.training.options import Options
from trainium_workloads.training.order import step_seed
from trainium_workloads.training.progress import State
from trainium_workloads.training.task import Batch, Task

_SHARE = "share"
_EVERY_RANK = -1
"""In place of a rank's number, for random numbers that all ranks share."""


class Updates:
    """The updates of a run."""

    def __init__(self, task: Task, options: Options, backend: Backend, layout: Layout, state: State) -> None:
        self._task, self._options, self._backend, self._layout = task, options, backend, layout
        self._model, self._optimizer, self._scaler = state.model, state.optimizer, state.scaler
        self._update = self._optimizer.step
        if precision.parameter_type(options) is torch.bfloat16 and layout.sharding == "none":
            in_software = options.stochastic_rounding and options.backend in ("cpu", "cuda")
            rounded = optimizing.round_stochastically if in_software else Tensor.bfloat16
            self._update = optimizing.UpdatedInFp32(self._optimizer, rounded).step
        self._ahead: Batch | None = None
        self.rate = 0.0
        """Of the last update."""

    def make(self, step: int, batches: Iterator[Batch]) -> Callable[[], dict[str, float]]:
        """Make an update of the next micro-batches; return a function that waits for its values."""
        options, model = self._options, self._model
        values: dict[str, Tensor] = {}
        for micro in range(options.accumulate):
            batch = self._ahead or next(batches)
            self._ahead = None
            self._layout.begin_micro_batch(model, is_last=micro == options.accumulate - 1)
            with precision.autocast(options, self._backend.device):
                loss = self._task.loss(model, batch)
            self._scaler.scale(loss.total / options.accumulate).backward()
            shares = {} if loss.share is None else {_SHARE: loss.share}
            for name, value in {"loss": loss.total, **shares, **loss.parts}.items():
                part = value.detach().float() / options.accumulate
                values[name] = values[name] + part if name in values else part
        self._layout.reduce(model, self._backend)
        if self._scaler.is_enabled():
            self._scaler.unscale_(self._optimizer)
        if _SHARE in values:
            # transformers once divided by the share of each micro-batch instead (its issue 34198).
            self._backend.average([values[_SHARE]])
            values["loss"] /= values[_SHARE]
        values["gradient_norm"] = optimizing.clip(model.parameters(), options.clip, values.pop(_SHARE, None))
        # On their way before the optimizer runs: the next step is prepared while it does.
        numbers = self._backend.bring(torch.stack([each.detach().float().reshape(()) for each in values.values()]))
        self.rate = options.learning_rate * optimizing.rate_factor(step, options)
        optimizing.set_rate(self._optimizer, self.rate)
        # Ranks have to round alike: each of them updates a whole model.
        self._backend.seed(step_seed(options.seed, step, _EVERY_RANK))
        if self._scaler.is_enabled():  # it leaves out an update with overflowed gradients, and lowers the scale
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._update()
        self._backend.end_update()
        self._optimizer.zero_grad(set_to_none=True)
        self._ahead = next(batches, None)  # read while the device computes
        return lambda: dict(zip(values, numbers(), strict=True))
