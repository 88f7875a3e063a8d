"""A model with a part in each rank: PyTorch's FSDP2 (fully sharded data parallel), and tensor parallelism.

The ranks form a grid: ranks of a row, neighbours on one node, divide each layer between them and see the same data;
ranks of a column see different data, and each keeps a part of the row's parameters, gradients and optimizer state, all
in FP32. A block's parameters are gathered when it runs, in the precision of the computation.
"""

import json
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as distributed_checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from trainium_workloads.checkpoint import Checkpoint, Checkpoints, os_error, sha256
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.layout import Facts
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import Refusal

GradientSync = Literal["last", "each"]
"""After which micro-batches of a step gradients travel. ``last``: once, and between them each rank holds gradients of
the whole model in FP32. ``each``: after every one, and a rank holds its part only."""

_FACTS: Final = "facts.json"


_LEARNT: Final = StateDictOptions(ignore_frozen_params=True, strict=False)
"""Frozen weights are in no checkpoint: they are read anew from the model."""


class Sharded:
    """A part of the model in each rank.

    The model comes divided, as it was made: no process ever holds a whole one. Parameters that are no distributed
    tensors, such as small adapters, are the same in all ranks.

    Args:
        tensor_parallel: ranks that divide each layer; 1 for none. They should be on one node.
        gradient_sync: when gradients travel. Where layers are divided it is ``each``: transformers sums the gradients
            of norms over a layer's ranks after each backward pass, sums of earlier passes included.
    """

    def __init__(self, tensor_parallel: int = 1, gradient_sync: GradientSync = "last") -> None:
        self._tensor_parallel = tensor_parallel
        self._gradient_sync = gradient_sync if tensor_parallel == 1 else "each"
        self._hosts: dist.ProcessGroup | None = None

    def data_ranks(self, backend: Backend) -> tuple[int, int]:
        """See :class:`~.layout.Layout`; neighbours that divide layers share data.

        Raises:
            Refusal: the ranks form no grid.
        """
        columns = self._tensor_parallel
        if columns < 1 or backend.world_size % columns:
            raise Refusal(f"--tensor-parallel {columns} does not divide the {backend.world_size} ranks")
        return backend.rank // columns, backend.world_size // columns

    def place(self, model: nn.Module, backend: Backend, options: Options) -> nn.Module:
        """See :class:`~.layout.Layout`.

        Args:
            model: divided by FSDP2, on its devices.
            backend: of this rank.
            options: of the training.
        """
        check(options)
        # Between the hosts, for all kinds of devices: for files of checkpoints.
        self._hosts = dist.new_group(backend="gloo")
        return model

    def micro_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """See :class:`~.layout.Layout`."""
        assert isinstance(model, FSDPModule)
        model.set_requires_gradient_sync(is_last or self._gradient_sync == "each")
        return nullcontext()

    def reduce(self, model: nn.Module, backend: Backend) -> None:
        """Average the gradients of parameters that are whole; FSDP averaged the others in the backward pass."""
        backend.reduce_gradients(each for each in model.parameters() if not isinstance(each, DTensor))

    def clip(self, model: nn.Module, limit: float) -> Tensor:
        """See :class:`~.layout.Layout`. One sum over all ranks, of their parts' squares."""
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        squares = [local_part(each).float().square().sum() / _copies(each) for each in gradients]
        total = torch.stack(squares).sum()
        dist.all_reduce(total)
        norm = total.sqrt()
        if limit:
            factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
            for each in gradients:
                local_part(each).mul_(factor)
        return norm

    def save(
        self,
        checkpoints: Checkpoints,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        facts: Facts,
        backend: Backend,
    ) -> Checkpoint | None:
        """See :class:`~.layout.Layout`. Each rank writes and hashes a file; rank 0 makes a checkpoint of the
        directory when all are done."""
        is_first = backend.rank == 0
        begun, fault = _tried(lambda: str(checkpoints.begin_directory(step))) if is_first else ("", "")
        begun, fault = json.loads(backend.share(json.dumps([begun, fault])))
        _raise(fault)
        part = Path(begun)
        sums, fault = _tried(lambda: self._write(part, model, optimizer, facts if is_first else None, backend.rank))
        gathered: list[Any] = [None] * backend.world_size
        dist.all_gather_object(gathered, [sums, fault], group=self._hosts)
        _raise(next((each for _, each in gathered if each), ""))
        saved = None
        if is_first:
            of_all = {name: digest for files, _ in gathered for name, digest in files.items()}
            saved, fault = _tried(lambda: checkpoints.complete_directory(step, of_all))
        _raise(backend.share(fault))
        return saved

    def _write(
        self, part: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: Facts | None, rank: int
    ) -> dict[str, str]:
        """Write this rank's files, with facts also the common files; return the SHA-256 of each."""
        own_model, own_optimizer = get_state_dict(model, optimizer, options=_LEARNT)
        with warnings.catch_warnings():
            # PyTorch's writer warns of itself, in each rank.
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
            distributed_checkpoint.save(
                {"model": own_model, "optimizer": own_optimizer},
                storage_writer=FileSystemWriter(part, overwrite=False),
                process_group=self._hosts,
            )
        files = sorted(part.glob(f"__{rank}_*"))
        if facts is not None:
            (part / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
            files += [part / ".metadata", part / _FACTS]
        return {path.name: sha256(path) for path in files}

    def facts(self, checkpoint: Path) -> Facts:
        """See :class:`~.layout.Layout`."""
        if not checkpoint.is_dir():
            raise Refusal(f"{checkpoint} is of a training that was not sharded: another --output, or --sharding none")
        return dict(json.loads((checkpoint / _FACTS).read_text(encoding="utf-8")))

    def load(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, backend: Backend) -> None:
        """See :class:`~.layout.Layout`. It may be of any number of ranks: each reads the overlap with its part."""
        own_model, own_optimizer = get_state_dict(model, optimizer, options=_LEARNT)
        state = {"model": own_model, "optimizer": own_optimizer}
        distributed_checkpoint.load(state, storage_reader=FileSystemReader(checkpoint), process_group=self._hosts)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=_LEARNT
        )


