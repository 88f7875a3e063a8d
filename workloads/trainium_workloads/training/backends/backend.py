"""Interface of all backends, so that the rest of a training does not depend on one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from trainium_workloads.training.backends.hosts import HostGroup, Ranks
from trainium_workloads.training.options import BackendName
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch


class Optimizer(Protocol):
    """Updater of parameters: one of PyTorch's optimizers, or a wrapper of one."""

    def step(self) -> object:
        """Make one update."""
        ...


class Backend(ABC):
    """A rank's device, and its way to the other ranks. :func:`~trainium_workloads.training.backends.start` makes one.

    Args:
        mine: this rank.
        device: of this rank.
        hosts: sums between the hosts.
    """

    name: BackendName

    def __init__(self, mine: Ranks, device: torch.device, hosts: HostGroup) -> None:
        self.rank = mine.rank
        self.world_size = mine.world_size
        self.local_rank = mine.local_rank
        self.device = device
        self._hosts = hosts

    @abstractmethod
    def seed(self, value: int) -> None:
        """Seed the random numbers of the device and the host."""

    @abstractmethod
    def feed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the micro-batches on the device, read ahead where that overlaps with computing."""

    @abstractmethod
    def compile(self, model: nn.Module) -> None:
        """Run the model by ``torch.compile`` from now on; names of its parameters stay."""

    @abstractmethod
    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make each gradient the mean over all ranks."""

    @abstractmethod
    def step(self, optimizer: Optimizer) -> None:
        """Update the parameters; on XLA the graph that was traced ends here, and runs."""

    @abstractmethod
    def to_host(self, state: Any) -> Any:
        """Return nested dictionaries and lists with their tensors on the CPU, to save."""

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return sums over the ranks, between the hosts: no device waits."""
        return self._hosts.sum(values)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any rank."""
        return self._hosts.sum([float(flag)])[0] > 0

    def share(self, text: str) -> str:
        """Return rank 0's text, in all ranks."""
        return self._hosts.share(text)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._hosts.barrier()

    def close(self) -> None:
        """Leave the group."""
        self._hosts.close()


def needs(package: str, backend: str, image: str) -> Refusal:
    """Return the refusal for an image without a backend's package."""
    return Refusal(f"backend {backend} needs the package {package}, which {image} has; this image does not")
