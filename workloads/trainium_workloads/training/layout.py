"""Layout of a model over the ranks, and its checkpoints. Here: a whole copy in each (data parallel)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

from trainium_workloads.checkpoint import Checkpoint, Checkpoints, os_error, sealed
from trainium_workloads.training import optimizing
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.options import Options
from trainium_workloads.training.precision import parameter_type

Facts = dict[str, Any]
"""Facts in a checkpoint, besides the state: plain numbers, strings and dictionaries of them."""

Saved = dict[str, Any]
"""What a rank saves: the state of model and optimizer, as nested dictionaries and lists."""

_FACTS, _STATE = "facts.json", "state.pt"
_MOMENTS_BYTES = 8
"""Of each number that is learnt, AdamW and LAMB keep two moments in FP32."""
_Result = TypeVar("_Result")


class Layout:
    """A whole model in each rank; gradients are averaged between them. Other layouts derive from it."""

    sharding = "none"
    """Name of the layout, on which a checkpoint must agree."""

    def place(self, model: nn.Module, backend: Backend, options: Options) -> nn.Module:
        """Return the model on its devices; the optimizer is made of its parameters afterwards. Refusal: this layout
        cannot be had there."""
        kind, parameters = parameter_type(options), list(model.parameters())
        for each in parameters:
            # Buffers stay: in BF16 the frequencies of rotary positions would lose five digits.
            if each.is_floating_point() and (each.requires_grad or kind is torch.bfloat16):
                each.data = each.data.to(kind)
        model.to(backend.device)
        if len(list(model.parameters())) > len(parameters):
            model.tie_weights()  # a move to XLA gave each layer a separate parameter
        return model

    def data_ranks(self, backend: Backend) -> tuple[int, int]:
        """Return this rank's number among the ranks with different data, and the number of such ranks."""
        return backend.rank, backend.world_size

    def begin_micro_batch(self, model: nn.Module, *, is_last: bool) -> None:
        """Prepare the passes of a micro-batch; gradients need to travel in a step's last alone."""

    def reduce(self, model: nn.Module, backend: Backend) -> None:
        """Average the gradients over all ranks, where that has not happened in the backward pass."""
        backend.average([each.grad for each in model.parameters() if each.grad is not None])

    def saved_bytes(self, model: nn.Module, backend: Backend) -> int:
        """Return the bytes of this rank's part of a checkpoint, also before the first update makes the optimizer's
        moments."""
        is_whole = self.sharding == "none"
        saved = [(local(each), each.requires_grad) for each in model.parameters() if is_whole or each.requires_grad]
        found = sum(part.nbytes + is_learnt * _MOMENTS_BYTES * part.numel() for part, is_learnt in saved)
        return 0 if is_whole and backend.rank else found

    def state(self, model: nn.Module, optimizer: torch.optim.Optimizer, backend: Backend) -> Saved:
        """Return this rank's part of a checkpoint, on its device; the next update may change it."""
        return {} if backend.rank else {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def to_write(self, state: Saved, backend: Backend) -> Saved:
        """Return a state that is not copied as it can be written."""
        return dict(backend.to_host(state))

    def save(self, checkpoints: Checkpoints, step: int, state: Saved, facts: Facts, backend: Backend) -> Checkpoint:
        """Save a checkpoint; called in all ranks, perhaps beside the training. Each rank writes and hashes its files;
        rank 0 makes a checkpoint of them when all are done. OSError in all ranks, if one of them could not write; the
        checkpoints before stay."""

        def write() -> dict[str, str]:
            files = self._write_state(part, state, backend)
            if is_first:
                (part / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
                files.append(part / _FACTS)
            return {file.name: sealed(file) for file in files}

        is_first = backend.rank == 0
        # Only rank 0's results of the first and the last call are taken.
        part = _in_all(backend, lambda: checkpoints.begin(step) if is_first else Path())[0]
        sums = {name: digest for each in _in_all(backend, write) for name, digest in each.items()}
        return _in_all(backend, lambda: checkpoints.complete(step, sums) if is_first else Checkpoint(step, part))[0]

    def _write_state(self, part: Path, state: Saved, backend: Backend) -> list[Path]:
        """Write this rank's files into the directory of a checkpoint; return their paths."""
        if backend.rank:
            return []
        with (part / _STATE).open("wb") as file:  # by Python, which names the operating system's error
            torch.save(state, file)
        return [part / _STATE]

    def load(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load a checkpoint's state into model and optimizer; called in all ranks."""
        # Mapped into memory: the ranks of a node share its pages.
        state = torch.load(checkpoint / _STATE, map_location="cpu", mmap=True, weights_only=True)
        model.load_state_dict(state["model"])
        optimizing.load_state(optimizer, state["optimizer"])


def facts_of(checkpoint: Path) -> Facts:
    """Return the facts in a checkpoint; no tensor is read."""
    return dict(json.loads((checkpoint / _FACTS).read_text(encoding="utf-8")))


@torch.no_grad()  # type: ignore[untyped-decorator]
def copied(state: Any, earlier: Any = None, made: dict[object, Tensor] | None = None) -> Any:
    """Return a copy of a rank's state in the host's memory, which no update changes: in the memory of an earlier copy,
    where there is one. ``made`` has the tensors of this copy, because tied weights are copied once."""
    made = {} if made is None else made
    if isinstance(state, dict):
        before = earlier if isinstance(earlier, dict) else {}
        return {key: copied(value, before.get(key), made) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(copied(value, None, made) for value in state)
    if not isinstance(state, Tensor):
        return state
    part = local(state)
    has_address = part.numel() and part.device.type != "xla"
    key = (part.data_ptr() if has_address else id(state), state.shape, part.stride(), part.dtype)
    if key not in made:
        if isinstance(earlier, Tensor) and (local(earlier).shape, earlier.dtype) == (part.shape, part.dtype):
            made[key] = earlier
            local(earlier).copy_(part)
        else:
            made[key] = state.detach().to("cpu", copy=True)
    return made[key]


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, which is all of it where it is not distributed."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _in_all(backend: Backend, write: Callable[[], _Result]) -> list[_Result]:
    """Return the results of all ranks; OSError in all ranks, if one of them could not write."""
    found, fault = None, ""
    try:
        found = write()
    except (OSError, RuntimeError, CheckpointException) as error:
        causes = [each for each, _ in error.failures.values()] if isinstance(error, CheckpointException) else [error]
        # PyTorch's writer says "unexpected pos" on a full disk, and between the ranks a failure loses its cause.
        fault = "; ".join(sorted({str(os_error(each) or f"{each} (is the disk full?)") for each in causes}))
    results = backend.gather((found, fault), backend.beside)
    if faults := [each for _, each in results if each]:
        raise OSError(faults[0])
    return [each for each, _ in results]