def check(options: Options) -> None:
    """Check that a training can be sharded; called before anything is started.

    Raises:
        Refusal: FSDP2 cannot be used with these options.
    """
    if options.backend == "xla":
        raise Refusal(
            "--sharding full is PyTorch's FSDP2, which PyTorch/XLA has not: use Trn2 or later (backend neuron), a GPU, "
            "or --sharding none with a model that fits on one NeuronCore"
        )
    if options.precision in ("fp16", "fp8"):
        raise Refusal(f"--sharding full has no --precision {options.precision}: use bf16")
    # On Trainium the variable for it is set for every job, and only changes the hardware's casts.
    if options.stochastic_rounding and options.backend in ("cpu", "cuda"):
        raise Refusal("--sharding full keeps its parameters in FP32 and needs no --stochastic-rounding: leave it out")


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor; changes to it are changes to the tensor."""
    data = tensor.detach()
    local: Tensor = data.to_local() if isinstance(data, DTensor) else data
    return local


def _copies(tensor: Tensor) -> int:
    """Return the number of ranks with the same part."""
    parts = 1
    if isinstance(tensor, DTensor):
        for number, placement in enumerate(tensor.placements):
            parts *= 1 if placement.is_replicate() else tensor.device_mesh.size(number)
    return dist.get_world_size() // parts


def _tried(write: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result, or the reason why it could not be written."""
    try:
        return write(), ""
    except (OSError, CheckpointException) as error:
        causes = error.failures.values() if isinstance(error, CheckpointException) else ()
        # Between the ranks a failure loses its cause, and PyTorch's writer says "unexpected pos" on a full disk.
        said = {str(os_error(cause) or f"{cause} (is the disk full?)") for cause, _ in causes}
        return None, "; ".join(sorted(said)) or str(error)


def _raise(fault: str) -> None:
    if fault:
        raise OSError(f"the checkpoint cannot be written: {fault}")
