"""The group of processes between their hosts: small sums and barriers over gloo, for all kinds of devices."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainium_workloads.training.refusal import Refusal

CONNECT = timedelta(minutes=30)
"""Longest wait of ranks for each other: nodes pull an image of gigabytes, and rank 0 may hash a checkpoint."""


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    world_size: int
    local_rank: int


def ranks() -> Ranks:
    """Return this process' rank by the launcher's variables; one process without them.

    Raises:
        Refusal: some are set, and others not.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if not os.environ.get(name)]
    if "RANK" in missing and "WORLD_SIZE" in missing:
        return Ranks(0, 1, 0)
    if missing:
        raise Refusal(f"{', '.join(missing)} not set: start the ranks by torchrun or trainium_workloads.gang")
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))


def join(backend: str, mine: Ranks, **settings: Any) -> "HostGroup":
    """Enter the process group, and make the group of the hosts.

    Args:
        backend: of the devices, as ``torch.distributed`` calls it.
        mine: this process.
        settings: for ``init_process_group``.
    """
    if "RANK" not in os.environ:
        # One process alone: no port is opened.
        settings |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, timeout=CONNECT, **settings)
    return HostGroup(None if backend == "gloo" else dist.new_group(backend="gloo", timeout=CONNECT), mine)


class HostGroup:
    """Sums and barriers between the hosts.

    Args:
        group: over gloo; None for the default group, which is over gloo then.
        mine: this process.
    """

    def __init__(self, group: dist.ProcessGroup | None, mine: Ranks) -> None:
        self._group = group
        self._alone = mine.world_size == 1

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over the ranks, in FP64."""
        if self._alone:
            return [float(value) for value in values]
        shared = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(shared, group=self._group)
        return [float(value) for value in shared]

    def share(self, text: str) -> str:
        """Return rank 0's text."""
        told = [text]
        if not self._alone:
            dist.broadcast_object_list(told, src=0, group=self._group)
        return told[0]

    def barrier(self) -> None:
        """Wait for all ranks."""
        if not self._alone:
            dist.barrier(group=self._group)

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


def on_host(state: Any) -> Any:
    """Return nested dictionaries, lists and tuples with their tensors on the CPU."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu()
    if isinstance(state, dict):
        return {key: on_host(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(on_host(value) for value in state)
    return state
