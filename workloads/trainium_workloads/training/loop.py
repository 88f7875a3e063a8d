"""The loop that all trainings share."""

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from trainium_workloads import stopping
from trainium_workloads.training import optimizing, precision
from trainium_workloads.training.backends import Backend, Optimizer
from trainium_workloads.training.layout import Layout, Replicated
from trainium_workloads.training.metrics import Metrics
from trainium_workloads.training.options import Options
from trainium_workloads.training.order import Order, step_seed
from trainium_workloads.training.progress import ONLY_COMPILES, Progress, fingerprint
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch, Task, parameter_count

_EVERY_RANK = -1


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    """The last update that is in the model."""
    loss: float
    """Of that update, over all ranks; NaN when this run made none."""
    model: nn.Module
    stopped: str = ""
    """Why before its end; empty when the training is complete, or has done ``steps_this_run``."""
    is_complete: bool = False
    """Whether all updates are made."""

    @property
    def exit_code(self) -> int:
        """For a script: 0, or 143 when it was asked to stop."""
        return stopping.EXIT_CODE if self.stopped else 0


def train(task: Task, options: Options, backend: Backend, layout: Layout | None = None) -> Outcome:
    """Trains, from the newest complete checkpoint on, to the end or until it is asked to stop.

    Args:
        task: what is learnt from what.
        options: how.
        backend: of this rank.
        layout: of the model over the ranks; by default each has a whole one.

    Raises:
        Refusal: what no restart can mend.
        NotSaved: the last checkpoint could not be written.
    """
    stop = stopping.Stopping()
    layout = layout or Replicated()
    examples = task.examples()
    rank, ranks = layout.data_ranks(backend)
    is_arranged = bool(getattr(examples, "arranged", False))
    order = Order(len(examples), options.seed, options.batch_size, options.accumulate, rank, ranks, is_arranged)
    backend.seed(options.seed)
    model = layout.place(task.model(), backend, options)
    model.train()
    optimizer = optimizing.optimizer_of(model, options)
    scaler = precision.scaler(options)
    progress = Progress(options, layout, backend, fingerprint(task.identity, order))
    done = progress.resume(model, optimizer, scaler)
    last = min(options.steps, done + options.steps_this_run) if options.steps_this_run > 0 else options.steps
    if backend.rank == 0:
        _introduce(task, options, backend, model, order, done)
    if options.compile:
        backend.compile(model)
    metrics = Metrics(
        options.output,
        options.steps,
        order.global_batch * task.tokens_per_example,
        done + 1,
        is_silent=backend.rank != 0,
    )
    run = _Run(task, options, backend, layout, model, optimizer, scaler)
    loader: DataLoader[Batch] = DataLoader(
        examples,
        batch_sampler=order.batches(done + 1, last),
        collate_fn=_as_it_is,
        num_workers=options.workers,
        pin_memory=options.backend == "cuda",
        # Of its own: it draws a number when it begins, which would shift those of the first step after a resume.
        generator=torch.Generator(),
    )
    batches = backend.feed(loader) if done < last else iter(())
    loss, reason = math.nan, ""
    try:
        for step in range(done + 1, last + 1):
            backend.seed(step_seed(options.seed, step, rank))
            values = run.update(step, batches)
            logs = step % options.log_every == 0 or step == last
            mine = values.fetched() if logs else {}
            means: dict[str, float] = {}
            # One sum for all that the ranks have to agree on.
            asks = [float(bool(stop.reason)), float(backend.rank == 0 and progress.is_due(step))]
            stops, due, *sums = backend.sum([*asks, *mine.values()])
            if logs:
                means = {name: total / backend.world_size for name, total in zip(mine, sums, strict=True)}
                loss = means["loss"]
                _check(loss, step, progress)
            if due or stops or step == last:
                progress.save(step, model, optimizer, scaler, metrics, is_last=bool(stops) or step == last)
            if logs:
                metrics.step(step, {**means, "learning_rate": run.rate})
            if stops:
                reason = stop.reason or "another rank was asked to stop"
                done = step
                break
            done = step
    finally:
        metrics.close()
    if reason and backend.rank == 0:
        sys.stdout.write(f"stopped after step {done}: {reason}\n")
        sys.stdout.flush()
    return Outcome(done, loss, model, reason, is_complete=done == options.steps)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _introduce(task: Task, options: Options, backend: Backend, model: nn.Module, order: Order, done: int) -> None:
    name = task.identity.get("model", "model")
    ranks = "1 rank" if backend.world_size == 1 else f"{backend.world_size} ranks"
    sys.stdout.write(
        f"{name}: {parameter_count(model):,} parameters; {ranks} on {backend.name} in {options.precision}; "
        f"{order.examples:,} examples, {order.global_batch} a step; steps {done + 1} to {options.steps}\n"
    )
    sys.stdout.flush()


def _check(loss: float, step: int, progress: Progress) -> None:
    if math.isfinite(loss) or os.environ.get(ONLY_COMPILES) == "1":
        return
    stays = f"; the checkpoint of step {progress.last_saved} stays" if progress.last_saved else ""
    raise Refusal(f"the loss is {loss} at step {step}{stays}: try a lower --learning-rate, or --precision fp32")


@dataclass(frozen=True)
class _Values:
    """Of an update; on the device until they are fetched."""

    tensors: dict[str, Tensor]

    def fetched(self) -> dict[str, float]:
        """Waits for the device, once for all."""
        together = torch.stack([each.detach().float().reshape(()) for each in self.tensors.values()])
        return dict(zip(self.tensors, together.cpu().tolist(), strict=True))


class _Run:
    """The updates of a run."""

    def __init__(
        self,
        task: Task,
        options: Options,
        backend: Backend,
        layout: Layout,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self._task, self._options, self._backend, self._layout = task, options, backend, layout
        self._model, self._optimizer, self._scaler = model, optimizer, scaler
        self._updater: Optimizer = optimizer
        if scaler.is_enabled():
            self._updater = _Scaled(optimizer, scaler)
        elif precision.parameter_type(options) is torch.bfloat16 and isinstance(layout, Replicated):
            self._updater = optimizing.UpdatedInFp32(optimizer, precision.rounding(options))
        self.rate = 0.0
        """Of the last update."""

    def update(self, step: int, batches: Iterator[Batch]) -> _Values:
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
        return _Values({**sums, "gradient_norm": norm})


class _Scaled:
    """Steps in FP16: an update whose gradients overflowed is left out, and the scale lowered."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        self._optimizer, self._scaler = optimizer, scaler

    def step(self) -> None:
        self._scaler.step(self._optimizer)
        self._scaler.update()
