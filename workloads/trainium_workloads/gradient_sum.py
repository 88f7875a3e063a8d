"""The smallest training that is one: all ranks add their gradients and step together, with checkpoints and resume.

Each rank pulls one parameter towards a target of its own, ``rank + 1``. Their summed gradients lead it to the mean of
the targets, and at each step every rank checks that the sum is what it must be. It needs no accelerator and no dataset;
with PyTorch the sums are made by gloo, without it over plain TCP.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import BinaryIO

from trainium_workloads import reduction, steps
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.stopping import EXIT_CODE, Stopping

RATE = 0.1
"""Learning rate."""


def main(arguments: list[str] | None = None) -> int:
    """Trains; 0 at the end, 143 when it was asked to stop, 1 when the ranks do not agree."""
    asked = _parser().parse_args(arguments)
    stopping = Stopping()
    gang = reduction.join()
    checkpoints = Checkpoints(Path(asked.output) / "checkpoints")
    step, weight = _resume(checkpoints, gang)
    saved_at = step
    while step < asked.steps:
        gradient = weight - (gang.rank + 1)
        # Whether to stop is summed along, so that all ranks stop after the same step.
        total, stop = gang.sum([gradient, float(bool(stopping.reason))])
        if abs(total - _expected(weight, gang.world_size)) > 1e-9:
            sys.stderr.write(f"rank {gang.rank}: the sum of step {step + 1} is {total}, which is wrong\n")
            return 1
        weight -= RATE * total / gang.world_size
        step += 1
        time.sleep(asked.step_seconds)
        if gang.rank == 0 and (stop or step % asked.checkpoint_every == 0 or step == asked.steps):
            _save(checkpoints, step, weight, gang.world_size)
            saved_at = step
        if gang.rank == 0:
            loss = sum((weight - target) ** 2 for target in range(1, gang.world_size + 1)) / gang.world_size
            steps.report(step, steps=asked.steps, loss=round(loss, 9), checkpoint_step=saved_at)
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
    parser.add_argument("--checkpoint-every", type=_positive, default=5, metavar="STEPS", help="default: %(default)s")
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


def _expected(weight: float, world_size: int) -> float:
    return world_size * weight - world_size * (world_size + 1) / 2


def _resume(checkpoints: Checkpoints, gang: reduction.Reduction) -> tuple[int, float]:
    """Step and weight to go on from: rank 0 reads the newest whole checkpoint, and tells the others by a sum."""
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


def _save(checkpoints: Checkpoints, step: int, weight: float, world_size: int) -> None:
    state = {"step": step, "weight": weight, "world_size": world_size}

    def write(file: BinaryIO) -> None:
        file.write(json.dumps(state).encode())

    checkpoints.save(step, write)


if __name__ == "__main__":
    sys.exit(main())
