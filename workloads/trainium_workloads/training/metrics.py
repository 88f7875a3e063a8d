"""Metrics of a training: a JSON line a step on standard output, curves for TensorBoard and trackers, and series
for a monitoring system. Of rank 0."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainium_workloads.checkpoint import Checkpoint
from trainium_workloads.scraped import SeriesServer
from trainium_workloads.steps import report
from trainium_workloads.training.options import Options
from trainium_workloads.training.tracking import Tracker


class Metrics:
    """The step lines and curves of a run. Curves are in ``tensorboard`` below the output; points of an earlier run from
    ``first`` on are left out. ``tokens_per_step`` is over all ranks; ``scraped`` None in ranks other than 0, which
    print nothing."""

    def __init__(
        self, options: Options, tokens_per_step: int, first: int, scraped: SeriesServer | None, trackers: list[Tracker]
    ) -> None:
        self._steps = options.steps
        self._tokens_per_step = tokens_per_step
        self._scraped = scraped
        self._trackers = trackers
        self._writer = None if scraped is None else _writer(options.output / "tensorboard", first)
        self._before = (first - 1, time.monotonic())
        self._saved_at = time.monotonic()
        self._saved: dict[str, float] = {}
        self.is_complete = False
        """Whether the training is complete at the end of the run."""
        self._stood_still, self._went_on = 0.0, self._saved_at

    def stood_still(self, seconds: float) -> None:
        """Record that the training waited for a checkpoint until now. The time is no part of a step's."""
        self._stood_still, self._went_on = seconds, time.monotonic()
        self.paused(seconds)

    def paused(self, seconds: float) -> None:
        """Leave a checkpoint's or an evaluation's time out of the step's."""
        step, reported = self._before
        self._before = (step, reported + seconds)

    def saved(self, checkpoint: Checkpoint) -> None:
        """Record that this checkpoint is complete. All that was computed since the training went on is not saved."""
        seconds, beside = self._stood_still, time.monotonic() - self._went_on
        self._saved_at, at = self._went_on, round(time.time() - beside, 3)
        self._saved = {"checkpoint_step": checkpoint.step, "checkpoint_time": at}
        self._saved["checkpoint_seconds"] = round(seconds, 4)
        self._saved["checkpoint_beside_seconds"] = round(beside, 4)
        if self._scraped is not None:
            self._scraped.saved(checkpoint.step, at)
        self._curve({"checkpoint_seconds": seconds}, checkpoint.step)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Write a step line, and a point of each curve."""
        if self._scraped is None:
            return
        now = time.monotonic()
        earlier, at = self._before
        seconds = (now - at) / max(step - earlier, 1)
        self._before = (step, now)
        rates = {
            "step_seconds": round(seconds, 5),
            "tokens_per_second": round(self._tokens_per_step / seconds, 1) if seconds > 0 else 0.0,
            "checkpoint_age_seconds": round(now - self._saved_at, 1),
        }
        self._scraped.step(step, values["loss"], seconds, rates["tokens_per_second"])
        if "eval_loss" in values:
            self._scraped.evaluated(values["eval_loss"])
        report(step, steps=self._steps, **values, **rates, **self._saved)
        self._curve({**values, **rates}, step)

    def evaluated(self, step: int, values: Mapping[str, float]) -> None:
        """Write the line of an evaluation of an earlier run's step."""
        if self._scraped is not None:
            self._scraped.evaluated(values["eval_loss"])
            report(step, steps=self._steps, **values, **self._saved)
            self._curve(values, step)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Write the buffered points, and end the series."""
        for tracker in self._trackers:
            tracker.close("FAILED" if error else "FINISHED" if self.is_complete else "KILLED")
        if self._writer is not None:
            self._writer.close()
        if self._scraped is not None:
            self._scraped.close()

    def _curve(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        for tracker in self._trackers:
            tracker.log(step, values)


def _writer(directory: Path, first_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        sys.stderr.write("no curves for TensorBoard: this image lacks the package tensorboard\n")
        return None
    try:
        return SummaryWriter(str(directory), purge_step=first_step, flush_secs=10)
    except OSError as error:
        sys.stderr.write(f"no curves for TensorBoard: {directory} cannot be written ({error.strerror})\n")
        return None
