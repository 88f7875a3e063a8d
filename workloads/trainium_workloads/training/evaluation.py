"""Evaluation of a training: the losses of examples that are not trained on, the best step, the end of patience."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainium_workloads.training import precision
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import ONLY_COMPILES, Options
from trainium_workloads.training.order import permuted
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import IGNORED, Batch, Examples, Position, Task


class _Part:
    """Some of the examples, by their places in a permutation."""

    def __init__(self, examples: Examples, places: range, key: str) -> None:
        self._examples, self._places, self._key = examples, places, key
        self.digest = f"{getattr(examples, 'digest', '')} {key}"

    def __len__(self) -> int:
        return len(self._places)

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        count = len(self._examples)
        return self._examples.__getitems__(
            [Position(each.epoch, permuted(self._places[each.index], count, self._key)) for each in positions]
        )


def divided(task: Task, options: Options) -> tuple[Examples, Examples | None]:
    """Return the examples to train with, and those to evaluate with: the task's own, or ``--eval-fraction`` of all, the
    same for any number of ranks; None without. Refusal: the examples cannot be divided, or too few are left."""
    examples, own = task.examples(), getattr(task, "evaluated", None)
    if options.eval_fraction and own is not None:
        raise RefusalError("--eval-fraction is for trainings without --eval-data: leave one out")
    if options.eval_fraction:
        if getattr(examples, "arranged", False):
            raise RefusalError("--eval-fraction is not for examples that are read in order: name --eval-data")
        count, key = max(round(len(examples) * options.eval_fraction), 1), f"{options.seed} held out"
        if count >= len(examples):
            raise RefusalError(f"--eval-fraction {options.eval_fraction} leaves none of {len(examples)} examples")
        own = _Part(examples, range(count), key)
        examples = _Part(examples, range(count, len(examples)), key)
    if own is None and (options.eval_every or options.patience):
        raise RefusalError("--eval-every and --patience need examples: name --eval-data or --eval-fraction")
    return examples, own


class Evaluation:
    """Evaluations of a run; the same calls in all ranks. ``rank`` of ``ranks`` are those with different data. Without
    examples none is ever due."""

    def __init__(
        self, task: Task, examples: Examples | None, options: Options, backend: Backend, ranks: tuple[int, int]
    ) -> None:
        self._task, self._options, self._backend, self._ranks = task, options, backend, ranks
        self._examples, self._size = examples, options.batch_size
        self._count = len(examples) if examples is not None else 0
        self._compiles = os.environ.get(ONLY_COMPILES) == "1"
        if self._compiles:
            self._count = min(self._count, self._size)
        of = f"{getattr(examples, 'digest', '')}, {self._count:,} examples" if self._count else "nothing"
        self.state: dict[str, Any] = {"of": of, "step": 0, "best_step": 0, "best_loss": math.inf, "worse": 0}
        """For checkpoints: the examples, the last step that was evaluated, the best and its loss, evaluations since."""

    def resume(self, state: Mapping[str, Any]) -> str:
        """Take the state of a checkpoint, and return an empty text. Losses of other examples cannot be compared: the
        best step is then forgotten, and the text reports it."""
        of = state.get("of", self.state["of"])
        if of != self.state["of"] and state.get("step"):
            return f"its evaluations were of {of}, here they are of {self.state['of']}: the best step is reset"
        self.state |= {**state, "of": self.state["of"]}
        return ""

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be evaluated: by ``--eval-every``, and the last step."""
        every, is_new = self._options.eval_every, step > self.state["step"]
        is_turn = step == self._options.steps or bool(every and step % every == 0)
        return bool(self._count) and is_new and (is_turn or self._compiles)

    @property
    def is_over(self) -> bool:
        """Whether the training is to end, because it no longer gets better."""
        return 0 < self._options.patience <= self.state["worse"]

    def of(self, model: nn.Module, step: int) -> dict[str, float]:
        """Return the values of a step over all examples, and remember the best: ``eval_loss``, each part of the loss,
        and ``eval_perplexity``, the exponential of the part that the task names for it."""
        names: list[str] = []
        found: list[Tensor] = []
        model.eval()
        with torch.no_grad():
            for batch in self._backend.feed(self._batches()):
                with precision.autocast(self._options, self._backend.device):
                    loss = self._task.loss(model, batch)
                if loss.share is None:
                    raise RefusalError("an evaluation needs the share of the labels that count: see Loss.share")
                values = {"loss": loss.total, "share": loss.share, **loss.parts}
                names = [*values]
                found.append(torch.stack([each.float() for each in values.values()]))
        model.train()
        # Summed on the host, and here alone: each batch has the same graph, and any number of them no other.
        sums = [float(each) for each in torch.stack([each.cpu() for each in found]).sum(0)]
        totals = dict(zip(names, self._backend.sum(sums), strict=True))
        counted = totals.pop("share")
        values = {f"eval_{name}": each / counted for name, each in totals.items()}
        if of := getattr(self._task, "perplexity_of", ""):
            values["eval_perplexity"] = math.exp(min(values[f"eval_{of}"], 700.0))
        is_best = values["eval_loss"] < self.state["best_loss"]
        best = {"best_step": step, "best_loss": values["eval_loss"], "worse": 0}
        self.state |= {"step": step, **(best if is_best else {"worse": self.state["worse"] + 1})}
        return values

    def _batches(self) -> Iterator[Batch]:
        """Yield batches of one shape, which accelerators compile, and as many in each rank, because layers may be
        divided over all of them: rows that fill them up have labels that do not count."""
        assert self._examples is not None
        rank, ranks = self._ranks
        for turn in range(0, self._count, self._size * ranks):
            numbers = range(turn + rank * self._size, turn + (rank + 1) * self._size)
            batch = self._examples.__getitems__([Position(0, min(each, self._count - 1)) for each in numbers])
            labels = batch["labels" if "labels" in batch else "tokens"].clone()
            labels[max(self._count - numbers.start, 0) :] = IGNORED
            yield {**batch, "labels": labels}
