"""Training of BERT: the model, its examples and their loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from trainium_workloads.bert import synthetic, weights
from trainium_workloads.bert.model import BertForPreTraining, Sizes
from trainium_workloads.bert.wikicorpus import Corpus, batch_of
from trainium_workloads.training.task import Batch, Examples, Fact, Loss, Position


@dataclass(frozen=True)
class Pretraining:
    """BERT, its examples and their loss."""

    sizes: Sizes
    data: "Corpus | MadeUp"
    begin_with: Path | None = None
    """Weights to begin with; None for new ones."""

    @property
    def identity(self) -> Mapping[str, Fact]:
        """Facts on which a checkpoint must agree."""
        sizes = self.sizes
        return {
            "model": "bert",
            "layers": sizes.layers,
            "hidden": sizes.hidden,
            "vocabulary": sizes.vocabulary,
            "sequence": self.data.sequence,
        }

    @property
    def tokens_per_example(self) -> int:
        """Padding included."""
        return self.data.sequence

    def model(self) -> nn.Module:
        """Return a model with new weights, or with the given ones."""
        model = BertForPreTraining(self.sizes)
        if self.begin_with is not None:
            weights.load(model, self.begin_with)
        return model

    def examples(self) -> Examples:
        """Return the examples."""
        return self.data

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the sum of both losses, as in the paper."""
        words, follows = model(batch["tokens"], batch["segments"], batch["mask"], batch["positions"])
        hidden = masked_loss(words, batch["answers"], batch["positions"] > 0)
        followed = functional.cross_entropy(follows.float(), batch["labels"])
        return Loss(hidden + followed, {"masked_loss": hidden, "next_sentence_loss": followed})


def masked_loss(words: Tensor, answers: Tensor, is_hidden: Tensor) -> Tensor:
    """Return the mean cross entropy of the hidden words; places without a hidden word count nothing.

    Args:
        words: logits, [batch, predictions, vocabulary].
        answers: [batch, predictions].
        is_hidden: [batch, predictions].
    """
    each = functional.cross_entropy(words.flatten(0, 1).float(), answers.flatten(), reduction="none")
    counts = is_hidden.flatten().to(each.dtype)
    return (each * counts).sum() / counts.sum().clamp(min=1.0)


class MadeUp:
    """Examples from a seed, in memory.

    Args:
        count: of examples.
        sequence: tokens of each.
        predictions: hidden words of each, at most.
        vocabulary: of the model.
        seed: of the examples.
    """

    def __init__(self, count: int, *, sequence: int, predictions: int, vocabulary: int, seed: int) -> None:
        self.sequence, self.predictions, self._count = sequence, predictions, count
        self._columns = synthetic.make(
            count, sequence=sequence, predictions=predictions, vocabulary=vocabulary, seed=seed
        )

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return a micro-batch."""
        return batch_of([(self._columns, each.index) for each in positions], self.predictions)
