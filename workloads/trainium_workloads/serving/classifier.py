"""A classifier over HTTP, by LitServe: ``POST /predict`` and ``GET /health``."""

import argparse
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import litserve
from pydantic import BaseModel, Field

from trainium_workloads.training.refusal import Refusal

MOST_TEXTS = 256
"""Limit of a request's texts; for more there is :mod:`.batch`."""
LARGEST_BYTES = 1 << 20
"""Limit of a request's body."""
_WAIT_SECONDS = 0.004
"""Time for which the first request of a batch waits for others: less than a batch of BERT-base takes."""


class Request(BaseModel):
    """Body of ``POST /predict``; LitServe answers 422 to another one."""

    texts: Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]


class Classifier(litserve.LitAPI):
    """LitServe's interface to a model, in each of its processes."""

    def __init__(self, options: argparse.Namespace, refused: Path) -> None:
        super().__init__(max_batch_size=32, batch_timeout=_WAIT_SECONDS)
        self._options = options
        self._refused = refused

    def setup(self, device: str) -> None:
        """Load the model, and let it answer once in each shape."""
        from trainium_workloads.serving import predictor

        try:
            self._predictor = predictor.load(self._options, int(os.environ["LITSERVE_WORKER_ID"]))
            self._predictor.warm_up()
            self._predictor.predict(["a first question"])
        except Refusal as refusal:
            self._refused.write_text(str(refusal), encoding="utf-8")
            raise

    def decode_request(self, request: Request) -> list[str]:
        """Return the texts of a request."""
        return request.texts

    def batch(self, inputs: list[list[str]]) -> list[list[str]]:
        """Return the requests as they are."""
        return inputs

    def predict(self, requests: Sequence[list[str]]) -> list[list[dict[str, Any]]]:
        """Return the predictions of all requests of a batch."""
        found = iter(self._predictor.predict(list(chain.from_iterable(requests))))
        return [list(islice(found, len(texts))) for texts in requests]

    def unbatch(self, output: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
        """Return the answers as they are."""
        return output

    def encode_response(self, output: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer to a request."""
        return {"predictions": output}


def serve(options: argparse.Namespace) -> None:
    """Serve a classifier until SIGTERM.

    Args:
        options: of :mod:`.server`.

    Raises:
        Refusal: the model cannot be read, or its device is not here.
    """
    main = os.getpid()

    def leave(_number: int, _frame: object) -> None:
        if os.getpid() != main:
            os._exit(0)  # uvicorn's process, which has answered all requests and raises the signal again
        raise KeyboardInterrupt  # LitServe knows no SIGTERM; by this it ends uvicorn before the model's processes

    signal.signal(signal.SIGTERM, leave)
    with tempfile.TemporaryDirectory() as place:
        refused = Path(place) / "refused"
        server = litserve.LitServer(
            Classifier(options, refused),
            accelerator="cpu",  # the runner chooses the device
            workers_per_device=options.copies,
            max_payload_size=LARGEST_BYTES,
        )
        try:
            server.run(
                host=options.host,
                port=options.port,
                num_api_servers=1,
                generate_client_file=False,
                log_level="warning",
                access_log=False,
            )
        except KeyboardInterrupt:
            pass  # before it was ready
        except RuntimeError:
            if refused.is_file():
                raise Refusal(refused.read_text(encoding="utf-8")) from None
            raise
        finally:
            for child in multiprocessing.active_children():
                child.kill()
