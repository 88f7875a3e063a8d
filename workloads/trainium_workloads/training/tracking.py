"""Curves in MLflow or Weights & Biases, beside TensorBoard's. Needs the standard library, and the tracker's package.

A process beside rank 0 sends the points. No fault of a server or of a package makes the training fail; it waits for
the last points alone, for a limited time.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_LAST_SECONDS = int(_asked) if (_asked := os.environ.get("TRN_TRACKER_SECONDS", "")).isdecimal() else 20
"""Time for the points that are not sent when the training ends."""

_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "WANDB_INIT_TIMEOUT": "30"}
"""By default MLflow tries a dead address for many minutes before it gives up, and wandb for 90 seconds."""

_Run = tuple[Callable[[list[Any]], None], Callable[[str], None]]
"""Functions that log points, and that end the run with a status of MLflow's."""


class Tracker:
    """A process that sends points to one tracker, into the run whose id the output directory keeps."""

    def __init__(self, kind: str, output: Path, parameters: Mapping[str, object]) -> None:
        name = os.environ.get("TRN_JOB") or output.absolute().name
        self._process = subprocess.Popen(
            [sys.executable, "-um", __name__, kind, str(output), name, json.dumps(parameters, default=str)],
            env={**_PATIENCE, **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            # Of what the packages print, the run's address is enough.
            stdout=sys.stderr.fileno(),
            stderr=subprocess.DEVNULL,
            # SIGTERM to the rank's group is not for the tracker: points come until the last checkpoint is saved.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send a point of each curve; it is lost where the process does not keep up."""
        self._send([step, time.time(), values])

    def close(self, status: str) -> None:
        """Send the points that are left, for a limited time, and the run's status: FINISHED, KILLED or FAILED."""
        self._send(status)
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_SECONDS)
        self._process.kill()

    def _send(self, message: object) -> None:
        # A pipe takes a line of this length whole or not at all.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe.fileno(), json.dumps(message).encode() + b"\n")


def _mlflow(file: Path, known: str | None, name: str | None, parameters: Mapping[str, object]) -> _Run:
    import mlflow

    # There is a run already where a line below failed before.
    run = mlflow.active_run() or mlflow.start_run(run_id=known, run_name=name)
    file.write_text(run.info.run_id)
    if not run.data.params:
        mlflow.log_params(parameters)

    def log(points: list[Any]) -> None:
        flat = [(name, value, int(at * 1000), step) for step, at, values in points for name, value in values.items()]
        mlflow.MlflowClient().log_batch(run.info.run_id, [mlflow.entities.Metric(*each) for each in flat])

    return log, mlflow.end_run


def _wandb(file: Path, known: str | None, name: str | None, parameters: Mapping[str, object]) -> _Run:
    import wandb

    quiet = wandb.Settings(console="off", silent=True)
    run = wandb.init(id=known, name=name, config=parameters, resume="allow", dir=file.parent, settings=quiet)
    file.write_text(run.id)
    sys.stdout.write(f"View run {run.id} at: {run.url or run.dir}\n")

    def log(points: list[Any]) -> None:
        for step, _, values in points:
            run.log(values, step=step)

    return log, lambda status: run.finish(exit_code=int(status == "FAILED"))


def main(kind: str, output: Path, name: str, parameters: str) -> None:
    """Send the points that come on standard input, until its end. Points that a server does not take wait for more."""
    file, points, rest, status = output / f"{kind}-run", list[Any](), b"", ""
    run, says = None, True
    while not status:
        data = os.read(0, 1 << 16)
        *lines, rest = (rest + data).split(b"\n")
        points += map(json.loads, lines)
        if points and isinstance(points[-1], str):
            status = points.pop()
        elif not data:
            status = "KILLED"
        if status:
            signal.alarm(_LAST_SECONDS)
        try:
            if run is None:
                output.mkdir(parents=True, exist_ok=True)
                lock = file.open("a")
                # The process of a rank 0 that was killed may still be at the same run.
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = file.read_text() or None
                begin = _mlflow if kind == "mlflow" else _wandb
                run = begin(file, known, None if known else name, json.loads(parameters))
            log, end = run
            while points:
                # MLflow takes 1,000 values at once.
                log(points[:50])
                del points[:50]
            if status:
                end(status)
        except Exception as error:  # noqa: BLE001 - the packages' own, and the network's
            if says:
                why = (str(error) or type(error).__name__).splitlines()[0]
                sys.stdout.write(f"no curves in {kind} for now, the training continues: {why}\n")
            says = False
            del points[:-10_000]
    # Without the packages' own ends, which may wait for a server.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
