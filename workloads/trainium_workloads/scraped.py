"""Metrics of a running training for a monitoring system: Prometheus' text format over HTTP. Standard library only.

``TRN_METRICS_PORT`` names the port; without it nothing is served. Rank 0 of the world serves and no other, so a
training is one target, however many ranks it has. No error here slows a training or ends it.
"""

import math
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import Any, Literal

PORT = "TRN_METRICS_PORT"
"""Variable with the port; empty or 0 for none."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""

_CLIENT_SECONDS = 5.0
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True)
class Series:
    """A metric of a training."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str


SERIES = (
    Series("trn_training_info", "gauge", "1, with what the training is in its labels."),
    Series("trn_training_started_timestamp_seconds", "gauge", "When this run of the training began."),
    Series("trn_training_step", "gauge", "The last step that was reported."),
    Series("trn_training_loss", "gauge", "Of that step, over all ranks."),
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


class Scraped:
    """The series of a run, and the server that shows them. Only rank 0 makes one.

    Args:
        labels: of ``trn_training_info``.
        step: last step of the run before; 0 for none.
        examples_per_step: over all ranks.
        began: seconds since 1970.
    """

    def __init__(self, labels: Mapping[str, object], step: int, examples_per_step: int, began: float) -> None:
        self._labels = {name: str(value) for name, value in labels.items()}
        self._examples_per_step = examples_per_step
        self._first_step = self._step = step
        self._warming: tuple[int, float] | None = None
        self._productive = 0.0
        # Never changed, always replaced: a request shows the values of one moment.
        self._values: dict[str, float] = {}
        self._put(info=1, step=step, started_timestamp_seconds=began, examples_total=0, productive_seconds_total=0)
        self._server = _served(self)

    def step(self, step: int, loss: float, seconds: float, tokens_per_second: float | None = None) -> None:
        """Record a step line.

        Args:
            step: number of the last step.
            loss: of it.
            seconds: duration of each step since the line before.
            tokens_per_second: over all ranks; None where examples are no text.
        """
        self._productive += self._useful(step - self._step, seconds)
        self._step = step
        told = {} if tokens_per_second is None else {"tokens_per_second": tokens_per_second}
        self._put(
            step=step,
            loss=loss,
            step_seconds=seconds,
            examples_total=(step - self._first_step) * self._examples_per_step,
            productive_seconds_total=self._productive,
            **told,
        )

    def saved(self, step: int, at: float) -> None:
        """Record a complete checkpoint, and its time (seconds since 1970)."""
        self._put(checkpoint_step=step, checkpoint_timestamp_seconds=at)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            # In a separate thread, because a client may keep the server busy.
            ending = threading.Thread(target=self._server.shutdown, daemon=True)
            ending.start()
            ending.join(_CLOSE_SECONDS)
            self._server.server_close()

    def text(self) -> str:
        """Return all series that have a value, in Prometheus' text format."""
        values, lines = self._values, []
        for series in SERIES:
            if series.name in values:
                labels = self._labels if series.name == SERIES[0].name else {}
                lines += [
                    f"# HELP {series.name} {series.help}",
                    f"# TYPE {series.name} {series.kind}",
                    f"{series.name}{_shown(labels)} {_number(values[series.name])}",
                ]
        return "".join(f"{line}\n" for line in lines)

    def _useful(self, steps: int, seconds: float) -> float:
        """Return the time in steps since the last line. The first line's steps, with their compiling, count for
        no more than later ones."""
        if self._warming is None:
            self._warming = steps, seconds
            return 0.0
        before, of_each = self._warming
        self._warming = 0, 0.0
        return before * min(of_each, seconds) + steps * seconds

    def _put(self, **values: float) -> None:
        self._values = {**self._values, **{f"trn_training_{name}": value for name, value in values.items()}}


def _shown(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    pairs = ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _served(scraped: Scraped) -> HTTPServer | None:
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
    server.scraped = scraped
    threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="metrics", daemon=True).start()
    return server


class _Server(HTTPServer):
    """HTTP server that answers one request after the other: a monitoring system asks twice a minute."""

    scraped: Scraped

    def server_bind(self) -> None:
        # HTTPServer's own looks the host's name up, which takes long where no name server answers.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that goes away is no matter of the training's log."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS
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
