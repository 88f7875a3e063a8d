"""The inputs of a pod's plan besides the pod: other objects of the API server, and properties of this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.spec.plan import Isolation, PodDirectory

Body = Mapping[str, Any]


class UnmetError(Exception):
    """The error of a pod that asks for a missing object; the pod waits until the object exists."""

    def __init__(self, reason: str, message: str, container: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        """The kubelet's reason: ``CreateContainerConfigError``."""
        self.message = message
        self.container = container
        """The container that waits; every container when empty."""


@dataclass(frozen=True)
class PlanInputs:
    """The inputs of a plan besides the pod."""

    directory: PodDirectory
    claims: Path
    isolation: Isolation
    address: str
    node: Body
    config_maps: Mapping[str, Body]
    """The existing ConfigMaps of the pod's namespace that it names."""
    secrets: Mapping[str, Body]
    services: Sequence[Body]
    """Services of the pod's namespace, and ``kubernetes`` of ``default``."""
    find_image: Callable[[str], LocalImage | None]
    workloads: Path
    """Directory added to ``PYTHONPATH``."""
    api_server: tuple[str, int]
    tokens: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Volume to path in it to service account token."""
    network_pid: int = 0
    proxy: str = ""
    """Proxy by which pods reach others (``http://100.127.0.1:3128``); empty where pods are on the machine's network."""

    @property
    def reached_at(self) -> str:
        """Return the address at which other pods reach the pod."""
        return self.address if self.isolation is Isolation.NET else "127.0.0.1"
