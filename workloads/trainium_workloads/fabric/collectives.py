"""Timed collectives of all ranks, or of pairs of nodes, on the device of the backend."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainium_workloads.fabric.hunt import Pair
from trainium_workloads.training.backends import Backend

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter")
SIZES = (*(8 * 8**step for step in range(9)), 1 << 30)
"""Bytes: 8 B to 128 MiB by factors of 8, then 1 GiB."""
_ELEMENT = 4
"""Bytes of a float32."""
_LARGE = 64 << 20


@dataclass(frozen=True)
class Floor:
    """Longest time of a collective: a latency, and a bus bandwidth."""

    gigabytes_per_second: float
    latency_seconds: float

    def limit(self, operation: str, size: int, ranks: int) -> float:
        """Return the longest time, seconds."""
        return self.latency_seconds + traffic(operation, size, ranks) / (self.gigabytes_per_second * 1e9)


@dataclass(frozen=True)
class Measured:
    """Time of a collective."""

    operation: str
    size: int
    """Bytes of the larger buffer in each rank."""
    seconds: float
    """Median over the repetitions, of the slowest rank."""
    bandwidth: float
    """Bus bandwidth, GB/s."""
    limit: float | None
    """Longest time that keeps the floor, seconds; None without a floor."""

    @property
    def ok(self) -> bool:
        """Whether the floor is kept."""
        return self.limit is None or self.seconds <= self.limit


class WrongResult(Exception):  # noqa: N818 - reads as what it is where it is raised
    """A collective that gave wrong numbers."""


def traffic(operation: str, size: int, ranks: int) -> float:
    """Return the bytes that pass each rank's link in a ring: the definition of bus bandwidth in nccl-tests."""
    return (2 if operation == "all-reduce" else 1) * size * (ranks - 1) / ranks


