"""What a pod's plan is made from besides the pod: other objects of the API server, and this machine's ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.spec.plan import Isolation, PodDirectory

Body = Mapping[str, Any]


class Unmet(Exception):  # noqa: N818 (what is the case)
    """Something that the pod asks for is not there; it waits until it is."""

    def __init__(self, reason: str, message: str, container: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        """As kubelets say it: ``CreateContainerConfigError``."""
        self.message = message
        self.container = container
        """Whose it is; every container's when empty."""


@dataclass(frozen=True)
class Known:
    """All that a plan is made from."""

    directory: PodDirectory
    claims: Path
    """Where claims of the pod's namespace have their directories."""
    isolation: Isolation
    address: str
    """The pod's, in the status."""
    node: Body
    config_maps: Mapping[str, Body]
    """Those of the pod's namespace that it names, and that are there."""
    secrets: Mapping[str, Body]
    services: Sequence[Body]
    """Of the pod's namespace, and ``kubernetes`` of ``default``."""
    find_image: Callable[[str], LocalImage | None]
    workloads: Path
    """What is added to ``PYTHONPATH``."""
    api_server: tuple[str, int]
    """Where pods reach the API server."""
    tokens: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Volume to path in it to service account token."""
    network_pid: int = 0
    proxy: str = ""
    """What pods reach others by (``http://100.127.0.1:3128``); empty where they are on the machine's network."""

    @property
    def reached_at(self) -> str:
        """The address at which the pod is reached by other pods."""
        return self.address if self.isolation is Isolation.NET else "127.0.0.1"
