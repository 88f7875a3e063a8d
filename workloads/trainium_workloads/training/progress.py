"""Progress of a training: its checkpoints, the time of the next, and a test of their fitness."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainium_workloads.checkpoint import Checkpoint, Checkpoints
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.layout import Facts, Layout, facts_of
from trainium_workloads.training.metrics import Metrics
from trainium_workloads.training.options import Options
from trainium_workloads.training.order import Order
from trainium_workloads.training.refusal import NotSavedError, RefusalError
from trainium_workloads.training.task import Fact

ONLY_COMPILES = "NEURON_EXTRACT_GRAPHS_ONLY"
"""Set by ``neuron_parallel_compile``: graphs are traced and compiled, and their results are made up."""


@dataclass(frozen=True)
class State:
    """State that changes during a training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


class Progress:
    """The checkpoints of a training; the same calls in all ranks."""

    def __init__(
        self, options: Options, layout: Layout, backend: Backend, identity: Mapping[str, Fact], order: Order
    ) -> None:
        self._options, self._layout, self._backend, self._order = options, layout, backend, order
        self._identity = {**identity, "sharding": layout.sharding}
        self._checkpoints = Checkpoints(options.output / "checkpoints", options.keep)
        self._saved_at = time.monotonic()
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
                # Weeks of training are not begun anew by themselves.
                raise RefusalError("no checkpoint is whole: restore one, or begin anew with another --output")
        path = self._backend.share(str(found.path) if found else "")
        if not path:
            return 0
        if not self._options.resume:
            raise RefusalError(f"{path} is there: --no-resume needs an --output without checkpoints, or remove it")
        facts = facts_of(Path(path))
        if wrong := differences(facts, self._identity, self._order):
            raise RefusalError(
                f"{path} is of another training: {'; '.join(wrong)}. Or begin anew with another --output"
            )
        self._layout.load(Path(path), state.model, state.optimizer)
        self.resumed_from = found
        state.scaler.load_state_dict(facts["scaler"])
        self.last_saved = int(facts["step"])
        if self._backend.rank == 0:
            say(f"resumed from step {self.last_saved} ({path})")
        return self.last_saved

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is to be saved after this step."""
        every, seconds = self._options.checkpoint_every, self._options.checkpoint_seconds
        by_step = bool(every) and step % every == 0
        return by_step or (bool(seconds) and time.monotonic() - self._saved_at >= seconds)

    def save(self, step: int, state: State, metrics: Metrics, *, is_last: bool) -> None:
        """Save a checkpoint. A failure is printed, and the training continues, unless the checkpoint was the last:
        NotSavedError."""
        if step == self.last_saved or os.environ.get(ONLY_COMPILES) == "1":
            return
        began = time.monotonic()
        of_data = {"examples": self._order.examples, "seed": self._order.seed, "global_batch": self._order.global_batch}
        facts = {"step": step, "identity": self._identity, **of_data, "scaler": state.scaler.state_dict()}
        try:
            saved = self._layout.save(self._checkpoints, step, state.model, state.optimizer, facts, self._backend)
        except OSError as error:
            stays = f"the one of step {self.last_saved} stays" if self.last_saved else "there is none"
            line = f"the checkpoint of step {step} could not be saved ({error}); {stays}"
            if is_last:
                raise NotSavedError(line) from error
            if self._backend.rank == 0:
                say(line)
        else:
            self.last_saved = step
            metrics.saved(saved, time.monotonic() - began)
        self._saved_at = time.monotonic()


def differences(theirs: Facts, identity: Mapping[str, Fact], order: Order) -> list[str]:
    """Return the differences between a checkpoint and the training that is to go on from it, with their remedies."""
    there = theirs["identity"]
    wrong = [
        f"its {name} is {there.get(name)}, here {identity.get(name)}"
        for name in sorted({*there, *identity})
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
