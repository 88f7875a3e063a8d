"""The ports of the control plane: chosen at the first start, and kept, so that kubeconfigs stay valid."""

import contextlib
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import psutil

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane.flags import HOST, OPTIONAL_PORTS, PORTS
from trainium_eks.local.control_plane.processes import write_json
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.parsing import parse_json

# Below the ranges that Linux (32768-60999) and macOS (49152-65535) use for programs' outgoing connections, so that
# while the control plane is down only a program that listens can take one.
_RANGE = range(20000, 32768)

_TRIES = 200

# A process that was killed is gone from the process table before its port is free; on a busy machine, seconds before.
_FREE_WITHIN_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Settings:
    """The settings that the control plane keeps between starts."""

    ports: Mapping[str, int] = field(default_factory=dict)
    service_range: str = ""
    """Addresses of services. They stay as long as the cluster: on EKS another range means another cluster."""
    kubernetes: str = ""
    """Minor version of the API server; empty before the first start."""
    is_complete: bool = False
    """Whether a start ever completed: from then on, etcd holds a user's data."""

    @staticmethod
    def load(paths: Paths) -> "Settings":
        """Return the saved settings; empty ones when there is no readable file."""
        try:
            document = parse_json(paths.settings.read_text())
            ports = {name: document["ports"][name] for name in PORTS}
            ports |= {name: port for name, port in document["ports"].items() if name in OPTIONAL_PORTS}
            complete = document["complete"]
            service_range = str(document["serviceRange"])
            kubernetes = str(document["kubernetes"])
        except (OSError, ValueError, KeyError, TypeError):
            return Settings()
        if not all(isinstance(port, int) and 0 < port < 65536 for port in ports.values()):
            return Settings()
        return Settings(ports, service_range, kubernetes, complete is True)

    def save(self, paths: Paths) -> None:
        """Save the settings as a whole or not at all."""
        document = {
            "ports": dict(self.ports),
            "serviceRange": self.service_range,
            "kubernetes": self.kubernetes,
            "complete": self.is_complete,
        }
        write_json(paths.settings, document)

    def with_ports(self, is_ours: Callable[[int], bool]) -> "Settings":
        """Return these settings with a port for each listener: the kept ones, or free ones before the first complete
        start. ``is_ours`` says whether a process of this stack listens on a port.

        Raises:
            LocalCloudError: another program listens on a kept port of the control plane.
        """
        ports: dict[str, int] = {}
        for name in (*PORTS, *OPTIONAL_PORTS):
            kept = self.ports.get(name)
            if kept is not None and (is_ours(kept) or _becomes_free(kept)):
                ports[name] = kept
            elif self.is_complete and kept is not None and name in PORTS:
                raise LocalCloudError(
                    f"Port {kept} of {name} is in use by {_listener(kept)}. End that program and run the command "
                    "again; or `trn local down`, and the next `up` chooses other ports."
                )
            else:
                ports[name] = free_port({*self.ports.values(), *ports.values()})
        return replace(self, ports=ports)


def is_free(port: int) -> bool:
    """Return whether a program could listen on a port. The test listens for a moment: skip a new program's port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # As Go's net.Listen does: connections of a former listener that still time out do not matter.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen(1)
        except OSError:
            return False
    return True


def is_answered(port: int) -> bool:
    """Return whether a program listens on a port."""
    try:
        socket.create_connection((HOST, port), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _becomes_free(port: int) -> bool:
    deadline = time.monotonic() + _FREE_WITHIN_SECONDS
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _listener(port: int) -> str:
    """Return the program that listens on a port, as far as this user may see it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(each.laddr and each.laddr.port == port for each in process.net_connections("tcp")):
                return f"{process.name()} (process {process.pid})"
    return "another program"


def free_port(avoided: set[int]) -> int:
    """Return a free port that is not in the set to avoid."""
    # Random, so that two stacks that start at the same moment do not choose the same port.
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        port = chance.choice(_RANGE)
        if port not in avoided and is_free(port):
            return port
    raise LocalCloudError(f"No free port was found on {HOST} between {_RANGE.start} and {_RANGE.stop - 1}.")
