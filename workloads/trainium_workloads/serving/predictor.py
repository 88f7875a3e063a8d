"""From texts to predictions: tokenized, sorted into shapes, computed, and put back into their order."""

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from trainium_workloads.serving import model_directory
from trainium_workloads.serving.runners import Runner, runner
from trainium_workloads.training.refusal import Refusal

Prediction = dict[str, Any]
"""``label``: a name of ``config.json``'s ``id2label``; ``score``: its probability, 0 to 1."""
BATCHES = (1, 8, 32)
"""Texts that are computed at once. Shapes are few, because an accelerator compiles a graph for each."""


def lengths(longest: int) -> tuple[int, ...]:
    """Return the tokens of a text in each shape: 32 and its doubles, and the longest that the model takes."""
    return *(32 << power for power in range(16) if 32 << power < longest), longest


class Predictor:
    """A classifier with its tokenizer."""

    def __init__(self, run: Runner, tokenizer: Any, labels: Sequence[str], longest: int) -> None:
        self._run = run
        self._tokenizer = tokenizer
        self._labels = tuple(labels)
        self._lengths = lengths(longest)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Each number of texts with each length."""
        return [(batch, length) for batch in BATCHES for length in self._lengths]

    def warm_up(self) -> None:
        """Compute every shape once, which compiles missing graphs."""
        for shape in self.shapes:
            self._run(torch.zeros(shape, dtype=torch.long), torch.ones(shape, dtype=torch.long))

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """Return one prediction for each text, in the same order; texts are cut off at the longest length."""
        tokens = self._tokenizer(list(texts), truncation=True, max_length=self._lengths[-1])["input_ids"]
        # Texts of like length together: the longest of a batch decides the cost of all.
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))
        found = dict[int, Prediction]()
        for begin in range(0, len(order), BATCHES[-1]):
            part = order[begin : begin + BATCHES[-1]]
            found |= zip(part, self._computed([tokens[index] for index in part]), strict=True)
        return [found[index] for index in range(len(texts))]

    def _computed(self, tokens: list[list[int]]) -> list[Prediction]:
        length = next(each for each in self._lengths if each >= len(tokens[-1]))
        missing = next(each for each in BATCHES if each >= len(tokens)) - len(tokens)
        ids = {"input_ids": tokens + tokens[:1] * missing}
        padded = self._tokenizer.pad(ids, padding="max_length", max_length=length, return_tensors="pt")
        logits = self._run(padded["input_ids"], padded["attention_mask"])
        scores, numbers = torch.softmax(logits[: len(tokens)], dim=1).max(dim=1)
        found = zip(numbers.tolist(), scores.tolist(), strict=True)
        return [{"label": self._labels[number], "score": round(score, 6)} for number, score in found]


def load(options: argparse.Namespace, core: int = 0) -> Predictor:
    """Return the predictor for the options of :mod:`.model_directory`.

    Args:
        options: the model and its device.
        core: number of this process among those that serve the model.

    Raises:
        Refusal: the model cannot be read or cannot classify, or its device is not here.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if not model_directory.is_classifier(options.model):
        raise Refusal(f"{options.model} generates text, and predictions need a classifier; trn serve serves it")
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        found = AutoModelForSequenceClassification.from_pretrained(options.model, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    except (OSError, ValueError) as error:
        raise Refusal(f"{options.model} cannot be read: {error}") from None
    if found.num_labels < 2 or found.config.problem_type == "multi_label_classification":
        raise Refusal(f"{options.model} does not choose one label of several, and only such a classifier can be served")
    if tokenizer.pad_token is None:
        raise Refusal(f"the tokenizer in {options.model} has no pad_token: set one, and save the tokenizer again")
    # The tokenizer of a model without a limit has 10^30.
    longest = min(tokenizer.model_max_length, getattr(found.config, "max_position_embeddings", 512))
    labels = [found.config.id2label[number] for number in range(found.num_labels)]
    made = Predictor(lambda ids, mask: ids, tokenizer, labels, longest)
    graphs = options.graphs or options.model.parent / "graphs"
    made._run = runner(found.eval(), options.backend, made.shapes, graphs, core)
    return made
