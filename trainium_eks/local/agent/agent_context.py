"""The interface of the agent for the workers of its pods."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from trainium_eks.kube.async_client import ApiClient
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import Body
from trainium_eks.local.spec.plan import Isolation, PodDirectory


class Surroundings(Protocol):
    """The agent, as its workers see it."""

    client: ApiClient
    isolation: Isolation
    network_pid: int
    proxy: str
    api_server: tuple[str, int]

    def directory(self, uid: str) -> PodDirectory:
        """Return the directory of a pod."""
        ...

    def claims(self, namespace: str) -> Path:
        """Return the directory of a namespace's claims."""
        ...

    def free_address(self) -> str:
        """Return an address that no pod has."""
        ...

    def services(self) -> Sequence[Body]:
        """Return all known services."""
        ...

    def hosts_of(self, own: Host) -> str:
        """Return the hosts file of a pod."""
        ...

    def hosts_changed(self) -> None:
        """Schedule new hosts files after a pod has come, gone, or become ready."""
        ...

    def start_shim(self, directory: PodDirectory) -> int:
        """Start a shim and return its process id."""
        ...

    def when_ended(self, pid: int, then: Callable[[], None]) -> None:
        """Call back when a process ends."""
        ...

    def forget(self, uid: str) -> None:
        """Remove the directory of a deleted pod with no running process, and keep its logs."""
        ...
