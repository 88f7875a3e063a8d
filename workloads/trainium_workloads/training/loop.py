"""The loop that all trainings share."""

import math
import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader

from trainium_workloads import stopping
from trainium_workloads.scraped import SeriesServer
from trainium_workloads.training import optimizing, precision
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.evaluation import Evaluation, divided
from trainium_workloads.training.layout import Layout
from trainium_workloads.training.metrics import Metrics
from trainium_workloads.training.options import ONLY_COMPILES, Options
from trainium_workloads.training.order import Order, step_seed
from trainium_workloads.training.progress import Progress, State, say
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Batch, Examples, Task, parameter_count
from trainium_workloads.training.tracking import Tracker
from trainium_workloads.training.updates import Updates


@dataclass(frozen=True)
class Outcome:
    """End of a run."""

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
        """Exit code for a script: 0, or 143 after a request to stop."""
        return stopping.EXIT_CODE if self.stopped else 0


def train(task: Task, options: Options, backend: Backend, layout: Layout | None = None) -> Outcome:
    """Train from the newest complete checkpoint on, to the end or until a request to stop.

    Args:
        task: model, examples and loss.
        options: of the training.
        backend: of this rank.
        layout: of the model over the ranks; by default each has a whole one.

    Raises:
        RefusalError: an error that no restart can mend.
        NotSavedError: the last checkpoint could not be written.
    """
    began = time.time()
    stop = stopping.Stopping()
    layout = layout or Layout()
    examples, held_out = divided(task, options)
    rank, ranks = layout.data_ranks(backend)
    evaluation = Evaluation(task, held_out, options, backend, (rank, ranks))
    is_arranged = bool(getattr(examples, "arranged", False))
    order = Order(len(examples), options.seed, options.batch_size, options.accumulate, rank, ranks, is_arranged)
    backend.seed(options.seed)
    model = layout.place(task.model(), backend, options)
    model.train()
    state = State(model, optimizing.optimizer_of(model, options), precision.scaler(options))
    progress = Progress(options, layout, backend, task.identity, order, evaluation)
    done = progress.resume(state)
    progress.check_memory(state)
    last = min(options.steps, done + options.steps_this_run) if options.steps_this_run > 0 else options.steps
    last = done if evaluation.is_over else last
    if backend.rank == 0:
        _introduce(task, options, backend, model, order, done)
    if options.compile:
        backend.compile(model)
    batches = backend.feed(_loader(examples, order, options, done + 1, last)) if done < last else iter(())
    updates = Updates(task, options, backend, layout, state)
    tokens = order.global_batch * task.tokens_per_example
    scraped = _scraped(backend, order, progress, began) if backend.rank == 0 else None
    # What only compiles makes its losses up.
    tracks = backend.rank == 0 and done < last and os.environ.get(ONLY_COMPILES) != "1"
    parameters = {**asdict(options), **task.identity}
    trackers = [Tracker(each, options.output, parameters) for each in options.trackers if tracks]
    with Metrics(options, tokens, done + 1, scraped, trackers) as metrics, closing(progress):
        loss, reason = math.nan, ""

        def evaluate(step: int, means: Mapping[str, float]) -> dict[str, float]:
            began = time.monotonic()
            values = evaluation.of(model, step)
            metrics.paused(time.monotonic() - began)
            return {**means, **values}

        if evaluation.is_due(done):  # a stop came before it
            metrics.evaluated(done, evaluate(done, {}))
            last = done if evaluation.is_over else last
        for step in range(done + 1, last + 1):
            backend.seed(step_seed(options.seed, step, order.rank))
            values = updates.make(step, batches)
            evaluates = evaluation.is_due(step)
            logs = step % options.log_every == 0 or step == last or evaluates
            mine = values() if logs else {}
            # One sum for all values on which the ranks have to agree.
            is_due = backend.rank == 0 and progress.is_due(step)
            asks = [float(each) for each in (bool(stop.reason), is_due, progress.is_writing)]
            stops, due, writing, *sums = backend.sum([*asks, *mine.values()])
            means = {name: total / backend.world_size for name, total in zip(mine, sums, strict=True)}
            if not writing:
                progress.settle(metrics)
            if logs:
                loss = means["loss"]
                _check(means, step, progress, state, metrics)
            if evaluates and not stops:
                means = evaluate(step, means)
            is_last = bool(stops) or step == last or evaluation.is_over
            if (due and not writing) or is_last or evaluation.state["best_step"] == step:
                progress.save(step, state, metrics, is_last=is_last)
            if logs:
                metrics.step(step, {**means, "learning_rate": updates.rate})
            done = step
            if stops:
                reason = stop.reason or "another rank was asked to stop"
            if is_last:
                break
        is_complete = metrics.is_complete = not reason and (done == options.steps or evaluation.is_over)
    if reason and backend.rank == 0:
        say(f"stopped after step {done}: {reason}")
    if is_complete and options.export_from == "best":
        done = progress.load_best(state, done)
    return Outcome(done, loss, model, reason, is_complete)


def _loader(examples: Examples, order: Order, options: Options, first: int, last: int) -> "DataLoader[Batch]":
    """Return this rank's micro-batches from one step to another, both included."""
    return DataLoader(
        examples,
        batch_sampler=order.batches(first, last),
        collate_fn=_identity,
        num_workers=options.workers,
        pin_memory=options.backend == "cuda",
        # A separate one: it draws a number at its start, which would shift the first step's numbers after a resume.
        generator=torch.Generator(),
    )


def _identity(batch: Batch) -> Batch:
    return batch


def _introduce(task: Task, options: Options, backend: Backend, model: nn.Module, order: Order, done: int) -> None:
    name = task.identity.get("model", "model")
    ranks = "1 rank" if backend.world_size == 1 else f"{backend.world_size} ranks"
    say(
        f"{name}: {parameter_count(model):,} parameters; {ranks} on {backend.name} in {options.precision}; "
        f"{order.examples:,} examples, {order.global_batch} a step; steps {done + 1} to {options.steps}"
    )


def _scraped(backend: Backend, order: Order, progress: Progress, began: float) -> SeriesServer:
    labels = {"backend": backend.name, "world_size": backend.world_size, "examples": order.examples}
    scraped = SeriesServer(labels, progress.last_saved, order.global_batch, began)
    if progress.resumed_from is not None:
        scraped.saved(progress.last_saved, progress.resumed_from.path.stat().st_mtime)
    return scraped


def _check(means: Mapping[str, float], step: int, progress: Progress, state: State, metrics: Metrics) -> None:
    # In FP16 gradients may overflow: that update was left out.
    judged = ("loss",) if state.scaler.is_enabled() else ("loss", "gradient_norm")
    wrong = [f"the {name.replace('_', ' ')} is {means[name]}" for name in judged if not math.isfinite(means[name])]
    if not wrong or os.environ.get(ONLY_COMPILES) == "1":
        return
    progress.settle(metrics)
    stays = f"; the checkpoint of step {progress.last_saved} stays" if progress.last_saved else ""
    raise RefusalError(f"{wrong[0]} at step {step}{stays}: try a lower --learning-rate, or --precision fp32")
