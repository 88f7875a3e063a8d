"""Places of a gang's nodes in Trainium2 UltraServers, for Neuron's runtime. Standard library alone.

Neuron's driver shows each node's place in sysfs, which every container sees and none can write. The first node of the
gang hears all places, numbers the nodes by them, and each launcher sets the runtime's variables for its ranks (Neuron's
guide, "How to schedule MPI jobs to run on Neuron UltraServer on EKS", and its init script).
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SYSFS = "TRN_NEURON_SYSFS"
"""Variable: the directory in place of the driver's, on the local cloud, which has no Neuron driver."""

_DIRECTORY = "/sys/class/neuron_device"
_WAIT_SECONDS = 300.0
"""Longest wait while the driver's election of the nodes' numbers runs: ``busy``, or an id of zeros."""
_LOOK_SECONDS = 1.0
_NO_ID = "0" * 16
_MODES: Mapping[int, tuple[str, ...]] = {4: ("1",), 2: ("3", "2")}
"""Nodes that work as one to the runtime's modes for them, the preferred first: x4; x2v, x2h (in the driver's
``neuron_driver_shared.h``; the order is of Neuron's init script)."""
_MODE_OF_ONE = "4"

Place = tuple[str, int]
"""Id of the UltraServer or half, and the node's number in it."""


class PlaceError(Exception):
    """The nodes are not whole UltraServers or halves; the message names the missing nodes."""


@dataclass(frozen=True)
class Membership:
    """A node's place, and the runtime's mode for it."""

    place: Place
    mode: str

    def variables(self, number: int, first_host: str) -> dict[str, str]:
        """Return the runtime's variables of a node with this number in the gang, from the first node's host name."""
        server, node = self.place
        return {
            "NEURON_GLOBAL_TOPOID": str(number),
            "NEURON_GLOBAL_TOPOID0_HOST": first_host,
            "NEURON_RT_ULTRASERVER_MODE": self.mode,
            "NEURON_RT_ULTRASERVER_SERVER_ID": server,
            "NEURON_RT_ULTRASERVER_NODE_ID": str(node),
        }


def membership(size: int) -> Membership:
    """Return this node's membership where 4, 2 or 1 nodes work as one. PlaceError: there is no such driver.
    TimeoutError: the driver names no place in time, as it may on another start."""
    if size == 1:
        return Membership((_NO_ID, -1), _MODE_OF_ONE)
    directory = Path(os.environ.get(SYSFS) or _DIRECTORY)
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        names = ("ultraserver_mode", f"server_id_{size}", f"node_id_{size}")
        try:
            modes, server, node = (directory.joinpath(name).read_text().strip() for name in names)
        except OSError as error:
            raise PlaceError(f"this node is in no UltraServer, or its driver is too old: {error}") from None
        mode = next((each for each in _MODES[size] if each in modes.split(",")), "")
        if mode and server.strip("0") and node.isdecimal():
            return Membership((server, int(node)), mode)
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the driver names no place among {size} nodes after {_WAIT_SECONDS:.0f} s: "
                f"modes {modes or 'none'}, server {server}, node {node}"
            )
        time.sleep(_LOOK_SECONDS)


def order(places: Mapping[int, Place], size: int) -> dict[int, int]:
    """Return each rank's number in the gang, by its place; PlaceError where parts are not whole."""
    if size > 1:
        nodes = Counter(server for server, _ in places.values())
        wrong = [f"{count} of {size} nodes of {server}" for server, count in sorted(nodes.items()) if count != size]
        if len({*places.values()}) < len(places):
            wrong.append("two nodes with one place")
        if wrong:
            raise PlaceError(f"the gang has {', '.join(wrong)}: submit it with --topology hard")
    ranks = sorted(places, key=lambda rank: (places[rank], rank))
    return {rank: number for number, rank in enumerate(ranks)}


def host_of(rank: int, otherwise: str) -> str:
    """Return the name by which the gang knows a node, from the variables of Volcano's plugin ``svc``."""
    one_task = os.environ.get("VC_TRAINER_HOSTS", "").split(",")
    return os.environ.get(f"VC_TRAINER_{rank}_HOSTS") or (one_task[rank] if rank < len(one_task) else "") or otherwise
