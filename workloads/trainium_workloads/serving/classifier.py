"""A classifier over HTTP, by LitServe."""

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

from trainium_workloads.serving.draining import Draining
from trainium_workloads.serving.sagemaker import Invocations
from trainium_workloads.training.refusal import RefusalError


class Request(BaseModel):
    """Body of ``POST /predict``; LitServe answers 422 to another one."""

    texts: Annotated[list[str], Field(min_length=1, max_length=256)]


class Classifier(litserve.LitAPI):
    """LitServe's interface to a model, in each of its processes."""

    def __init__(self, options: argparse.Namespace, refused: Path) -> None:
        # The first request of a batch waits for others, for less time than a batch of BERT-base takes.
        super().__init__(max_batch_size=32, batch_timeout=0.004)
        self._options, self._refused = options, refused

    def setup(self, device: str) -> None:  # noqa: ARG002 - the backend decides
        """Load the model, and let it answer once in each shape."""
        core = os.environ["LITSERVE_WORKER_ID"]
        os.environ.setdefault("NEURON_RT_VISIBLE_CORES", core)  # else the first process takes all cores
        from trainium_workloads.serving.predictor import Predictor

        try:
            self._predictor = Predictor(self._options, int(core))
        except RefusalError as refusal:
            self._refused.write_text(str(refusal), encoding="utf-8")
            raise
        self._predictor.warm_up()

    def decode_request(self, request: Request) -> list[str]:
        """Return the texts of a request."""
        return request.texts

    def predict(self, requests: Sequence[list[str]]) -> list[dict[str, Any]]:
        """Return the answers to the requests of a batch."""
        found = iter(self._predictor.predict(list(chain.from_iterable(requests))))
        return [{"predictions": list(islice(found, len(texts)))} for texts in requests]


def serve(options: argparse.Namespace) -> None:
    """Serve a classifier until SIGTERM; refuse an unreadable model, or a missing device."""
    main = os.getpid()

    def leave(_number: int, _frame: object) -> None:
        if os.getpid() != main:
            os._exit(0)  # uvicorn's process, which has answered all requests and raises the signal again
        raise KeyboardInterrupt  # LitServe knows no SIGTERM; by this it ends uvicorn before the model's processes

    signal.signal(signal.SIGTERM, leave)
    with tempfile.TemporaryDirectory() as place:
        refused = Path(place) / "refused"
        # The device is the backend's, whatever LitServe finds here.
        workers = {"accelerator": "cpu", "workers_per_device": options.copies, "max_payload_size": 1 << 20}
        around = [(Draining, {"seconds": options.linger}), (Invocations, {})]
        server = litserve.LitServer(Classifier(options, refused), middlewares=around, **workers)
        quiet = {"generate_client_file": False, "log_level": "warning", "access_log": False}
        try:
            server.run(host=options.host, port=options.port, num_api_servers=1, **quiet)
        except KeyboardInterrupt:
            pass  # before it was ready
        except RuntimeError:
            if refused.is_file():
                raise RefusalError(refused.read_text(encoding="utf-8")) from None
            raise
        finally:
            for child in multiprocessing.active_children():
                child.kill()