class Collectives:
    """Collectives of a gang.

    Args:
        backend: of this rank.
        ranks_per_node: for the pairs.
        delay: seconds that this rank holds each timed collective up, by operation, size and ranks: the injected fault.
    """

    def __init__(self, backend: Backend, ranks_per_node: int, delay: Callable[[str, int, int], float]) -> None:
        self._backend = backend
        self._ranks_per_node = ranks_per_node
        self._delay = delay
        self._groups: dict[Pair, dist.ProcessGroup] = {}

    def measure(self, operation: str, size: int, floor: Floor | None) -> Measured:
        """Return the time of a collective of all ranks; called in all of them.

        Raises:
            WrongResult: in the rank that got wrong numbers.
        """
        world = self._backend.world_size
        size = _whole(size, world)
        run = self._runner(operation, size, world, None, ())
        own = self._timed(run, operation, size, world)
        seconds = max(self._of_all(own))
        limit = floor.limit(operation, size, world) if floor and world > self._ranks_per_node else None
        return Measured(operation, size, seconds, traffic(operation, size, world) / seconds / 1e9, limit)

    def measure_pairs(self, pairs: Sequence[Pair], size: int) -> dict[Pair, float]:
        """Return the times of an all-reduce in disjoint pairs of nodes, all at the same time; called in all ranks."""
        size = _whole(size, 2 * self._ranks_per_node)
        if self._backend.name != "xla":
            for pair in pairs:  # each rank makes each group, in the same order
                self._groups[pair] = self._groups.get(pair) or dist.new_group(self._ranks_of(pair))
        node = self._backend.rank // self._ranks_per_node
        mine = next((pair for pair in pairs if node in pair), (node,))
        ranks = len(mine) * self._ranks_per_node
        if len(mine) == 1 and self._backend.name != "xla":
            self._backend.barrier()  # of the others, before they measure
            own = 0.0
        else:
            own = self._timed(self._runner("all-reduce", size, ranks, mine, pairs), "all-reduce", size, ranks)
        times = self._of_all(own)
        return {pair: max(times[rank] for rank in self._ranks_of(pair)) for pair in pairs}

    def _ranks_of(self, nodes: Sequence[int]) -> list[int]:
        return [node * self._ranks_per_node + local for node in nodes for local in range(self._ranks_per_node)]

    def _of_all(self, own: float) -> list[float]:
        values = [0.0] * self._backend.world_size
        values[self._backend.rank] = own
        return self._backend.sum(values)

    def _timed(self, run: Callable[[], Tensor], operation: str, size: int, ranks: int) -> float:
        """Return the median of this rank's times, after a run that warms up and is checked."""
        result = run()
        wanted = 1 if operation == "all-gather" else ranks
        if not bool((result == wanted).all()):
            raise WrongResult(f"rank {self._backend.rank}: wrong numbers from {operation} of {size} bytes")
        times = []
        self._backend.barrier()
        for _ in range(3 if size >= _LARGE else 5):
            begun = time.monotonic()
            time.sleep(self._delay(operation, size, ranks))
            self._wait(run())
            times.append(time.monotonic() - begun)
        return statistics.median(times)

    def _runner(
        self, operation: str, size: int, ranks: int, mine: Sequence[int] | None, pairs: Sequence[Pair]
    ) -> Callable[[], Tensor]:
        """Return a function that runs the collective on buffers of ones.

        Args:
            operation: one of :data:`OPERATIONS`.
            size: bytes of the larger buffer.
            ranks: that take part.
            mine: this rank's pair, or its node alone; None for all ranks.
            pairs: of all nodes, with ``mine``.
        """
        elements = size // _ELEMENT
        device = self._backend.device
        part = torch.ones(elements // ranks, dtype=torch.float32, device=device)
        whole = torch.ones(elements, dtype=torch.float32, device=device)
        if self._backend.name == "xla":
            return self._xla_runner(operation, part, whole, ranks, self._partition(pairs))
        group = None if mine is None else self._groups[(mine[0], mine[1])]

        def all_reduce() -> Tensor:
            whole.fill_(1)
            dist.all_reduce(whole, group=group)
            return whole

        def all_gather() -> Tensor:
            dist.all_gather_into_tensor(whole, part, group=group)
            return whole

        def reduce_scatter() -> Tensor:
            dist.reduce_scatter_tensor(part, whole, group=group)
            return part

        runners: Mapping[str, Callable[[], Tensor]] = {
            "all-reduce": all_reduce,
            "all-gather": all_gather,
            "reduce-scatter": reduce_scatter,
        }
        return runners[operation]

    def _xla_runner(
        self, operation: str, part: Tensor, whole: Tensor, ranks: int, groups: list[list[int]] | None
    ) -> Callable[[], Tensor]:
        """Return the function for PyTorch/XLA: a partition of all ranks stands in place of a group."""
        import torch_xla
        import torch_xla.core.xla_model as xla_model

        def run() -> Tensor:
            if operation == "all-reduce":
                made: Tensor = xla_model.all_reduce(xla_model.REDUCE_SUM, whole, groups=groups)
            elif operation == "all-gather":
                made = xla_model.all_gather(part, groups=groups)
            else:
                made = xla_model.reduce_scatter(
                    xla_model.REDUCE_SUM, whole, scale=1.0, scatter_dim=0, shard_count=ranks, groups=groups
                )
            torch_xla.sync()
            return made

        return run

    def _partition(self, pairs: Sequence[Pair]) -> list[list[int]] | None:
        """Return the ranks of each pair, and of each node without a partner: XLA wants each rank in one group."""
        if not pairs:
            return None
        paired = {node for pair in pairs for node in pair}
        alone = [(node,) for node in range(self._backend.world_size // self._ranks_per_node) if node not in paired]
        return [self._ranks_of(nodes) for nodes in (*pairs, *alone)]

    def _wait(self, result: Tensor) -> None:
        """Wait for the device: to read one number is a way that every backend has."""
        result.reshape(-1)[-1].item()


def _whole(size: int, ranks: int) -> int:
    """Return the size with an equal whole number of elements for each rank, one at least."""
    return max(round(size / _ELEMENT / ranks), 1) * ranks * _ELEMENT
