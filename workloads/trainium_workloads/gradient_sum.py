"""A minimal training: all ranks add their gradients and step together, with checkpoints and resume.

Each rank pulls one parameter towards the target ``rank + 1``. Their summed gradients lead it to the mean of the
targets, and at each step every rank checks the sum. It needs no accelerator and no dataset; with PyTorch the sums are
made by gloo, without it over plain TCP.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

from trainium_workloads import allreduce, steps
from trainium_workloads.checkpoint import Checkpoints, sealed
from trainium_workloads.scraped import SeriesServer
from trainium_workloads.stopping import EXIT_CODE, Stopping

_STATE = "state.json"


def main(arguments: list[str] | None = None) -> int:
    """Train; return 0 at the end, 143 after a request to stop, 1 when the ranks do not agree."""
    asked = _parser().parse_args(arguments)
    stopping = Stopping()
    gang = allreduce.join()
    checkpoints = Checkpoints(Path(asked.output) / "checkpoints")
    step, weight = _resume(checkpoints, gang)
    if step and asked.steps_after_resume:
        asked.steps = min(asked.steps, step + asked.steps_after_resume)
    first = _First(checkpoints, asked, gang.world_size, step) if gang.rank == 0 else None
    try:
        return _train(asked, stopping, gang, first, step, weight)
    finally:
        if first is not None:
            first.scraped.close()


def _train(
    asked: argparse.Namespace,
    stopping: Stopping,
    gang: allreduce.Reduction,
    first: "_First | None",
    step: int,
    weight: float,
) -> int:
    targets = gang.world_size * (gang.world_size + 1) / 2
    while step < asked.steps:
        begun = time.monotonic()
        # Whether to stop is summed along, so that all ranks stop after the same step.
        total, stop = gang.sum([weight - (gang.rank + 1), float(bool(stopping.reason))])
        if abs(total - (gang.world_size * weight - targets)) > 1e-9:
            sys.stderr.write(f"rank {gang.rank}: the sum of step {step + 1} is {total}, which is wrong\n")
            return 1
        weight -= asked.rate * total / gang.world_size
        step += 1
        time.sleep(asked.step_seconds)
        if first is not None:
            first.end(step, weight, time.monotonic() - begun, is_last=bool(stop) or step == asked.steps)
        if stop:
            why = stopping.reason or "another rank was asked to"
            print(f"rank {gang.rank}: stops after step {step} ({why})", flush=True)
            return EXIT_CODE
    total = gang.sum([float(gang.rank + 1)])[0]
    agreeing = int(gang.sum([float(total == targets)])[0])
    gang.close()
    print(
        f"rank {gang.rank}: the gradients' sum is {total:g}; "
        f"{agreeing} of {gang.world_size} ranks agree ({gang.backend})",
        flush=True,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gradient_sum", description=__doc__.partition("\n")[0])

    def add(name: str, default: str | int, text: str) -> None:
        kind = int if isinstance(default, int) else _amount
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{text}; default: %(default)s")

    add("--steps", 20, "updates of the whole training")
    add("--steps-after-resume", 0, "updates after a resume from a checkpoint, at most --steps in all; 0: no such end")
    add("--rate", "0.1", "learning rate")
    add("--step-seconds", "0.1", "pause of a step")
    add("--checkpoint-every", 5, "steps between two checkpoints, 0: none by steps")
    by_time = os.environ.get("TRN_CHECKPOINT_SECONDS", "0")
    add("--checkpoint-seconds", by_time, "training between two checkpoints, 0: none by time (TRN_CHECKPOINT_SECONDS)")
    add("--save-seconds", "0", "pause of each checkpoint, as if it were large")
    output = os.environ.get("TRN_OUTPUT_DIR", "output")
    parser.add_argument("--output", default=output, help="directory of checkpoints; default: TRN_OUTPUT_DIR, ./output")
    return parser


def _amount(text: str) -> float:
    amount = float(text)
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {text}")
    return amount


def _resume(checkpoints: Checkpoints, gang: allreduce.Reduction) -> tuple[int, float]:
    """Return the step and weight of the newest whole checkpoint: rank 0 reads it, and shares them by a sum."""
    step, weight = 0, 0.0
    found = checkpoints.latest(lambda line: print(line, flush=True)) if gang.rank == 0 else None
    if found is not None:
        state = json.loads((found.path / _STATE).read_text(encoding="utf-8"))
        if state["world_size"] == gang.world_size:
            step, weight = int(state["step"]), float(state["weight"])
            print(f"resumed from step {step} ({found.path})", flush=True)
        else:
            print(
                f"{found.path} is of {state['world_size']} ranks, not {gang.world_size}: starts over",
                flush=True,
            )
    shared = gang.sum([float(step), weight])
    return int(shared[0]), shared[1]


class _First:
    """Additional work of rank 0: checkpoints, and reports of each step. All ranks wait while a checkpoint is
    written."""

    def __init__(self, checkpoints: Checkpoints, asked: argparse.Namespace, ranks: int, step: int) -> None:
        self._checkpoints, self._asked, self._ranks = checkpoints, asked, ranks
        self._saved_step = step
        self._trains_since = time.monotonic()
        self._last: dict[str, float] = {}
        # Of examples it has one in each rank, and takes it in each step.
        labels = {"backend": "cpu", "world_size": ranks, "examples": ranks}
        self.scraped = SeriesServer(labels, step, ranks, time.time())

    def end(self, step: int, weight: float, seconds: float, *, is_last: bool) -> None:
        """End a step that took this time; save if a checkpoint is due, or no other step follows in this run."""
        every, each_seconds = self._asked.checkpoint_every, self._asked.checkpoint_seconds
        by_time = each_seconds and time.monotonic() - self._trains_since >= each_seconds
        if is_last or by_time or (every and step % every == 0):
            self._save(step, weight)
        loss = sum((weight - target) ** 2 for target in range(1, self._ranks + 1)) / self._ranks
        told = {"loss": round(loss, 9), **self._last, "checkpoint_step": self._saved_step}
        steps.report(step, steps=self._asked.steps, **told)
        self.scraped.step(step, loss, seconds)

    def _save(self, step: int, weight: float) -> None:
        begun = time.monotonic()
        state = self._checkpoints.begin(step) / _STATE
        state.write_text(json.dumps({"step": step, "weight": weight, "world_size": self._ranks}), encoding="utf-8")
        time.sleep(self._asked.save_seconds)
        self._checkpoints.complete(step, {_STATE: sealed(state)})
        at = round(time.time(), 3)  # before training goes on, or two checkpoints may seem nearer than they were due
        self._trains_since = time.monotonic()
        self._saved_step = step
        self._last = {"checkpoint_time": at, "checkpoint_seconds": round(self._trains_since - begun, 3)}
        self.scraped.saved(step, at)


if __name__ == "__main__":
    sys.exit(main())
