"""Timed collectives of all ranks, or of pairs of nodes, on the device of the backend."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainium_workloads.fabric.slow_node_search import Pair
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
class CollectiveTime:
    """Time of a collective of some bytes: seconds (median of the slowest rank), bus bandwidth in GB/s, and the longest
    time that keeps the floor (None without a floor)."""

    operation: str
    size: int
    seconds: float
    bandwidth: float
    limit: float | None

    @property
    def ok(self) -> bool:
        """Whether the floor is kept."""
        return self.limit is None or self.seconds <= self.limit


def traffic(operation: str, size: int, ranks: int) -> float:
    """Return the bytes that pass each rank's link in a ring: the definition of bus bandwidth in nccl-tests."""
    return (2 if operation == "all-reduce" else 1) * size * (ranks - 1) / ranks


class Collectives:
    """Collectives of a gang. ``delay`` gives the seconds that this rank holds each timed collective up, by operation,
    size and ranks: the injected fault."""

    def __init__(self, backend: Backend, ranks_per_node: int, delay: Callable[[str, int, int], float]) -> None:
        self._backend, self._ranks_per_node, self._delay = backend, ranks_per_node, delay
        self._groups: dict[Pair, dist.ProcessGroup] = {}

    def measure(self, operation: str, size: int, floor: Floor | None) -> CollectiveTime:
        """Return the time of a collective of all ranks; called in all of them. ArithmeticError in the rank that got
        wrong numbers."""
        world = self._backend.world_size
        size = _whole(size, world)
        seconds = max(self._of_all(self._timed(operation, size, world, None, None)))
        limit = floor.limit(operation, size, world) if floor and world > self._ranks_per_node else None
        return CollectiveTime(operation, size, seconds, traffic(operation, size, world) / seconds / 1e9, limit)

    def measure_pairs(self, pairs: Sequence[Pair], size: int) -> dict[Pair, float]:
        """Return the times of an all-reduce in disjoint pairs of nodes, all at the same time; called in all ranks."""
        on_xla = self._backend.name == "xla"
        node = self._backend.rank // self._ranks_per_node
        mine: Sequence[int] = next((pair for pair in pairs if node in pair), (node,))
        group, partition = None, None
        if on_xla:  # it wants each rank in one group, and those of a node without a partner, too
            paired = {node for pair in pairs for node in pair}
            nodes = range(self._backend.world_size // self._ranks_per_node)
            partition = [self._ranks_of(each) for each in (*pairs, *((n,) for n in nodes if n not in paired))]
        else:
            for pair in pairs:  # each rank makes each group, in the same order
                self._groups[pair] = self._groups.get(pair) or dist.new_group(self._ranks_of(pair))
        own = 0.0
        if len(mine) == 1 and not on_xla:
            self._backend.barrier()  # of the others, before they measure
        else:
            group = None if on_xla else self._groups[mine[0], mine[1]]
            whole = _whole(size, 2 * self._ranks_per_node)
            own = self._timed("all-reduce", whole, len(mine) * self._ranks_per_node, group, partition)
        times = self._of_all(own)
        return {pair: max(times[rank] for rank in self._ranks_of(pair)) for pair in pairs}

    def _ranks_of(self, nodes: Sequence[int]) -> list[int]:
        return [node * self._ranks_per_node + local for node in nodes for local in range(self._ranks_per_node)]

    def _of_all(self, own: float) -> list[float]:
        values = [0.0] * self._backend.world_size
        values[self._backend.rank] = own
        return self._backend.sum(values)

    def _timed(
        self, operation: str, size: int, ranks: int, group: dist.ProcessGroup | None, partition: list[list[int]] | None
    ) -> float:
        """Return the median of this rank's times, after a run that warms up and is checked."""
        part, whole = (
            torch.ones(count, dtype=torch.float32, device=self._backend.device)
            for count in (size // _ELEMENT // ranks, size // _ELEMENT)
        )

        def run() -> Tensor:
            if self._backend.name == "xla":
                return _run_on_xla(operation, part, whole, ranks, partition)
            return _run(operation, part, whole, group)

        if not bool((run() == (1 if operation == "all-gather" else ranks)).all()):
            raise ArithmeticError(f"wrong numbers from {operation} of {size} bytes")
        times = []
        self._backend.barrier()
        for _ in range(3 if size >= _LARGE else 5):
            begun = time.monotonic()
            time.sleep(self._delay(operation, size, ranks))
            run().reshape(-1)[-1].item()  # waits for the device, on every backend
            times.append(time.monotonic() - begun)
        return statistics.median(times)


def _run(operation: str, part: Tensor, whole: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    if operation == "all-reduce":
        dist.all_reduce(whole.fill_(1), group=group)
    elif operation == "all-gather":
        dist.all_gather_into_tensor(whole, part, group=group)
    else:
        dist.reduce_scatter_tensor(part, whole, group=group)
        return part
    return whole


def _run_on_xla(operation: str, part: Tensor, whole: Tensor, ranks: int, groups: list[list[int]] | None) -> Tensor:
    import torch_xla
    import torch_xla.core.xla_model as xm

    if operation == "all-reduce":
        made: Tensor = xm.all_reduce(xm.REDUCE_SUM, whole, groups=groups)
    elif operation == "all-gather":
        made = xm.all_gather(part, groups=groups)
    else:
        made = xm.reduce_scatter(xm.REDUCE_SUM, whole, scale=1.0, scatter_dim=0, shard_count=ranks, groups=groups)
    torch_xla.sync()
    return made


def _whole(size: int, ranks: int) -> int:
    """Return the size with an equal whole number of elements for each rank, one at least."""
    return max(round(size / _ELEMENT / ranks), 1) * ranks * _ELEMENT
