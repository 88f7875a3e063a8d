"""Interface of a training for the common loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

Batch = dict[str, Tensor]
"""A micro-batch: tensors with the examples in their first dimension, of the same shapes each time: an accelerator
compiles a graph for each shape."""

Fact = int | float | str | bool

IGNORED = -100
"""Label that does not count, as PyTorch's cross-entropy has it."""


@dataclass(frozen=True)
class Position:
    """An example at its turn."""

    epoch: int
    """From 0: how often all examples have been seen."""
    index: int
    """Of the example, from 0."""


class Examples(Protocol):
    """The examples of a training, in memory or read as they are needed. DataLoader's workers get copies of it.

    By default they come in random order. Examples that are slow to read that way shuffle themselves, by the position's
    epoch, and have an attribute ``arranged`` that is true: an epoch then takes them in order, from 0 on.
    """

    def __len__(self) -> int: ...

    def __getitems__(self, positions: Sequence[Position]) -> Batch:
        """Return a micro-batch on the CPU. Its random parts follow from the positions (and a seed of the
        examples) alone, so that a training that resumes sees the same values."""
        ...


@dataclass(frozen=True)
class Loss:
    """Loss of a micro-batch."""

    total: Tensor
    """A scalar to call ``backward`` on: the mean over the micro-batch."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Scalars to show beside it (``mlm_loss``, ``accuracy``); means as well."""
    share: Tensor | None = None
    """Share of the micro-batch's targets that count, where all values are sums over those, divided by the number of all
    targets; None where all count. An update, or an evaluation, then is of the mean over what counts in all its
    micro-batches and ranks. Evaluations need it: some of their ``labels`` are :data:`IGNORED`."""


class Task(Protocol):
    """A training: model, examples and loss.

    It may also have ``evaluated``, examples that are evaluated and not trained on, and ``perplexity_of``: the name of
    the loss (``loss``, or a part) of which an evaluation gives the exponential.
    """

    @property
    def identity(self) -> Mapping[str, Fact]:
        """Facts on which a checkpoint must agree to be this model's: name, sizes, vocabulary."""
        ...

    @property
    def tokens_per_example(self) -> int:
        """Tokens of an example, padding included; for the rate. 1 where examples are no text."""
        ...

    def model(self) -> nn.Module:
        """Return the model on the CPU in FP32, initialized, the same in every rank: the loop has seeded the
        generators."""
        ...

    def examples(self) -> Examples:
        """Return the examples.

        Raises:
            RefusalError: the data is not there, or has not the shape that the model needs.
        """
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the loss of a micro-batch's forward pass; no value is fetched from the device here."""
        ...


def parameter_count(model: nn.Module) -> int:
    """Return the number of learnt parameters; a tensor that is used twice counts once."""
    return sum(each.numel() for each in model.parameters())
