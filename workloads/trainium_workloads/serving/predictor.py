"""A classifier on its device. The Neuron backends have not run yet: so far only the CPU has."""

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from trainium_workloads.serving import served_model
from trainium_workloads.training.refusal import RefusalError

BATCHES = (1, 8, 32)
"""Texts that are computed at once. Shapes are few, because an accelerator compiles a graph for each."""

Runner = Callable[[Tensor, Tensor], Tensor]
"""From ``input_ids`` and ``attention_mask`` ``[texts, tokens]`` on the CPU, in one of the shapes, to logits there."""


class Predictor:
    """A classifier with its tokenizer: texts are tokenized, sorted into shapes, and computed."""

    def __init__(self, options: argparse.Namespace, core: int = 0) -> None:
        """Load the model, as process number ``core`` of the server's; refuse an unreadable model, another kind, or a
        missing device."""
        if not served_model.is_classifier(options.model):
            raise RefusalError(
                f"{options.model} generates text, and predictions need a classifier; trn serve serves it"
            )
        if options.threads:
            torch.set_num_threads(options.threads)
        try:
            model = AutoModelForSequenceClassification.from_pretrained(options.model, dtype=torch.float32).eval()
            self._tokenizer = AutoTokenizer.from_pretrained(options.model)
        except (OSError, ValueError) as error:
            raise RefusalError(f"{options.model} cannot be read: {error}") from None
        if model.num_labels < 2 or model.config.problem_type == "multi_label_classification":
            raise RefusalError(
                f"{options.model} does not choose one label of several, as a classifier must to be served"
            )
        if self._tokenizer.pad_token is None:
            raise RefusalError(
                f"the tokenizer in {options.model} has no pad_token: set one, and save the tokenizer again"
            )
        model.config.return_dict = False  # tracing takes tuples
        self._labels = [model.config.id2label[number] for number in range(model.num_labels)]
        # The tokenizer of a model without a limit has 10^30.
        longest = min(self._tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 512))
        self.lengths = (*(32 << power for power in range(16) if 32 << power < longest), longest)
        self.shapes = [(batch, length) for batch in BATCHES for length in self.lengths]
        self._run = _runner(model, options, self.shapes, core)

    def warm_up(self) -> None:
        """Compute every shape once, which compiles missing graphs."""
        for shape in self.shapes:
            self._run(torch.zeros(shape, dtype=torch.long), torch.ones(shape, dtype=torch.long))

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return ``label`` and ``score`` (0 to 1) of each text, in order; longer texts than the model's are cut off."""
        tokens = self._tokenizer(list(texts), truncation=True, max_length=self.lengths[-1])["input_ids"]
        # Texts of like length together: the longest of a batch decides the cost of all.
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))
        found = dict[int, dict[str, Any]]()
        for begin in range(0, len(order), BATCHES[-1]):
            part = order[begin : begin + BATCHES[-1]]
            found |= zip(part, self._computed([tokens[index] for index in part]), strict=True)
        return [found[index] for index in range(len(tokens))]

    def _computed(self, tokens: list[list[int]]) -> list[dict[str, Any]]:
        length = next(each for each in self.lengths if each >= len(tokens[-1]))
        missing = next(each for each in BATCHES if each >= len(tokens)) - len(tokens)
        ids = {"input_ids": tokens + tokens[:1] * missing}
        padded = self._tokenizer.pad(ids, padding="max_length", max_length=length, return_tensors="pt")
        logits = self._run(padded["input_ids"], padded["attention_mask"])
        scores, numbers = torch.softmax(logits[: len(tokens)], dim=1).max(dim=1)
        return [
            {"label": self._labels[number], "score": round(score, 6)}
            for number, score in zip(numbers.tolist(), scores.tolist(), strict=True)
        ]


def _runner(model: Any, options: argparse.Namespace, shapes: Sequence[tuple[int, int]], core: int) -> Runner:
    if options.backend in ("xla", "neuron"):
        try:
            import torch_neuronx
        except ImportError:
            raise RefusalError(f"backend {options.backend} needs an --image with AWS' package torch_neuronx") from None
        if options.backend == "xla":
            return _traced(model, shapes, options.graphs or options.model.parent / "graphs", core, torch_neuronx)
    elif options.backend == "cuda" and not torch.cuda.is_available():
        raise RefusalError("there is no GPU here; --backend cpu does without")
    device = torch.device(options.backend)
    called: Callable[..., tuple[Tensor]] = model.to(device)
    if options.backend == "neuron":
        # Static shapes: the backend has no others, and compiles again for each new one.
        called = torch.compile(called, backend="neuron", dynamic=False)

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return called(ids.to(device), mask.to(device))[0].float().cpu()

    return run


def _traced(model: Any, shapes: Sequence[tuple[int, int]], graphs: Path, core: int, neuron: Any) -> Runner:
    """Return a runner of graphs on one core; they are kept in files, and the process of core 0 makes missing ones."""
    digest = hashlib.sha256(f"{torch.__version__} {neuron.__version__} {model.config.to_json_string()}".encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    graphs.mkdir(parents=True, exist_ok=True)
    loaded: dict[tuple[int, int], Any] = {}
    for shape in shapes:
        file = graphs / f"{digest.hexdigest()[:16]}-{shape[0]}x{shape[1]}.pt"
        if core == 0 and not file.is_file():
            ids, mask = torch.ones(shape, dtype=torch.long), torch.ones(shape, dtype=torch.long)
            mask[:, -1] = 0  # a graph without padding might have no mask
            part = file.with_suffix(f".{time.time_ns()}-{os.getpid()}")  # pods may trace at once
            torch.jit.save(neuron.trace(model, (ids, mask)), str(part))
            part.replace(file)
        while not file.is_file():
            time.sleep(1)
        loaded[shape] = torch.jit.load(str(file))
    return lambda ids, mask: loaded[ids.shape[0], ids.shape[1]](ids, mask)[0].float()
