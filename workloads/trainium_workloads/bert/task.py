"""BERT of ``transformers``, with examples of WikiCorpus or made-up ones, and the loss of its pre-training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig

from trainium_workloads.bert import make_data
from trainium_workloads.bert.wikicorpus import Corpus, batch_of
from trainium_workloads.model_directory import prepared_mask, read_model
from trainium_workloads.training.task import IGNORED, Batch, Examples, Fact, Loss, Position


class BertForPreTraining(transformers.BertForPreTraining):
    """BERT with a word head at the masked positions alone: no logits [batch, sequence, vocabulary] are computed.

    Parameters, configuration and files are the same as the base class has.
    """

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the words at the positions, [batch, predictions, vocabulary], and of the two answers about
        the second sentence, [batch, 2].

        Tokens, segments (0 for the first sentence, 1 for the second) and mask (0 for padding) are [batch, sequence],
        positions [batch, predictions].
        """
        found = self.bert(tokens, prepared_mask(mask, self), segments)
        # A product with ones and zeros instead of a gather: the gather's gradient is a scatter, which accelerators do
        # slowly and CUDA in an order that changes from run to run. The product costs a thousandth of a layer.
        hidden = found.last_hidden_state
        places = torch.arange(hidden.shape[1], device=hidden.device)
        chosen = (positions[:, :, None] == places).to(hidden.dtype) @ hidden
        words, follows = self.cls(chosen, found.pooler_output)
        return words, follows

    def _apply(self, *arguments: object, **named: object) -> nn.Module:
        """Convert or move the model. A move to an XLA device makes two parameters of a tied one, so both are tied again
        before the optimizer sees them; ``tie_weights`` would leave an operation to compile."""
        super()._apply(*arguments, **named)
        head = self.cls.predictions
        head.decoder.weight, head.decoder.bias = self.bert.embeddings.word_embeddings.weight, head.bias
        return self


@dataclass(frozen=True)
class Pretraining:
    """Training of BERT on masked words and next sentences."""

    config: BertConfig
    data: "Corpus | MadeUp"
    begin_with: Path | None = None
    """Directory of a model to begin with; None for new weights."""
    evaluated: "Corpus | None" = None
    perplexity_of = "masked_loss"

    @property
    def identity(self) -> Mapping[str, Fact]:
        """See :class:`~trainium_workloads.training.task.Task`. Our BERT of earlier versions had the name ``bert``."""
        return {
            "model": "BertForPreTraining",
            "layers": self.config.num_hidden_layers,
            "hidden": self.config.hidden_size,
            "vocabulary": self.config.vocab_size,
            "sequence": self.data.sequence,
            **({"data": self.data.digest} if isinstance(self.data, Corpus) else {}),
        }

    @property
    def tokens_per_example(self) -> int:
        return self.data.sequence

    def model(self) -> nn.Module:
        if self.begin_with is None:
            return BertForPreTraining(self.config)
        return read_model(BertForPreTraining, self.begin_with, self.config)

    def examples(self) -> Examples:
        return self.data

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the sum of both losses, as in the paper."""
        words, follows = model(batch["tokens"], batch["segments"], batch["mask"], batch["positions"])
        labels = batch["labels"]
        counts = labels != IGNORED
        share = counts.float().mean()
        masked = masked_loss(words, batch["answers"], (batch["positions"] > 0) & counts[:, None]) * share
        next_sentence = functional.cross_entropy(follows.float(), labels, reduction="sum") / len(labels)
        parts = {"masked_loss": masked, "next_sentence_loss": next_sentence}
        return Loss(masked + next_sentence, parts, None if model.training else share)


def masked_loss(words: Tensor, answers: Tensor, is_masked: Tensor) -> Tensor:
    """Return the mean cross entropy of the masked words; other places count nothing. ``words`` are logits, [batch,
    predictions, vocabulary], answers and masks [batch, predictions]."""
    each = functional.cross_entropy(words.flatten(0, 1).float(), answers.flatten(), reduction="none")
    counts = is_masked.flatten().to(each.dtype)
    return (each * counts).sum() / counts.sum().clamp(min=1.0)


class MadeUp:
    """Examples from a seed, in memory, with the arguments of :func:`~.make_data.make`."""

    def __init__(self, count: int, *, sequence: int, predictions: int, vocabulary: int, seed: int) -> None:
        self.sequence, self.predictions, self._count = sequence, predictions, count
        self._columns = make_data.make(
            count, sequence=sequence, predictions=predictions, vocabulary=vocabulary, seed=seed
        )

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        return batch_of([(self._columns, each.index) for each in positions], self.predictions)
