"""Whether the goodput model says what a job that is killed again and again really gets done.

Run by hand on an idle machine, for about a quarter of an hour: ``python benchmarks/faults.py``. It brings up a local
cloud for itself with a real Volcano and runs gradient-sum on two nodes, whose checkpoints each take a fixed time. One
job measures a step, a checkpoint and a restart. A second one saves as often as the model says, and ``kill -9`` hits
one of its ranks at seeded times. Its useful share is the steps that were kept, times what a step takes, over the time
that passed; the model is told what the first job measured, and nothing of the second. Exit code 1 when they are more
than 5 % apart.
"""

import argparse
import itertools
import json
import math
import os
import random
import re
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud import local_cloud, ranks, step_times, trn, until

from trainium_eks.model.sizing import goodput
from trainium_eks.model.sizing.goodput import Run

BAR = 0.05
"""Most that the model may be wrong by, as a share of what was measured."""
WORLD = 2
FOREVER = 10_000_000
"""Steps of a job that is cancelled when enough has been seen."""
CALIBRATION_SECONDS = 6.0
"""Training between two kills of the first job."""


@dataclass(frozen=True)
class Calibration:
    """What the first job measured, in seconds."""

    step: float
    save: float
    down: tuple[float, ...]
    """From each kill until all ranks were there again."""
    restart: tuple[float, ...]
    """From there until the first new step began."""


