"""What a pod's worker needs of its agent."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from trainium_eks.kube.async_client import ApiClient
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import Body
from trainium_eks.local.spec.plan import Isolation, PodDirectory


class Surroundings(Protocol):
    """What a worker needs of its agent."""

    client: ApiClient
    isolation: Isolation
    network_pid: int
    proxy: str
    api_server: tuple[str, int]

    def directory(self, uid: str) -> PodDirectory:
        """Of a pod."""
        ...

    def claims(self, namespace: str) -> Path:
        """Where the claims of a namespace are."""
        ...

    def free_address(self) -> str:
        """One that no pod has."""
        ...

    def services(self) -> Sequence[Body]:
        """All that are known."""
        ...

    def hosts_of(self, own: Host) -> str:
        """The hosts file of a pod."""
        ...

    def hosts_changed(self) -> None:
        """A pod has come, gone, or become ready."""
        ...

    def start_shim(self, directory: PodDirectory) -> int:
        """Starts a shim; its number."""
        ...

    def when_ended(self, pid: int, then: Callable[[], None]) -> None:
        """Calls back when a process ends."""
        ...

    def forget(self, uid: str) -> None:
        """The pod is gone, and nothing of it runs: its directory goes, and its logs are kept."""
        ...
