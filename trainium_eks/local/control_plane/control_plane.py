"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and kwok for nodes.

All processes listen on loopback with the stack's certificates. :meth:`ControlPlane.start` brings it from any state to
running: processes that run with the right command line stay, all others are started or restarted. A cluster keeps its
Kubernetes version, its service addresses and its ports for life.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.flags import HOST, PROGRAMS, SERVICE_RANGE
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.starting import Attempt
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.versions import KUBERNETES

READY_WITHIN_SECONDS = 300.0
"""Time limit of a start: it takes 10 s on two idle cores, much more where they are shared."""


@dataclass(frozen=True)
class StartResult:
    """The result of a start."""

    server: str
    version: str
    started: tuple[str, ...]
    """Processes that were started; none when all ran."""
    seconds: float


class ControlPlane:
    """The control plane of a stack. The caller holds the stack's lock when it starts or stops it."""

    def __init__(
        self,
        paths: Paths,
        binaries: Mapping[str, Path],
        *,
        kubernetes_minor: str = KUBERNETES,
        service_range: str = SERVICE_RANGE,
        ready_within_seconds: float = READY_WITHIN_SECONDS,
    ) -> None:
        self._paths = paths
        self._binaries = binaries
        self._kubernetes_minor = kubernetes_minor
        self._service_range = service_range
        self._ready_within_seconds = ready_within_seconds

    @property
    def server(self) -> str:
        """Return the address of the API server; empty before the first start."""
        port = Settings.load(self._paths).ports.get("kube-apiserver")
        return f"https://{HOST}:{port}" if port else ""

    def start(self, progress: Callable[[str], None] = lambda _line: None) -> StartResult:
        """Start the processes that do not run, and wait until the API server serves and pods can be made.

        After a failure the new processes are ended again.
        """
        check_same_cluster(self._paths, self._kubernetes_minor, self._service_range)
        for name in PROGRAMS:
            if not self._binaries[name].is_file():
                raise LocalCloudError(f"{name} cannot be started: there is no file {self._binaries[name]}.")
        begun = time.monotonic()
        deadline = begun + self._ready_within_seconds
        attempt = Attempt(self._paths, self._binaries, self._service_range, deadline, progress)
        try:
            attempt.run()
            version = self._checked_version()
            before = Settings.load(self._paths)
            settings = replace(before, kubernetes=self._kubernetes_minor, is_complete=True)
            if settings != before:
                settings.save(self._paths)
        except ClusterError:
            attempt.undo()
            raise
        return StartResult(self.server, version, tuple(attempt.started), time.monotonic() - begun)

    def get(self, path: str) -> dict[str, Any]:
        """Return the API server's answer to a path."""
        return Loopback(self._paths, Settings.load(self._paths).ports["kube-apiserver"]).get(path)

    def stop(self) -> list[str]:
        """End every process of the stack, also those started by other programs; return their names."""
        return processes.stop(self._paths)

    def _checked_version(self) -> str:
        found = self.get("/version")
        # Cloud providers write "35+".
        minor = f"{found['major']}.{str(found['minor']).rstrip('+')}"
        if minor != self._kubernetes_minor:
            raise LocalCloudError(
                f"{self._binaries['kube-apiserver']} is Kubernetes {found['gitVersion']}, and the stack asks for "
                f"{self._kubernetes_minor}. Remove it from PATH or KUBEBUILDER_ASSETS, or put the right version there."
            )
        return str(found["gitVersion"])


def check_same_cluster(paths: Paths, kubernetes_minor: str, service_range: str) -> None:
    """Check that the stack's cluster has this Kubernetes version and these service addresses, if it exists."""
    settings = Settings.load(paths)
    if not settings.is_complete:
        return
    for what, here, asked in (
        ("Kubernetes version", settings.kubernetes, kubernetes_minor),
        ("service address range", settings.service_range, service_range),
    ):
        if here != asked:
            raise LocalCloudError(
                f"The local cluster's {what} is {here}, and the program asks for {asked}: a cluster on this machine "
                "keeps the one that it began with. `trn local down` removes it, and the next `up` makes it anew."
            )
