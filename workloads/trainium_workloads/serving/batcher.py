"""Batches of requests that come at the same time."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from trainium_workloads.serving.predictor import Prediction

_WAIT_SECONDS = 0.004
"""Time for which the first request of a batch waits for others: less than a batch of BERT-base takes."""


class Busy(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Error of a request that finds too many texts waiting."""


@dataclass(frozen=True)
class _Waiting:
    texts: Sequence[str]
    answer: "Future[list[Prediction]]" = field(default_factory=Future)


class Batcher:
    """Batches of requests, and the threads that compute them."""

    def __init__(
        self, predict: Callable[[Sequence[str]], list[Prediction]], *, most: int, threads: int = 1, room: int = 1024
    ) -> None:
        """Start the threads.

        Args:
            predict: computes; called by several threads at once.
            most: texts of a batch, unless one request has more.
            threads: batches that are computed at once.
            room: texts that may wait.
        """
        self._predict = predict
        self._most = most
        self._room = room
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for each in self._threads:
            each.start()

    def submit(self, texts: Sequence[str]) -> "Future[list[Prediction]]":
        """Return a future of the predictions.

        Raises:
            Busy: too many texts are waiting.
        """
        with self._lock:
            if self._waiting and self._waiting + len(texts) > self._room:
                raise Busy
            self._waiting += len(texts)
        request = _Waiting(texts)
        self._queue.put(request)
        return request.answer

    @property
    def is_alive(self) -> bool:
        """Whether its threads still work."""
        return all(each.is_alive() for each in self._threads)

    def close(self) -> None:
        """End the threads once the waiting requests are computed."""
        for _ in self._threads:
            self._queue.put(None)
        for each in self._threads:
            each.join()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, is_last = self._gathered(first)
            self._compute(batch)
            if is_last:
                return

    def _gathered(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """Return the requests to compute together, and whether the batcher was closed."""
        batch, count, until = [first], len(first.texts), time.monotonic() + _WAIT_SECONDS
        while count < self._most:
            try:
                following = self._queue.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                break
            if following is None:
                return batch, True
            batch.append(following)
            count += len(following.texts)
        return batch, False

    def _compute(self, batch: list[_Waiting]) -> None:
        texts = [text for request in batch for text in request.texts]
        try:
            found = self._predict(texts)
        except Exception as error:  # noqa: BLE001 - each waiting request must get the error, of any kind
            for request in batch:
                request.answer.set_exception(error)
        else:
            begin = 0
            for request in batch:
                request.answer.set_result(found[begin : begin + len(request.texts)])
                begin += len(request.texts)
        finally:
            with self._lock:
                self._waiting -= len(texts)
