"""From texts to predictions: cut into pieces, sorted into shapes, computed, and put back into their order."""

import queue
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainium_workloads.polarity.wordpieces import WordPieces
from trainium_workloads.serving.runners import Runner
from trainium_workloads.serving.shapes import Shapes


@dataclass(frozen=True)
class Prediction:
    """Label of a text."""

    label: str
    """``positive`` or ``negative``."""
    score: float
    """Probability of the label, 0.5 to 1."""


class Predictor:
    """Predictor with one runner at a time for each caller; callers in several threads use all runners."""

    def __init__(self, found: Sequence[Runner], pieces: WordPieces, labels: Sequence[str], shapes: Shapes) -> None:
        self._free: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for each in found:
            self._free.put(each)
        self.copies = len(found)
        self._pieces = pieces
        self._labels = tuple(labels)
        self.shapes = shapes

    def warm_up(self) -> None:
        """Compute every shape once on every runner, which compiles missing graphs."""
        taken = [self._free.get() for _ in range(self.copies)]
        for batch, length in self.shapes.all:
            mask = torch.ones((batch, length), dtype=torch.long)
            for run in taken:
                run(torch.full_like(mask, self._pieces.pad_id), mask)
        for run in taken:
            self._free.put(run)

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """Return one prediction for each text, in the same order."""
        lengths = self._pieces.lengths(texts)
        # Texts of like length together: the longest of a batch decides the cost of all.
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        found: dict[int, Prediction] = {}
        for begin in range(0, len(order), self.shapes.most):
            part = order[begin : begin + self.shapes.most]
            length = self.shapes.length(lengths[part[-1]])
            found |= zip(part, self._computed([texts[index] for index in part], length), strict=True)
        return [found[index] for index in range(len(texts))]

    def _computed(self, texts: Sequence[str], length: int) -> list[Prediction]:
        ids = torch.from_numpy(self._pieces.encode(texts, length))
        missing = self.shapes.batch(len(texts)) - len(texts)
        ids = torch.cat([ids, ids[:1].expand(missing, -1)])
        run = self._free.get()
        try:
            logits = run(ids, (ids != self._pieces.pad_id).long())
        finally:
            self._free.put(run)
        scores, numbers = torch.softmax(logits[: len(texts)], dim=1).max(dim=1)
        return [
            Prediction(self._labels[number], round(score, 6))
            for number, score in zip(numbers.tolist(), scores.tolist(), strict=True)
        ]