@dataclass(frozen=True)
class Kept:
    """What the second job got done from the first new step after one fault to that after another, much later."""

    steps: int
    """That are in checkpoints."""
    seconds: float

    def useful_fraction(self, step_seconds: float) -> float:
        """Share of the time."""
        return self.steps * step_seconds / self.seconds


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mean-seconds", type=float, default=30, help="between faults; default: %(default)s")
    parser.add_argument("--faults", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--save-seconds", type=float, default=0.5, help="of a checkpoint; default: %(default)s")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="default: %(default)s")
    parser.add_argument(
        "--interval-seconds", type=float, nargs="*", default=[0.0], help="one run each; 0, the default: the best"
    )
    parser.add_argument("--seed", type=int, default=0, help="of times and ranks; default: %(default)s")
    parser.add_argument("--image", default="local/python", help="default: %(default)s")
    asked = parser.parse_args()
    random.seed(asked.seed)
    with local_cloud("faults") as project:
        known = _calibrate(project, asked)
        print(
            f"a step {known.step:.3f} s, a checkpoint {known.save:.2f} s, "
            f"down {statistics.mean(known.down):.2f} s, start {statistics.mean(known.restart):.2f} s",
            flush=True,
        )
        held = [_compare(project, known, interval, asked) for interval in asked.interval_seconds]
    return 0 if all(held) else 1


def fault_times(mean_seconds: float, count: int) -> list[float]:
    """Times between faults, as many: the exponential distribution in equal parts, one time of each, in random order.

    So few times drawn freely would have a mean that is off by a fifth; these have the distribution's. The first is one
    of the middle, which leaves time to read the log.
    """
    parts = [-math.log(1 - (part + 0.5) / count) for part in range(count)]
    scale = mean_seconds / statistics.mean(parts)
    middle = parts.pop(count // 2)
    random.shuffle(parts)
    return [part * scale for part in (middle, *parts)]


def expected(known: Calibration, mean_seconds: float, interval_seconds: float) -> float:
    """The model's useful share. A job saves at the end of a step, so the interval is whole steps."""
    whole = math.ceil(interval_seconds / known.step - 1e-9) * known.step
    return goodput.useful_fraction(_run(known, mean_seconds), whole)


def holds(measured: float, model: float) -> bool:
    """Whether the model is near enough."""
    return abs(model / measured - 1) <= BAR


def costs(log: str) -> tuple[float, float]:
    """What a step and a checkpoint take by the lines of a log: seconds."""
    lines = [json.loads(line[line.index("{") :]) for line in log.splitlines() if '{"step"' in line]
    plain, saving = [], []
    for before, after in itertools.pairwise(lines):
        kind = plain if after["checkpoint_step"] == before["checkpoint_step"] else saving
        kind.append(after["time"] - before["time"])
    step = statistics.mean(plain)
    return step, statistics.mean(saving) - step


def _run(known: Calibration, mean_seconds: float) -> Run:
    return Run(mean_seconds, known.save, statistics.mean(known.down), statistics.mean(known.restart))


def _calibrate(project: Path, asked: argparse.Namespace) -> Calibration:
    job = "calibration"
    _submit(project, job, asked, "--checkpoint-every", "20")
    running = until("all ranks", lambda: _all(job, []))
    down, restart, logs = [], [], []
    for _ in range(6):
        time.sleep(CALIBRATION_SECONDS)
        logs.append(trn(project, "logs", job))
        killed = _kill(running)
        running = until("all ranks", lambda gone=running: _all(job, gone))
        there = time.time()
        down.append(there - killed)
        restart.append(_first_step(project, job) - there)
    steps, saves = zip(*map(costs, logs), strict=True)
    trn(project, "cancel", job)
    until("the end of the ranks", lambda: True if not ranks(job) else None)
    step = statistics.mean(steps)
    return Calibration(step, statistics.mean(saves), tuple(down), tuple(each - step for each in restart))


def _compare(project: Path, known: Calibration, interval: float, asked: argparse.Namespace) -> bool:
    """One run with faults beside the model; whether they agree."""
    seconds = interval or round(goodput.best_seconds(_run(known, asked.mean_seconds)), 1)
    kept = _killed_run(project, seconds, asked)
    measured = kept.useful_fraction(known.step)
    model = expected(known, asked.mean_seconds, seconds)
    good = holds(measured, model)
    print(
        f"every {seconds:g} s, {asked.faults} faults {asked.mean_seconds:g} s apart: {kept.steps} steps kept in "
        f"{kept.seconds:.0f} s, {100 * measured:.1f} % useful; the model says {100 * model:.1f} % "
        f"({100 * (model / measured - 1):+.1f} %)  {'ok' if good else 'OFF'}",
        flush=True,
    )
    return good


def _killed_run(project: Path, interval_seconds: float, asked: argparse.Namespace) -> Kept:
    """From the first new step after one fault, which does not count, to that after the last."""
    job = f"faults-{interval_seconds:g}".replace(".", "-")
    _submit(project, job, asked, "--checkpoint-every", "0", "--checkpoint-seconds", str(interval_seconds))
    running = until("all ranks", lambda: _all(job, []))
    begin: tuple[int, float] | None = None
    for pause in (2 * interval_seconds, *fault_times(asked.mean_seconds, asked.faults)):
        due = time.time() + pause
        if pause != 2 * interval_seconds and begin is None:
            begin = _resumed(project, job)
        time.sleep(max(due - time.time(), 0))
        _kill(running)
        running = until("all ranks", lambda gone=running: _all(job, gone))
    assert begin is not None
    end = _resumed(project, job)
    trn(project, "cancel", job)
    until("the end of the ranks", lambda: True if not ranks(job) else None)
    return Kept(end[0] - begin[0], end[1] - begin[1])


def _submit(project: Path, job: str, asked: argparse.Namespace, *options: str) -> None:
    trn(
        *(project, "train", "--example", "gradient-sum", "--name", job, "--image", asked.image, "--detach"),
        *("--retries", "1000", "--", "--steps", str(FOREVER), "--step-seconds", str(asked.step_seconds)),
        *("--save-seconds", str(asked.save_seconds), *options),
    )


def _all(job: str, gone: Sequence[int]) -> list[int] | None:
    """All ranks, once none is of those that were killed with their gang."""
    found = ranks(job)
    return found if len(found) == WORLD and not {*found} & {*gone} else None


def _kill(running: Sequence[int]) -> float:
    """Kills one; when."""
    os.kill(random.choice(running), signal.SIGKILL)
    return time.time()


def _first_step(project: Path, job: str) -> float:
    """When the first step of the present pods ended."""
    return until("a step", lambda: next(iter(step_times(trn(project, "logs", job))), None))


def _resumed(project: Path, job: str) -> tuple[int, float]:
    """The step that the present pods went on from, and when their first one ended."""
    first = _first_step(project, job)
    found = re.search(r"resumed from step (\d+)", trn(project, "logs", job))
    return int(found[1]) if found else 0, first


if __name__ == "__main__":
    sys.exit(main())
