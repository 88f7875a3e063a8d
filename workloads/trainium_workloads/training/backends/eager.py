"""Backends that run operations one by one: CPUs over gloo, NVIDIA GPUs over NCCL, Trainium by TorchNeuron."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainium_workloads.training.backends.backend import Backend, Optimizer, needs
from trainium_workloads.training.backends.hosts import HostGroup, Ranks, join, on_host, ranks
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch

_BUCKET_BYTES = 25 << 20
"""Bytes of gradients that travel together: the default of PyTorch's DistributedDataParallel."""


class EagerBackend(Backend):
    """Common part of the three backends."""

    compiler: ClassVar[str] = "inductor"
    """Backend of ``torch.compile``."""

    def __init__(self, mine: Ranks, device: torch.device, hosts: HostGroup, options: Options) -> None:
        super().__init__(mine, device, hosts)
        if options.precision == "tf32":
            torch.set_float32_matmul_precision("high")

    def seed(self, value: int) -> None:
        torch.manual_seed(value)

    def feed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def compile(self, model: nn.Module) -> None:
        model.compile(backend=self.compiler)

    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        if self.world_size == 1:
            return
        gradients = [each.grad for each in parameters if each.grad is not None]
        # All are on their way before the first is awaited.
        travelling = [(bucket, *_sent(bucket)) for bucket in _buckets(gradients)]
        for bucket, flat, work in travelling:
            work.wait()
            flat.div_(self.world_size)
            for gradient, part in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def step(self, optimizer: Optimizer) -> None:
        optimizer.step()

    def to_host(self, state: Any) -> Any:
        return on_host(state)


def _sent(bucket: list[Tensor]) -> tuple[Tensor, Any]:
    flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
    return flat, dist.all_reduce(flat, async_op=True)


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield buckets of one type each. The last gradients come first, as they are the first to be known."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in reversed(gradients):
        if bucket and (size > _BUCKET_BYTES or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.numel() * gradient.element_size()
    if bucket:
        yield bucket


class CpuBackend(EagerBackend):
    """Any number of ranks on the CPU."""

    name = "cpu"

    def __init__(self, options: Options) -> None:
        mine = ranks()
        super().__init__(mine, torch.device("cpu"), join("gloo", mine), options)


class CudaBackend(EagerBackend):
    """A GPU for each rank."""

    name = "cuda"

    def __init__(self, options: Options) -> None:
        mine = ranks()
        found = torch.cuda.device_count()
        if mine.local_rank >= found:
            raise Refusal(f"backend cuda: local rank {mine.local_rank} has no GPU, there are {found} here")
        device = torch.device("cuda", mine.local_rank)
        torch.cuda.set_device(device)
        super().__init__(mine, device, join("cpu:gloo,cuda:nccl", mine, device_id=device), options)


class NeuronBackend(EagerBackend):
    """A logical NeuronCore for each rank, by TorchNeuron (beta; Trn2, Trn3).

    As its guide to torch.distributed has it: importing torch_neuronx registers the device and the backend ``neuron``.
    """

    name = "neuron"
    compiler = "neuron"

    def __init__(self, options: Options) -> None:
        try:
            import torch_neuronx
        except ImportError:
            raise needs("torch_neuronx", "neuron", "AWS' image of TorchNeuron") from None
        del torch_neuronx
        mine = ranks()
        super().__init__(mine, torch.device("neuron"), join("neuron", mine), options)
