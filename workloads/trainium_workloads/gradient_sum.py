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
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from trainium_workloads import allreduce, steps
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.scraped import Scraped
from trainium_workloads.stopping import EXIT_CODE, Stopping

RATE = 0.1
"""Learning rate."""

Number = TypeVar("Number", int, float)


def main(arguments: list[str] | None = None) -> int:
    """Train; return 0 at the end, 143 after a request to stop, 1 when the ranks do not agree."""
    asked = _parser().parse_args(arguments)
    stopping = Stopping()
    gang = allreduce.join()
    checkpoints = Checkpoints(Path(asked.output) / "checkpoints")
    step, weight = _resume(checkpoints, gang)
    first = _First(checkpoints, asked, gang, step) if gang.rank == 0 else None
    try:
        return _train(asked, stopping, gang, first, step, weight)
    finally:
        if first is not None:
            first.close()


def _train(
    asked: argparse.Namespace,
    stopping: Stopping,
    gang: allreduce.Reduction,
    first: "_First | None",
    step: int,
    weight: float,
) -> int:
    while step < asked.steps:
        begun = time.monotonic()
        gradient = weight - (gang.rank + 1)
        # Whether to stop is summed along, so that all ranks stop after the same step.
        total, stop = gang.sum([gradient, float(bool(stopping.reason))])
        if abs(total - _expected(weight, gang.world_size)) > 1e-9:
            sys.stderr.write(f"rank {gang.rank}: the sum of step {step + 1} is {total}, which is wrong\n")
            return 1
        weight -= RATE * total / gang.world_size
        step += 1
        time.sleep(asked.step_seconds)
        if first is not None:
            first.end(step, weight, time.monotonic() - begun, is_last=bool(stop) or step == asked.steps)
        if stop:
            why = stopping.reason or "another rank was asked to"
            print(f"rank {gang.rank}: stops after step {step} ({why})", flush=True)
            return EXIT_CODE
    total = gang.sum([float(gang.rank + 1)])[0]
    agreeing = int(gang.sum([float(total == gang.world_size * (gang.world_size + 1) / 2)])[0])
    gang.close()
    print(
        f"rank {gang.rank}: the gradients' sum is {total:g}; "
        f"{agreeing} of {gang.world_size} ranks agree ({gang.backend})",
        flush=True,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gradient_sum", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=_positive, default=20, help="default: %(default)s")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="how long a step pauses; default: %(default)s")
    parser.add_argument(
        "--checkpoint-every",
        type=_not_negative(int),
        default=5,
        metavar="STEPS",
        help="0: none by steps; default: %(default)s",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=_not_negative(float),
        default=os.environ.get("TRN_CHECKPOINT_SECONDS", "0"),
        metavar="SECONDS",
        help="training between two checkpoints, 0: none by time; default: TRN_CHECKPOINT_SECONDS, else 0",
    )
    parser.add_argument(
        "--save-seconds",
        type=_not_negative(float),
        default=0.0,
        help="how long each checkpoint pauses, as if it were large; default: %(default)s",
    )
    parser.add_argument(
        "--output",
        default=os.environ.get("TRN_OUTPUT_DIR", "output"),
        help="directory of checkpoints; default: TRN_OUTPUT_DIR, else ./output",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def _not_negative(kind: type[Number]) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        number = kind(text)
        if not (0 <= number < math.inf):
            raise argparse.ArgumentTypeError(f"must be 0 or more, not {text}")
        return number

    read.__name__ = kind.__name__  # argparse names it where the text is no number
    return read


def _expected(weight: float, world_size: int) -> float:
    return world_size * weight - world_size * (world_size + 1) / 2


def _resume(checkpoints: Checkpoints, gang: allreduce.Reduction) -> tuple[int, float]:
    """Return the step and weight of the newest whole checkpoint: rank 0 reads it, and shares them by a sum."""
    step, weight = 0, 0.0
    if gang.rank == 0:
        found = checkpoints.latest(lambda line: print(line, flush=True))
        if found is not None:
            state = json.loads(found.path.read_text(encoding="utf-8"))
            if state["world_size"] == gang.world_size:
                step, weight = int(state["step"]), float(state["weight"])
                print(f"resumed from step {step} ({found.path})", flush=True)
            else:
                print(f"{found.path} is of {state['world_size']} ranks, not {gang.world_size}: starts anew", flush=True)
    shared = gang.sum([float(step), weight])
    return int(shared[0]), shared[1]


class _First:
    """Additional work of rank 0: checkpoints, and reports of each step. All ranks wait while a checkpoint is
    written."""

    def __init__(
        self, checkpoints: Checkpoints, asked: argparse.Namespace, gang: allreduce.Reduction, step: int
    ) -> None:
        self._checkpoints = checkpoints
        self._ranks = gang.world_size
        self._steps: int = asked.steps
        self._every_steps: int = asked.checkpoint_every
        self._every_seconds: float = asked.checkpoint_seconds
        self._pause_seconds: float = asked.save_seconds
        self._step = step
        self._trains_since = time.monotonic()
        self._last: dict[str, float] = {}
        # Of examples it has one in each rank, and takes it in each step.
        labels = {"backend": "cpu", "world_size": self._ranks, "examples": self._ranks}
        self._scraped = Scraped(labels, step, self._ranks, time.time())

    def end(self, step: int, weight: float, seconds: float, *, is_last: bool) -> None:
        """End a step.

        Args:
            step: from 1.
            weight: after it.
            seconds: duration of the step.
            is_last: whether no other follows in this run.
        """
        if is_last or self._is_due(step):
            self._save(step, weight)
        loss = sum((weight - target) ** 2 for target in range(1, self._ranks + 1)) / self._ranks
        steps.report(step, steps=self._steps, loss=round(loss, 9), **self._last, checkpoint_step=self._step)
        self._scraped.step(step, loss, seconds)

    def close(self) -> None:
        """Close the metrics."""
        self._scraped.close()

    def _is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due, by steps or by time."""
        by_steps = self._every_steps and step % self._every_steps == 0
        by_time = self._every_seconds and time.monotonic() - self._trains_since >= self._every_seconds
        return bool(by_steps or by_time)

    def _save(self, step: int, weight: float) -> None:
        begun = time.monotonic()
        state = {"step": step, "weight": weight, "world_size": self._ranks}

        def write(file: BinaryIO) -> None:
            file.write(json.dumps(state).encode())
            time.sleep(self._pause_seconds)

        self._checkpoints.save(step, write)
        at = round(time.time(), 3)  # before training goes on, or two checkpoints may seem nearer than they were due
        self._trains_since = time.monotonic()
        self._step = step
        self._last = {"checkpoint_time": at, "checkpoint_seconds": round(self._trains_since - begun, 3)}
        self._scraped.saved(step, at)


if __name__ == "__main__":
    sys.exit(main())
