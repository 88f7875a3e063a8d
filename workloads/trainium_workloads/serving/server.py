"""Real-time predictions over HTTP: ``python -m trainium_workloads.serving.server MODEL --port 8080``.

=======================  ======================================================================================
``POST /predict``        ``{"texts": ["…"]}`` to ``{"predictions": [{"label": "positive", "score": 0.98}]}``
``GET /ready``           200 once the model has answered in every shape, and until SIGTERM
``GET /healthz``         200 while it computes at all
=======================  ======================================================================================

SIGTERM ends the server: it is no longer ready, answers requests for some seconds more, and exits with 0.
"""

import argparse
import contextlib
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainium_workloads.serving import loading
from trainium_workloads.serving.batcher import Batcher, Busy
from trainium_workloads.serving.predictor import Predictor
from trainium_workloads.training.refusal import Refusal, guarded

LARGEST_BYTES = 1 << 20
"""Limit of a request's body."""
MOST_TEXTS = 256
"""Limit of a request's texts; for more there is :mod:`.batch`."""
LINGER_SECONDS = 5.0
"""Time of service after SIGTERM: Kubernetes sends requests until all nodes know that the pod is leaving."""
_LOOK_SECONDS = 0.2
_SLOW_SECONDS = 30.0
"""Longest wait for a client's next bytes."""


class Service(ThreadingHTTPServer):
    """Server that listens from its making, and answers ``/healthz`` and ``/ready`` while the model is loaded and
    compiled."""

    daemon_threads = True  # a thread that waits for its client's next request must not delay the end
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.batcher: Batcher | None = None
        self.is_leaving = False
        self._answering = 0
        self._answered = threading.Condition()

    def ready(self, predictor: Predictor) -> None:
        """Warm the model up, and answer from then on."""
        predictor.warm_up()
        batcher = Batcher(predictor.predict, most=predictor.shapes.most, threads=predictor.copies)
        batcher.submit(["a first question"]).result()
        self.batcher = batcher

    @property
    def is_ready(self) -> bool:
        """Whether it should be sent requests."""
        return self.batcher is not None and self.batcher.is_alive and not self.is_leaving

    def leave(self, linger: float) -> None:
        """End :meth:`serve_forever` after a while in which requests are still answered."""
        self.is_leaving = True
        time.sleep(linger)
        self.shutdown()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request while it is answered."""
        with self._answered:
            self._answering += 1
        try:
            yield
        finally:
            with self._answered:
                self._answering -= 1
                self._answered.notify_all()

    def finish(self) -> None:
        """Wait until all requests are answered."""
        with self._answered:
            self._answered.wait_for(lambda: self._answering == 0)
        if self.batcher is not None:
            self.batcher.close()


class _Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    timeout = _SLOW_SECONDS

    def do_GET(self) -> None:
        batcher = self.server.batcher
        if self.path == "/ready":
            if self.server.is_ready:
                self._answer(HTTPStatus.OK, {"ready": True})
            else:
                why = "leaving" if self.server.is_leaving else "the model is being loaded"
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": why})
        elif self.path == "/healthz":
            is_well = batcher is None or batcher.is_alive
            self._answer(HTTPStatus.OK if is_well else HTTPStatus.INTERNAL_SERVER_ERROR, {"healthy": is_well})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there are POST /predict, GET /ready and GET /healthz"})

    def do_POST(self) -> None:
        if self.path != "/predict":
            self._refuse(HTTPStatus.NOT_FOUND, "there is POST /predict alone")
            return
        body = self._body()
        if body is not None:
            with self.server.answering():
                self._predict(body)

    def _predict(self, body: bytes) -> None:
        texts = _texts(body)
        if isinstance(texts, str):
            self._answer(HTTPStatus.BAD_REQUEST, {"error": texts})
            return
        if self.server.batcher is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the model is being loaded"}, retry=True)
            return
        try:
            found = self.server.batcher.submit(texts).result()
        except Busy:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too many texts are waiting"}, retry=True)
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever the model does
            sys.stderr.write(f"the model failed: {error!r}\n")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the model failed; its log says how"})
        else:
            self._answer(HTTPStatus.OK, {"predictions": [{"label": each.label, "score": each.score} for each in found]})

    def _body(self) -> bytes | None:
        """Return the request's body; None where it is refused already."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length must say how many bytes follow")
            return None
        if int(length) > LARGEST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LARGEST_BYTES} bytes; send fewer texts")
            return None
        try:
            return self.rfile.read(int(length))
        except (TimeoutError, ConnectionError):
            self.close_connection = True
            return None

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer without having read the body, so the connection cannot be used again."""
        self.close_connection = True
        self._answer(status, {"error": why})

    def _answer(self, status: HTTPStatus, content: dict[str, Any], *, retry: bool = False) -> None:
        data = json.dumps(content).encode()
        if self.server.is_leaving:
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: probes come every few seconds, texts are private, and failures are logged elsewhere."""


def _texts(body: bytes) -> Sequence[str] | str:
    """Return the texts of a request, or the error in it."""
    try:
        texts = json.loads(body)["texts"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 'the body must be JSON: {"texts": ["…", "…"]}'
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
        return "texts must be a list of one or more strings"
    if len(texts) > MOST_TEXTS:
        return f"at most {MOST_TEXTS} texts at once, not {len(texts)}; for more there is trn predict"
    return texts


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    loading.add_options(parser)
    parser.add_argument("--host", default="0.0.0.0", help="default: all addresses")
    parser.add_argument("--port", type=int, default=8080, help="default: %(default)s; 0: any that is free")
    linger = "seconds that it goes on after SIGTERM; default: %(default)s"
    parser.add_argument("--linger", type=float, default=LINGER_SECONDS, help=linger)
    asked = parser.parse_args()
    try:
        service = Service((asked.host, asked.port))
    except OSError as error:
        raise Refusal(f"port {asked.port} cannot be had: {error.strerror}") from None

    def leave(_number: int, _frame: object) -> None:
        if service.batcher is None:
            raise SystemExit  # nobody was told that it is ready
        if not service.is_leaving:
            threading.Thread(target=service.leave, args=(asked.linger,)).start()

    signal.signal(signal.SIGTERM, leave)
    listening = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.1})
    listening.start()
    try:
        _serve(service, asked)
    except BaseException:
        service.shutdown()
        raise
    finally:
        # Checked repeatedly: a signal that comes as the thread falls asleep would not wake it.
        while listening.is_alive():
            listening.join(_LOOK_SECONDS)
        service.finish()
        service.server_close()
    return 0


def _serve(service: Service, asked: argparse.Namespace) -> None:
    begun = time.monotonic()
    service.ready(loading.predictor(asked))
    seconds = round(time.monotonic() - begun, 1)
    told = {"serving": str(asked.model), "host": socket.gethostname(), "port": service.server_port}
    print(json.dumps({**told, "backend": asked.backend, "loaded_seconds": seconds}), flush=True)


if __name__ == "__main__":
    sys.exit(guarded(main))
