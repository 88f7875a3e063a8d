"""Progress of a training: its checkpoints, the time of the next, and a test of their fitness."""

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from trainium_workloads.checkpoint import Checkpoint, Checkpoints
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.evaluation import Evaluation
from trainium_workloads.training.host_memory import shortage
from trainium_workloads.training.layout import Facts, Layout, Saved, copied, facts_of
from trainium_workloads.training.metrics import Metrics
from trainium_workloads.training.options import ONLY_COMPILES, Options
from trainium_workloads.training.order import Order
from trainium_workloads.training.refusal import NotSavedError, RefusalError, first_line
from trainium_workloads.training.task import Fact

_SETTINGS: Final = (
    *("steps", "learning_rate", "warmup_steps", "schedule"),
    *("weight_decay", "clip", "precision", "stochastic_rounding"),
)


@dataclass(frozen=True)
class State:
    """State that changes during a training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


class Progress:
    """The checkpoints of a training; the same calls in all ranks. One at a time is written, by a thread of each rank:
    the training waits until its state is copied in the host's memory, and for the last one until it is complete."""

    def __init__(
        self,
        options: Options,
        layout: Layout,
        backend: Backend,
        identity: Mapping[str, Fact],
        order: Order,
        evaluation: Evaluation,
    ) -> None:
        self._options, self._layout, self._backend, self._order = options, layout, backend, order
        self._evaluation = evaluation
        self._identity = {**identity, "sharding": layout.sharding, "optimizer": options.optimizer}
        self._checkpoints = Checkpoints(options.output / "checkpoints", options.keep)
        self._saved_at = time.monotonic()
        self._thread = ThreadPoolExecutor(1, initializer=backend.enter_thread)
        self._writing: Future[Checkpoint] | None = None
        self._step_written = 0
        self._is_owed = False
        self._copies = options.async_checkpoint and bool(options.checkpoint_every or options.checkpoint_seconds)
        self._copy: Saved = {}
        self.last_saved = 0
        """Step of the newest complete checkpoint; 0 without one."""
        self.resumed_from: Checkpoint | None = None
        """Checkpoint from which the run resumed; known in rank 0."""

    def resume(self, state: State) -> int:
        """Load the newest complete checkpoint into the state; return its step, 0 without one. Refusal: it is of another
        training (the message names the differences), or all checkpoints are damaged."""
        found: Checkpoint | None = None
        if self._backend.rank == 0:
            passed_over: list[str] = []
            found = self._checkpoints.latest(passed_over.append)
            for line in passed_over:
                say(line)
            if passed_over and found is None:
                # Weeks of training are not silently started over.
                raise RefusalError("no checkpoint is whole: restore one, or start over with another --output")
        path = self._backend.share(str(found.path) if found else "")
        if not path:
            return 0
        if not self._options.resume:
            raise RefusalError(f"{path} is there: --no-resume needs an --output without checkpoints, or remove it")
        facts = facts_of(Path(path))
        if wrong := differences(facts, self._identity, self._order):
            raise RefusalError(
                f"{path} is of another training: {'; '.join(wrong)}. Or start over with another --output"
            )
        self._layout.load(Path(path), state.model, state.optimizer)
        self.resumed_from = found
        state.scaler.load_state_dict(facts["scaler"])
        other = self._evaluation.resume(facts.get("evaluation", {}))
        self.last_saved = int(facts["step"])
        if self._backend.rank == 0:
            say(f"resumed from step {self.last_saved} ({path})")
            was, now = facts.get("options", {}), _settings(self._options)
            changed = [f"{name} {now[name]}, not {each}" for name, each in was.items() if now[name] != each]
            for line in (other, f"the next steps are made with {'; '.join(changed)}" if changed else ""):
                if line:
                    say(line)
        return self.last_saved

    def check_memory(self, state: State) -> None:
        """Say before the first step that there is too little memory for a copy of the state; checkpoints are written at
        once then."""
        # On a CPU the first update makes gradients and moments, too, which take as much again.
        times = 2 if self._backend.device.type == "cpu" else 1
        needed = times * self._layout.saved_bytes(state.model, self._backend)
        if self._copies and (short := shortage(self._backend, needed)):
            self._write_at_once(short if self._backend.rank == 0 else "")

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is to be saved after this step, or was after an earlier one, when another was
        still written."""
        every, seconds = self._options.checkpoint_every, self._options.checkpoint_seconds
        by_step = bool(every) and step % every == 0
        by_time = bool(seconds) and time.monotonic() - self._saved_at >= seconds
        self._is_owed = self._is_owed or by_step or by_time
        return self._is_owed

    @property
    def is_writing(self) -> bool:
        """Whether this rank writes a checkpoint. An error that no rank expects is raised: the others wait for this
        one."""
        if self._writing is None or not self._writing.done():
            return self._writing is not None
        error = self._writing.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        return False

    def save(self, step: int, state: State, metrics: Metrics, *, is_last: bool) -> None:
        """Begin a checkpoint, once the checkpoint before is settled; the last of a training is complete afterwards, or
        NotSavedError is raised."""
        self._is_owed = False
        if os.environ.get(ONLY_COMPILES) == "1":
            return
        began = time.monotonic()
        self.settle(metrics)
        if step == self.last_saved:
            return
        of_data = {"examples": self._order.examples, "seed": self._order.seed, "global_batch": self._order.global_batch}
        facts = {"step": step, "identity": self._identity, **of_data, "scaler": state.scaler.state_dict()}
        facts |= {"evaluation": dict(self._evaluation.state), "options": _settings(self._options)}
        self._checkpoints.best_step = self._evaluation.state["best_step"]
        saved = self._layout.state(state.model, state.optimizer, self._backend)
        beside = not is_last and self._can_copy(saved)
        saved = self._copy if beside else self._layout.to_write(saved, self._backend)
        write = functools.partial(self._layout.save, self._checkpoints, step, saved, facts, self._backend)
        self._step_written, self._writing = step, self._thread.submit(write) if beside else _at_once(write)
        self._saved_at = time.monotonic()
        metrics.stood_still(self._saved_at - began)
        if not beside:
            self.settle(metrics, is_last=is_last)

    def settle(self, metrics: Metrics, *, is_last: bool = False) -> None:
        """Wait for the checkpoint that is being written. A failure is printed, and the training continues, unless the
        checkpoint was the last: NotSavedError."""
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        try:
            saved = writing.result()
        except OSError as error:
            stays = f"the one of step {self.last_saved} stays" if self.last_saved else "there is none"
            line = f"the checkpoint of step {self._step_written} could not be saved ({error}); {stays}"
            if is_last:
                raise NotSavedError(line) from error
            if self._backend.rank == 0:
                say(line)
        else:
            self.last_saved = self._step_written
            metrics.saved(saved)

    def close(self) -> None:
        """Wait for a checkpoint that is still written when a training fails, and print whether it is complete."""
        if self._writing is not None:
            error = self._writing.exception()
            became = "is complete" if error is None else f"could not be saved ({first_line(error)})"
            sys.stderr.write(f"the checkpoint of step {self._step_written} {became}\n")
        self._thread.shutdown()

    def load_best(self, state: State, step: int) -> int:
        """Load the checkpoint of the best step after the last one, and return the step of the state: the last one
        without an evaluation, or where the best is damaged."""
        best = self._evaluation.state
        if best["best_step"] in (0, step):
            return step
        found = self._checkpoints.at(best["best_step"]) if self._backend.rank == 0 else None
        path = self._backend.share(str(found or ""))
        if self._backend.rank == 0:
            taken = "its checkpoint is taken" if path else "its checkpoint is damaged, and the last is taken"
            say(f"the best step is {best['best_step']}, with an eval_loss of {best['best_loss']:.5g}: {taken}")
        if not path:
            return step
        self._layout.load(Path(path), state.model, state.optimizer)
        return int(best["best_step"])

    def _can_copy(self, saved: Saved) -> bool:
        """Copy this rank's part of a checkpoint; return whether all ranks have a copy."""
        if not self._copies:
            return False
        fault = ""
        try:
            self._backend.end_update()
            self._copy = copied(saved, self._copy)
        except (MemoryError, RuntimeError) as error:
            fault = f"the state could not be copied ({first_line(error)})"
        if self._backend.any(bool(fault)):
            self._write_at_once(fault)
        return self._copies

    def _write_at_once(self, reason: str) -> None:
        self._copies, self._copy = False, {}
        if reason:
            say(f"{reason}: checkpoints are written at once, and the training waits for them")


