"""What all backends are: one protocol, so that the rest of a training does not know which it has."""

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
    """What updates parameters: PyTorch's optimizers, and those that wrap one."""

    def step(self) -> object:
        """One update."""
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
        """Of the random numbers that are drawn on the device and on the host."""

    @abstractmethod
    def feed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The micro-batches on the device, read ahead where that overlaps with computing."""

    @abstractmethod
    def compile(self, model: nn.Module) -> None:
        """Has the model run by ``torch.compile`` from now on; names of its parameters stay."""

    @abstractmethod
    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Makes each gradient the mean over all ranks."""

    @abstractmethod
    def step(self, optimizer: Optimizer) -> None:
        """Updates the parameters; on XLA the graph that was traced ends here, and runs."""

    @abstractmethod
    def to_host(self, state: Any) -> Any:
        """Nested dictionaries and lists with their tensors on the CPU, to save."""

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, between the hosts: no device waits."""
        return self._hosts.sum(values)

    def any(self, flag: bool) -> bool:
        """Whether it holds in any rank."""
        return self._hosts.sum([float(flag)])[0] > 0

    def share(self, text: str) -> str:
        """Rank 0's text, in all ranks."""
        return self._hosts.share(text)

    def barrier(self) -> None:
        """Waits for all ranks."""
        self._hosts.barrier()

    def close(self) -> None:
        """Leaves the group."""
        self._hosts.close()


def needs(package: str, backend: str, image: str) -> Refusal:
    """What to say where an image lacks what a backend needs."""
    return Refusal(f"backend {backend} needs the package {package}, which {image} has; this image does not")
