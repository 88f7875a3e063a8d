"""Steps: a training process' reports of its progress, one JSON object a line, and figures derived from them.

Rank 0 prints ``{"step": 12, "time": 1763000000.1, "loss": 0.5}``, and may add ``steps``, ``tokens_per_second``,
``checkpoint_step``, ``checkpoint_time``, ``checkpoint_seconds`` (how long it held the training up) and
``checkpoint_beside_seconds`` (how long it was written afterwards, beside the training). torchrun puts a prefix before
each line (``[default0]:``).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainium_eks.kube.pod_text import json_object, loss, number, whole

LEAST_STALL_SECONDS = 60.0
"""A process that is quiet for less is never called stalled."""

STALL_FACTOR = 10
"""Nor one that is quiet for less than this many times the time between its lines."""

FIRST_STALL_SECONDS = 1800.0
"""Time that a run may be quiet after its first line: the second step may compile, too."""

RECENT = 20
"""Number of the last distances between lines, from which pace and stalls are computed."""


@dataclass(frozen=True)
class TrainingStep:
    """One line."""

    number: int
    time: float
    """Seconds since 1970, by the node's clock."""
    loss: float | None = None
    """May be infinite or not a number."""
    total: int | None = None
    tokens_per_second: float | None = None
    checkpoint_step: int | None = None
    checkpoint_time: float | None = None
    save_seconds: float | None = None
    """Time for which the last checkpoint held the training up."""
    beside_seconds: float = 0.0
    """Time for which it was written afterwards, beside the training."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    last: TrainingStep
    seconds_per_step: float | None
    """Median over the last lines; None before the second one."""
    left_seconds: float | None
    """Time until the last step; None where the run does not report their number."""
    quiet_seconds: float
    stalled: bool
    """Whether that is far longer than usual."""
    checkpoint_step: int | None
    """Step of the last checkpoint; None where no line names one."""
    checkpoint_seconds: float | None
    save_seconds: float | None = None
    """Time for which it held the training up; None where no line says."""
    beside_seconds: float = 0.0
    """Time for which it was written afterwards, beside the training."""

    @property
    def diverged(self) -> bool:
        """Return whether the loss is no number any more."""
        return self.last.loss is not None and not math.isfinite(self.last.loss)

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "step": self.last.number,
            "steps": self.last.total,
            "time": self.last.time,
            "loss": None if self.diverged else self.last.loss,
            "diverged": self.diverged,
            "tokensPerSecond": self.last.tokens_per_second,
            "secondsPerStep": self.seconds_per_step,
            "leftSeconds": self.left_seconds,
            "quietSeconds": round(self.quiet_seconds, 1),
            "stalled": self.stalled,
            "checkpointStep": self.checkpoint_step,
            "checkpointSeconds": self.checkpoint_seconds,
            "saveSeconds": self.save_seconds,
        }


def parse(line: str) -> TrainingStep | None:
    """Return the step that a line reports; None for any other line."""
    start = line.find("{")
    said = json_object(line[start:]) if start >= 0 and '"step"' in line else None
    if said is None:
        return None
    step, time = whole(said.get("step")), number(said.get("time"))
    if step is None or time is None:
        return None
    return TrainingStep(
        step,
        time,
        loss(said.get("loss")),
        whole(said.get("steps")),
        number(said.get("tokens_per_second")),
        whole(said.get("checkpoint_step")),
        number(said.get("checkpoint_time")),
        number(said.get("checkpoint_seconds")),
        number(said.get("checkpoint_beside_seconds")) or 0.0,
    )


def parse_all(lines: Iterable[str]) -> list[TrainingStep]:
    """Return the steps that these lines report."""
    return [step for line in lines if (step := parse(line)) is not None]


def progress(steps: Sequence[TrainingStep], now: float, *, running: bool = True) -> Progress | None:
    """Return the progress of the run that printed these steps; None for none. Where the number falls, a restart began
    anew, and earlier steps do not count. A run that has ended cannot stall."""
    if not steps:
        return None
    begun = max((at for at in range(1, len(steps)) if steps[at].number <= steps[at - 1].number), default=0)
    recent = steps[begun:][-RECENT - 1 :]
    pairs = [*itertools.pairwise(recent)]
    gaps = [max(later.time - earlier.time, 0.0) for earlier, later in pairs]
    each = [gap / (later.number - earlier.number) for gap, (earlier, later) in zip(gaps, pairs, strict=True)]
    last = steps[-1]
    pace = median(each) if each else None
    may_be_quiet = max(LEAST_STALL_SECONDS, STALL_FACTOR * median(gaps)) if gaps else FIRST_STALL_SECONDS
    quiet = max(now - last.time, 0.0)
    saved = next((step for step in reversed(steps) if step.checkpoint_step is not None), None)
    since = next((step.checkpoint_time for step in reversed(steps) if step.checkpoint_time is not None), None)
    return Progress(
        last,
        pace,
        pace * max(last.total - last.number, 0) if pace is not None and last.total is not None else None,
        quiet,
        running and quiet > may_be_quiet,
        saved.checkpoint_step if saved else None,
        max(now - since, 0.0) if since is not None else None,
        next((step.save_seconds for step in reversed(steps) if step.save_seconds is not None), None),
        last.beside_seconds,
    )
