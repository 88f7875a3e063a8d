"""Sums over all ranks: by PyTorch's gloo if PyTorch is installed, else over plain TCP.

Both take the variables that ``torchrun`` and :mod:`trainium_workloads.gang` set: ``RANK``, ``WORLD_SIZE``,
``MASTER_ADDR``, ``MASTER_PORT``.
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from importlib.util import find_spec

CONNECT_SECONDS = 300.0
"""Longest wait for the other ranks: their nodes pull an image of gigabytes."""
SILENT_SECONDS = 600.0
"""Silence after which a rank counts as dead."""


def join() -> "Reduction":
    """Join the gang that the environment describes. KeyError: the process was not started as a rank. OSError: the other
    ranks cannot be reached in time."""
    return _Gloo() if find_spec("torch") is not None else _Tcp()


class _Gloo:
    """Sums by PyTorch's process group.

    Both kinds have ``rank``, ``world_size``, ``backend`` (the name of the kind, in a word or two) and two methods.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.backend = "PyTorch gloo"
        self._torch, self._dist = torch, dist
        dist.init_process_group("gloo")
        self.rank, self.world_size = int(dist.get_rank()), int(dist.get_world_size())

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return each value's sum over all ranks, equal in each rank to the bit; all give the same number of values."""
        tensor = self._torch.tensor(list(values), dtype=self._torch.float64)
        self._dist.all_reduce(tensor)
        return [float(each) for each in tensor.tolist()]

    def close(self) -> None:
        """Leave the gang; all ranks do."""
        self._dist.destroy_process_group()


class _Tcp:
    """Sums over TCP: rank 0 takes the others' values, adds them in order of rank, and gives all the sum."""

    def __init__(self) -> None:
        self.backend = "plain TCP"
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._peers = self._accept(address[1]) if self.rank == 0 else [self._connect(address)]
        for peer in self._peers:
            peer.settimeout(SILENT_SECONDS)

    def sum(self, values: Sequence[float]) -> list[float]:
        form = struct.Struct(f"!{len(values)}d")
        if self.rank != 0:
            self._peers[0].sendall(form.pack(*values))
            return list(form.unpack(_received(self._peers[0], form.size)))
        total = list(values)
        for peer in self._peers:
            total = [mine + theirs for mine, theirs in zip(total, form.unpack(_received(peer, form.size)), strict=True)]
        for peer in self._peers:
            peer.sendall(form.pack(*total))
        return total

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def _accept(self, port: int) -> list[socket.socket]:
        """Return the connections of the other ranks, in their order."""
        found: dict[int, socket.socket] = {}
        with socket.create_server(("", port)) as server:
            server.settimeout(CONNECT_SECONDS)
            while len(found) < self.world_size - 1:
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.world_size)) - set(found))
                    raise TimeoutError(f"ranks {missing} did not come within {CONNECT_SECONDS:.0f} s") from None
                peer.settimeout(CONNECT_SECONDS)
                found[struct.unpack("!I", _received(peer, 4))[0]] = peer
        return [found[rank] for rank in sorted(found)]

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                server = socket.create_connection(address, timeout=5)
            except OSError:  # not there yet, or its name not known yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                server.sendall(struct.pack("!I", self.rank))
                return server


def _received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while part := peer.recv(size - len(data)):
        data += part
        if len(data) == size:
            return data
    raise ConnectionError("a rank has left the gang")


Reduction = _Gloo | _Tcp
"""Sums over the ranks of a gang, for one rank."""
