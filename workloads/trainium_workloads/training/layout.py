"""Layout of a model over the ranks, and its checkpoints. Here: a whole copy in each (data parallel)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainium_workloads.checkpoint import Checkpoint, Checkpoints
from trainium_workloads.training import optimizing
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options
from trainium_workloads.training.precision import parameter_type

Facts = dict[str, Any]
"""Facts in a checkpoint, besides the state: plain numbers, strings and dictionaries of them."""


class Layout(Protocol):
    """Layout of a model over the ranks."""

    def place(self, model: nn.Module, backend: Backend, options: Options) -> nn.Module:
        """Return the model on its devices; the optimizer is made of its parameters afterwards.

        Raises:
            Refusal: this layout cannot be had there.
        """
        ...

    def data_ranks(self, backend: Backend) -> tuple[int, int]:
        """Return this rank's number among the ranks with different data, and the number of such ranks."""
        ...

    def micro_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Return a context for the passes of a micro-batch; gradients need to travel in a step's last alone."""
        ...

    def reduce(self, model: nn.Module, backend: Backend) -> None:
        """Average the gradients over all ranks, where that has not happened in the backward pass."""
        ...

    def clip(self, model: nn.Module, limit: float) -> Tensor:
        """Limit the norm of all gradients together (0: no limit); return their norm before."""
        ...

    def save(
        self,
        checkpoints: Checkpoints,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        facts: Facts,
        backend: Backend,
    ) -> Checkpoint | None:
        """Save a checkpoint; called in all ranks. Rank 0 gets the checkpoint, the others None.

        Raises:
            OSError: in all ranks, if one of them could not write; the checkpoints before stay.
        """
        ...

    def facts(self, checkpoint: Path) -> Facts:
        """Return the facts in a checkpoint; no tensor is read.

        Raises:
            Refusal: it is of another layout.
        """
        ...

    def load(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, backend: Backend) -> None:
        """Load a checkpoint's state into model and optimizer; called in all ranks."""
        ...


class Replicated:
    """A whole model in each rank; gradients are averaged between them."""

    def place(self, model: nn.Module, backend: Backend, options: Options) -> nn.Module:
        kind, parameters = parameter_type(options), list(model.parameters())
        for each in parameters:
            # Buffers stay: in BF16 the frequencies of rotary positions would lose five digits.
            if each.is_floating_point() and (each.requires_grad or kind is torch.bfloat16):
                each.data = each.data.to(kind)
        model.to(backend.device)
        if len(list(model.parameters())) > len(parameters):
            model.tie_weights()  # a move to XLA gave each layer a parameter of its own
        return model

    def data_ranks(self, backend: Backend) -> tuple[int, int]:
        return backend.rank, backend.world_size

    def micro_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        return nullcontext()

    def reduce(self, model: nn.Module, backend: Backend) -> None:
        backend.reduce_gradients(model.parameters())

    def clip(self, model: nn.Module, limit: float) -> Tensor:
        return optimizing.clip(model.parameters(), limit)

    def save(
        self,
        checkpoints: Checkpoints,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        facts: Facts,
        backend: Backend,
    ) -> Checkpoint | None:
        saved, error = None, None
        if backend.rank == 0:
            state = backend.to_host({"facts": facts, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
            try:
                saved = checkpoints.save(step, lambda file: torch.save(state, file))
            except (OSError, RuntimeError) as caught:  # PyTorch's writer makes a RuntimeError of a full disk
                error = caught
        if backend.any(error is not None):
            raise OSError(f"{error or 'rank 0 could not write'}")
        return saved

    def facts(self, checkpoint: Path) -> Facts:
        return dict(_read(checkpoint)["facts"])

    def load(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, backend: Backend) -> None:
        state = _read(checkpoint)
        model.load_state_dict(state["model"])
        optimizing.load_state(optimizer, state["optimizer"])


def _read(checkpoint: Path) -> Mapping[str, Any]:
    """Return a checkpoint, mapped into memory: the ranks of a node share its pages."""
    if checkpoint.is_dir():
        from trainium_workloads.training.refusal import Refusal

        raise Refusal(f"{checkpoint} is of a sharded training: another --output, or --sharding full")
    found: Mapping[str, Any] = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)
    return found
