"""A model with a part in each rank: PyTorch's FSDP2 (fully sharded data parallel), and tensor parallelism.

The ranks form a grid: ranks of a row, neighbours on one node, divide each layer between them and see the same data;
ranks of a column see different data, and each keeps a part of the row's parameters, gradients and optimizer state, all
in FP32. The parameters of a block, or of all blocks of a small model, are gathered when it runs, in the precision of
the computation.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as distributed_checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from trainium_workloads.training import optimizing
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.layout import Layout, Saved
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import RefusalError

GradientSync = Literal["last", "each"]
"""After which micro-batches of a step gradients travel. ``last``: once, and between them each rank holds gradients of
the whole model in FP32. ``each``: after every one, and a rank holds its part only."""

_LEARNT: Final = StateDictOptions(ignore_frozen_params=True, strict=False)
"""Frozen weights are in no checkpoint: they are read again from the model."""


class ShardedLayout(Layout):
    """A part of the model in each rank. ``tensor_parallel`` ranks, which should be on one node, divide each layer.

    The model comes divided, as it was made: no process ever holds a whole one. Parameters that are no distributed
    tensors, such as small adapters, are the same in all ranks. A checkpoint may be of any number of ranks: each reads
    the overlap with its part. ``gradient_sync`` says when gradients travel. Where layers are divided it is ``each``:
    transformers sums the gradients of norms over a layer's ranks after each backward pass, sums of earlier passes
    included.
    """

    sharding = "full"

    def __init__(self, tensor_parallel: int = 1, gradient_sync: GradientSync = "last") -> None:
        self._tensor_parallel = tensor_parallel
        self._gradient_sync = gradient_sync if tensor_parallel == 1 else "each"
        self._hosts: dist.ProcessGroup | None = None

    def place(self, model: nn.Module, backend: Backend, options: Options) -> nn.Module:
        """Return the model, which is divided by FSDP2 and on its devices."""
        check(options)
        self._hosts = backend.hosts  # for files of checkpoints
        # PyTorch's writer warns of itself, in each rank.
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        for each in model.modules() if backend.device.type == "cpu" else ():  # over gloo
            if isinstance(each, FSDPModule):
                each.set_custom_all_gather(_Gather())
                each.set_custom_reduce_scatter(_Reduce())
        return model

    def data_ranks(self, backend: Backend) -> tuple[int, int]:
        """See :class:`~.layout.Layout`; neighbours that divide layers share data. Refused where ranks form no grid."""
        columns = self._tensor_parallel
        if columns < 1 or backend.world_size % columns:
            raise RefusalError(f"--tensor-parallel {columns} does not divide the {backend.world_size} ranks")
        return backend.rank // columns, backend.world_size // columns

    def begin_micro_batch(self, model: nn.Module, *, is_last: bool) -> None:
        if isinstance(model, FSDPModule):  # one rank may have it whole
            model.set_requires_gradient_sync(is_last or self._gradient_sync == "each")

    def reduce(self, model: nn.Module, backend: Backend) -> None:
        """Average the gradients of parameters that are whole; FSDP averaged the others in the backward pass."""
        whole = (each.grad for each in model.parameters() if not isinstance(each, DTensor))
        backend.average([each for each in whole if each is not None])

    def state(self, model: nn.Module, optimizer: torch.optim.Optimizer, backend: Backend) -> Saved:
        return _state_of(model, optimizer)

    def to_write(self, state: Saved, backend: Backend) -> Saved:
        return state  # PyTorch's writer brings one tensor after the other to the host

    def _write_state(self, part: Path, state: Saved, backend: Backend) -> list[Path]:
        writer = FileSystemWriter(part, overwrite=False, sync_files=False)
        distributed_checkpoint.save(state, storage_writer=writer, process_group=backend.beside)
        return [*part.glob(f"__{backend.rank}_*"), *([part / ".metadata"] if backend.rank == 0 else [])]

    def load(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if not optimizer.state:
            optimizing.make_state(optimizer)
        state = _state_of(model, optimizer)
        distributed_checkpoint.load(state, storage_reader=FileSystemReader(checkpoint), process_group=self._hosts)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=_LEARNT
        )


class _Exchange:
    """Exchange of FSDP2's over gloo, without the copies of whole buffers that PyTorch's make for it."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Exchange):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool) -> None:
        parts, own = output_tensor.chunk(group.size()), group.rank()  # the input is a part of the output
        others = [rank for rank in range(group.size()) if rank != own]
        running = [dist.isend(input_tensor, group=group, group_dst=rank) for rank in others]
        for work in [*running, *(dist.irecv(parts[rank], group=group, group_src=rank) for rank in others)]:
            work.wait()


class _Reduce(_Exchange):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any) -> None:
        dist.all_reduce(input_tensor, op, group)
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])


def check(options: Options) -> None:
    """Refuse options with which FSDP2 cannot be used; called before anything is started."""
    if options.backend == "xla":
        raise RefusalError(
            "--sharding full is PyTorch's FSDP2, which PyTorch/XLA has not: use Trn2 or later (backend neuron), a GPU, "
            "or --sharding none with a model that fits on one NeuronCore"
        )
    if options.precision in ("fp16", "fp8"):
        raise RefusalError(f"--sharding full has no --precision {options.precision}: use bf16")
    # On Trainium the variable for it is set for every job, and only changes the hardware's casts.
    if options.stochastic_rounding and options.backend in ("cpu", "cuda"):
        raise RefusalError(
            "--sharding full keeps its parameters in FP32 and needs no --stochastic-rounding: leave it out"
        )


def _state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Saved:
    own_model, own_optimizer = get_state_dict(model, optimizer, options=_LEARNT)
    return {"model": own_model, "optimizer": own_optimizer}
