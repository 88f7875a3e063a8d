"""Logits of a classifier, and its accuracy on reviews."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainium_workloads.model_directory import prepared_mask
from trainium_workloads.tokenized import Rows
from trainium_workloads.training import precision
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options
from trainium_workloads.training.task import Batch

_COUNTED = "counted"


def logits(model: Any, batch: Batch) -> Tensor:
    """Return the logits of a batch, [reviews, labels]."""
    mask = batch["attention_mask"]
    if model.config._attn_implementation == "eager":
        mask = prepared_mask(mask, model)
    found: Tensor = model(input_ids=batch["input_ids"], attention_mask=mask).logits
    return found


def accuracy(model: Any, reviews: Rows, backend: Backend, options: Options, most: int = 0) -> float:
    """Return the share of reviews that the model on the device judges right, 0 to 1; each rank judges its part.
    ``most`` is the number of reviews in all; 0 for all that there are."""
    count = min(most or len(reviews), len(reviews))
    mine = range(backend.rank, count, backend.world_size)
    right = torch.zeros((), device=backend.device)
    model.eval()
    with torch.no_grad():
        for batch in backend.feed(_batches(reviews, mine, options.batch_size)):
            with precision.autocast(options, backend.device):
                found = logits(model, batch)
            # Summed on the device: fetching each batch's number would make it wait.
            right = right + ((found.argmax(dim=1) == batch["labels"]) * batch[_COUNTED]).sum()
    total_right, total = backend.sum([float(right.item()), float(len(mine))])
    return total_right / total


def _batches(reviews: Rows, indices: range, size: int) -> Iterator[Batch]:
    """Yield batches of one shape: the last is filled up with reviews that do not count."""
    for begin in range(0, len(indices), size):
        part = indices[begin : begin + size]
        filled = [*part, *[part[-1]] * (size - len(part))]
        yield {**reviews.at(filled), _COUNTED: (torch.arange(size) < len(part)).long()}
