"""A rank's device, and its way to the other ranks. The rest of a training does not depend on the kind of device."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Batch

_CONNECT = timedelta(minutes=30)
"""Longest wait of ranks for each other: nodes pull an image of gigabytes, and rank 0 may hash a checkpoint."""


class Backend:
    """A device that runs operations one by one: a CPU over gloo, an NVIDIA GPU over NCCL, or a logical NeuronCore by
    TorchNeuron (beta; Trn2, Trn3). :func:`~trainium_workloads.training.backends.start` makes one.

    Args:
        options: of the training.

    Raises:
        RefusalError: the device or its package is not here, or the launcher's variables are not all set.
    """

    def __init__(self, options: Options) -> None:
        self.name = options.backend
        self.rank, self.world_size, self.local_rank = _place()
        self.device = torch.device("cpu")
        group = self._open(options)
        if "RANK" not in os.environ:  # one process alone: no port is opened
            group |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        dist.init_process_group(timeout=_CONNECT, **group)
        is_gloo = group["backend"] == "gloo"
        self.hosts = None if is_gloo else dist.new_group(backend="gloo", timeout=_CONNECT)
        """The ranks' processes over gloo, whatever their devices are; None where that is the default group."""
        self.beside = dist.new_group(backend="gloo", timeout=_CONNECT)
        """The same for another thread: in one group the calls of two threads have another order in each rank."""

    def _open(self, options: Options) -> dict[str, Any]:
        """Take this rank's device; return the settings of its process group."""
        if options.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        if self.name == "cuda":
            found = torch.cuda.device_count()
            if self.local_rank >= found:
                raise RefusalError(f"backend cuda: local rank {self.local_rank} has no GPU, there are {found} here")
            self.device = torch.device("cuda", self.local_rank)
            torch.cuda.set_device(self.device)
            return {"backend": "cpu:gloo,cuda:nccl", "device_id": self.device}
        if self.name == "neuron":
            try:
                import torch_neuronx  # noqa: F401 - registers the device and the backend
            except ImportError:
                raise needs("torch_neuronx", "neuron", "AWS' image of TorchNeuron") from None
            self.device = torch.device("neuron")
            return {"backend": "neuron"}
        return {"backend": "gloo"}

    def seed(self, value: int) -> None:
        """Seed the random numbers of the device and the host."""
        torch.manual_seed(value)

    def feed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the micro-batches on the device, read ahead where that overlaps with computing."""
        for batch in batches:
            yield {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def compile(self, model: nn.Module) -> None:
        """Run the model by ``torch.compile`` from now on; names of its parameters stay."""
        model.compile(backend="neuron" if self.name == "neuron" else "inductor")

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make each tensor the mean over all ranks."""
        if self.world_size == 1:
            return
        if self.device.type == "cpu":  # over gloo an exchange for each tensor takes longer than copies of all
            for kind in dict.fromkeys(each.dtype for each in tensors):
                some = [each for each in tensors if each.dtype == kind]
                whole = torch.cat([each.flatten() for each in some])
                dist.all_reduce(whole)
                parts = whole.div_(self.world_size).split([each.numel() for each in some])
                for each, part in zip(some, parts, strict=True):
                    each.copy_(part.view_as(each))
            return
        # All are on their way before the first is awaited.
        for work in [dist.all_reduce(each, async_op=True) for each in tensors]:
            work.wait()
        for each in tensors:
            each.div_(self.world_size)

    def end_update(self) -> None:
        """End an update of the parameters: on XLA the traced graph ends here, and runs."""

    def bring(self, values: torch.Tensor) -> Callable[[], list[float]]:
        """Return a function that waits for numbers of the device, and not for what is computed after them."""
        if self.name != "cuda":
            return lambda: [float(each) for each in values.cpu()]
        host, arrived = values.to("cpu", non_blocking=True), torch.cuda.Event()
        arrived.record()

        def wait() -> list[float]:
            arrived.synchronize()
            return [float(each) for each in host]

        return wait

    def to_host(self, state: Any) -> Any:
        """Return nested dictionaries and lists with their tensors on the CPU, to save."""
        return _on_host(state)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return sums over the ranks, in FP64, between the hosts: no device waits."""
        if self.world_size == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(shared, group=self.hosts)
        return [float(value) for value in shared]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any rank."""
        return self.sum([float(flag)])[0] > 0

    def share(self, text: str) -> str:
        """Return rank 0's text, in all ranks."""
        told = [text]
        dist.broadcast_object_list(told, src=0, group=self.hosts)
        return told[0]

    def enter_thread(self) -> None:
        """Prepare another thread of this process: PyTorch would take the first GPU of the node in it."""
        if self.name == "cuda":
            torch.cuda.set_device(self.device)

    def gather(self, value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
        """Return the values of all ranks, by rank, in all ranks; by :attr:`hosts` or another group."""
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value, group=group or self.hosts)
        return found

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier(group=self.hosts)

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


def _place() -> tuple[int, int, int]:
    """Return rank, number of ranks and local rank by the launcher's variables; one process without them."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if not os.environ.get(name)]
    if "RANK" in missing and "WORLD_SIZE" in missing:
        return 0, 1, 0
    if missing:
        raise RefusalError(f"{', '.join(missing)} not set: start the ranks by torchrun or trainium_workloads.gang")
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0"))


def _on_host(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().cpu()
    if isinstance(state, dict):
        return {key: _on_host(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_on_host(value) for value in state)
    return state


def needs(package: str, backend: str, image: str) -> RefusalError:
    """Return the refusal for an image without a backend's package."""
    return RefusalError(f"backend {backend} needs the package {package}, which {image} has; this image does not")
