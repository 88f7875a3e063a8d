"""Accuracy of a model on reviews."""

from collections.abc import Iterator

import torch
from torch import nn

from trainium_workloads.polarity.encoded import Encoded
from trainium_workloads.training import precision
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options
from trainium_workloads.training.task import Batch

_COUNTED = "counted"


def accuracy(
    model: nn.Module, reviews: Encoded, backend: Backend, options: Options, batch_size: int, most: int = 0
) -> float:
    """Return the share of reviews that the model judges right, 0 to 1; each rank judges its part.

    Args:
        model: on the device.
        reviews: to judge.
        backend: of this rank.
        options: of the training.
        batch_size: reviews at once, in each rank; every batch has this shape.
        most: reviews in all; 0 for all that there are.
    """
    count = min(most or len(reviews), len(reviews))
    mine = range(backend.rank, count, backend.world_size)
    right = torch.zeros((), device=backend.device)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for batch in backend.feed(_batches(reviews, mine, batch_size)):
            with precision.autocast(options, backend.device):
                logits = model(batch["input_ids"], batch["attention_mask"])
            # Summed on the device: fetching each batch's number would make it wait.
            right = right + ((logits.argmax(dim=1) == batch["labels"]) * batch[_COUNTED]).sum()
    model.train(was_training)
    total_right, total = backend.sum([float(right.item()), float(len(mine))])
    return total_right / total


def _batches(reviews: Encoded, indices: range, size: int) -> Iterator[Batch]:
    """Yield batches of one shape: the last is filled up with reviews that do not count."""
    for begin in range(0, len(indices), size):
        part = indices[begin : begin + size]
        filled = [*part, *[part[-1]] * (size - len(part))]
        counted = (torch.arange(size) < len(part)).long()
        yield {**reviews.rows(filled), _COUNTED: counted}
