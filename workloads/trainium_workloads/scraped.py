"""Metrics of a running training for a monitoring system: Prometheus' text format over HTTP. Standard library only.

``TRN_METRICS_PORT`` names the port; without it nothing is served. Rank 0 of the world serves and no other, so a
training is one target, however many ranks it has. No error here slows a training or ends it.
"""

import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Literal, NamedTuple

PORT = "TRN_METRICS_PORT"
"""Variable with the port; empty or 0 for none."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""

_NO_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class Series(NamedTuple):
    """A metric of a training."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str


SERIES = (
    Series("trn_training_info", "gauge", "1, with what the training is in its labels."),
    Series("trn_training_started_timestamp_seconds", "gauge", "When this run of the training began."),
    Series("trn_training_step", "gauge", "The last step that was reported."),
    Series("trn_training_loss", "gauge", "Of that step, over all ranks."),
    Series("trn_training_eval_loss", "gauge", "Of the last evaluation, over all ranks."),
    Series("trn_training_step_seconds", "gauge", "How long a step took, without checkpoints."),
    Series("trn_training_tokens_per_second", "gauge", "Over all ranks."),
    Series("trn_training_examples_total", "counter", "Examples that this run took, over all ranks."),
    Series(
        "trn_training_productive_seconds_total",
        "counter",
        "Time of this run in steps: without its start, compiling before the first step, and checkpoints.",
    ),
    Series("trn_training_checkpoint_step", "gauge", "Step of the newest complete checkpoint."),
    Series("trn_training_checkpoint_timestamp_seconds", "gauge", "When it was complete."),
)
"""All series, in the order in which they are shown. Counters begin at 0 in each run."""


class SeriesServer:
    """The series of a run, and the server that shows them. Only rank 0 makes one. ``labels`` are of
    ``trn_training_info``, ``step`` is the last one of the run before (0 for none), ``began`` in seconds since 1970."""

    def __init__(self, labels: Mapping[str, object], step: int, examples_per_step: int, began: float) -> None:
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        self._labels = ",".join(f'{name}="{str(value).translate(escapes)}"' for name, value in labels.items())
        self._examples_per_step = examples_per_step
        self._first_step = self._step = step
        self._warming: tuple[int, float] | None = None
        self._productive = 0.0
        # Never changed, always replaced: a request shows the values of one moment.
        self._values: dict[str, float] = {}
        self._put(info=1, step=step, started_timestamp_seconds=began, examples_total=0, productive_seconds_total=0)
        self._server = self._serve()

    def step(self, step: int, loss: float, seconds: float, tokens_per_second: float | None = None) -> None:
        """Record a step line: its loss, the duration of each step since the line before, and the tokens a second over
        all ranks (None where examples are no text)."""
        steps, self._step = step - self._step, step
        if self._warming is None:
            self._warming = steps, seconds
        else:
            # The first line's steps, with their compiling, count for no more than later ones.
            before, of_each = self._warming
            self._productive += before * min(of_each, seconds) + steps * seconds
            self._warming = 0, 0.0
        examples = (step - self._first_step) * self._examples_per_step
        self._put(step=step, loss=loss, step_seconds=seconds)
        self._put(examples_total=examples, productive_seconds_total=self._productive)
        if tokens_per_second is not None:
            self._put(tokens_per_second=tokens_per_second)

    def evaluated(self, loss: float) -> None:
        """Record an evaluation."""
        self._put(eval_loss=loss)

    def saved(self, step: int, at: float) -> None:
        """Record a complete checkpoint, and its time (seconds since 1970)."""
        self._put(checkpoint_step=step, checkpoint_timestamp_seconds=at)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def text(self) -> str:
        """Return all series that have a value, in Prometheus' text format."""
        values, lines = self._values, []
        for name, kind, about in SERIES:
            if name in values:
                labels = f"{{{self._labels}}}" if name == SERIES[0].name else ""
                number = _NO_NUMBERS.get(repr(values[name]), repr(values[name]))
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name}{labels} {number}"]
        return "".join(f"{line}\n" for line in lines)

    def _put(self, **values: float) -> None:
        self._values = {**self._values, **{f"trn_training_{name}": value for name, value in values.items()}}

    def _serve(self) -> "_Server | None":
        """Return a server that runs in a thread; None without a port, or where the port cannot be had."""
        asked = os.environ.get(PORT) or "0"
        try:
            port = int(asked)
            if port == 0:
                return None
            server = _Server(("", port), _Handler)
        except (ValueError, OverflowError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            sys.stderr.write(f"no metrics of this training: port {asked} of {PORT} cannot be served ({why})\n")
            return None
        server.scraped = self
        threading.Thread(target=server.serve_forever, args=(0.2,), name="metrics", daemon=True).start()
        return server


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    scraped: SeriesServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that goes away is no matter of the training's log."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.scraped.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: a line for each request would bury the steps."""