def _at_once(write: Callable[[], Checkpoint]) -> "Future[Checkpoint]":
    end: Future[Checkpoint] = Future()
    try:
        end.set_result(write())
    except OSError as error:
        end.set_exception(error)
    return end


def _settings(options: Options) -> dict[str, Any]:
    """Return the options that decide the next steps, and may be others at a resume."""
    return {each: getattr(options, each) for each in _SETTINGS}


def differences(theirs: Facts, identity: Mapping[str, Fact], order: Order) -> list[str]:
    """Return the differences between a checkpoint and the training that is to go on from it, with their remedies."""
    there = theirs["identity"]
    later = {"data", "optimizer"} - {*there}  # checkpoints of earlier versions lack them
    wrong = [
        f"its {name} is {there.get(name)}, here {identity.get(name)}"
        for name in sorted({*there, *identity} - later)
        if there.get(name) != identity.get(name)
    ]
    if theirs["examples"] != order.examples:
        wrong.append(f"its data had {theirs['examples']} examples, here there are {order.examples}")
    if theirs["seed"] != order.seed:
        wrong.append(f"it has --seed {theirs['seed']}, here it is {order.seed}")
    batch = int(theirs["global_batch"])
    if batch != order.global_batch:
        micro, rest = divmod(batch, order.batch_size * order.ranks)
        mends = f"pass --accumulate {micro}" if not rest else "choose --batch-size and --accumulate so that they agree"
        wrong.append(f"it took {batch} examples a step, this run takes {order.global_batch}: {mends}")
    return wrong


def say(line: str) -> None:
    """Print a line at once; for rank 0."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
