"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and kwok for nodes.

All processes listen on loopback with the stack's certificates. :meth:`ControlPlane.start` brings it from any state to
running: processes that run with the right command line stay, all others are started or restarted. With programs of the
next minor version this is an upgrade, in the order of Kubernetes' version skew policy: the API server first, while
controller manager and scheduler keep running, then these; etcd, kwok and the pods' agent stay. Where the new programs
do not come up, the former programs are started again, as in EKS.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.flags import HOST, PROGRAMS, SERVICE_RANGE, commands
from trainium_eks.local.control_plane.ports import MovedPort, Settings
from trainium_eks.local.control_plane.starting import Attempt, PortTakenError, api_server, is_ready
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.versions import KUBERNETES, step_refusal

READY_WITHIN_SECONDS = 300.0
"""Time limit of a start: it takes 10 s on two idle cores, much more where they are shared."""

_LOOK_SECONDS = 0.05

# /readyz fails for a moment where etcd answers its check late (kube-apiserver's --etcd-readycheck-timeout, 2 s).
_UNREADY_SECONDS = 10.0

# A port can be taken between its choice and the start; not three times by chance.
_ATTEMPTS = 3


@dataclass(frozen=True)
class StartResult:
    """The result of a start."""

    server: str
    version: str
    started: tuple[str, ...]
    """Processes that were started; none when all ran."""
    moved_ports: tuple[MovedPort, ...]
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
        """Make the control plane for a stack's files."""
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

        After a failure the new processes are ended again, and the replaced ones are started again.
        """
        self._check_service_range()
        check_step(self._paths, self._kubernetes_minor)
        for name in PROGRAMS:
            if not self._binaries[name].is_file():
                raise LocalCloudError(f"{name} cannot be started: there is no file {self._binaries[name]}.")
        former = self._former()
        try:
            return self._bring_up(progress)
        except ClusterError as error:
            if former is None:
                raise
            raise LocalCloudError(f"{error}\n{former._come_back(progress)}") from error

    def get(self, path: str) -> dict[str, Any]:
        """Return the API server's answer to a path."""
        return api_server(self._paths, Settings.load(self._paths).ports["kube-apiserver"]).get(path)

    def stop(self) -> list[str]:
        """End every process of the stack, also those started by other programs; return their names."""
        return processes.stop(self._paths)

    def healthy(self) -> bool:
        """Return whether all processes run and the API server reports ready, at once or within some seconds."""
        settings = Settings.load(self._paths)
        if not settings.is_complete:
            return False
        wanted = commands(self._paths, self._binaries, settings.ports, settings.service_range)
        deadline = time.monotonic() + _UNREADY_SECONDS
        while {each.name for each in processes.running(self._paths)}.issuperset(wanted):
            if is_ready(self._paths, settings.ports["kube-apiserver"]):
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        return False

    def _bring_up(self, progress: Callable[[str], None]) -> StartResult:
        begun = time.monotonic()
        moved: list[MovedPort] = []
        for attempt in range(1, _ATTEMPTS + 1):
            deadline = time.monotonic() + self._ready_within_seconds
            attempted = Attempt(self._paths, self._binaries, self._service_range, deadline, progress)
            try:
                attempted.run(moved)
                version = self._checked_version()
                self._remember()
                break
            except PortTakenError:
                attempted.undo()
                if attempt == _ATTEMPTS:
                    raise
            except ClusterError:
                attempted.undo()
                raise
        return StartResult(self.server, version, tuple(attempted.started), tuple(moved), time.monotonic() - begun)

    def _former(self) -> "ControlPlane | None":
        """Return the control plane that runs with other programs than these; None where it does not run completely."""
        found = {each.name: Path(each.command[0]) for each in processes.running(self._paths) if each.name in PROGRAMS}
        minor = Settings.load(self._paths).kubernetes
        if not minor or found.keys() != set(PROGRAMS) or all(self._binaries[name] == found[name] for name in PROGRAMS):
            return None
        return ControlPlane(
            self._paths,
            found,
            kubernetes_minor=minor,
            service_range=self._service_range,
            ready_within_seconds=self._ready_within_seconds,
        )

    def _come_back(self, progress: Callable[[str], None]) -> str:
        """Start these programs again after others failed in their place, and return the message for the user."""
        who = f"Kubernetes {self._kubernetes_minor}"
        progress(f"Going back to {who}")
        try:
            self._bring_up(progress)
        except ClusterError as error:
            return f"{who} could not be started again with the programs from before:\n{error}"
        return f"{who} runs again with the programs from before. Mend the cause, then run the command again."

    def _check_service_range(self) -> None:
        settings = Settings.load(self._paths)
        if settings.is_complete and settings.service_range != self._service_range:
            raise LocalCloudError(
                f"The cluster's service addresses are {settings.service_range}, and the program now says "
                f"{self._service_range}: EKS would replace the cluster. Run `trn local down`, then start again."
            )

    def _remember(self) -> None:
        """Record that a start completed, and its Kubernetes version."""
        before = Settings.load(self._paths)
        settings = before.completed(self._kubernetes_minor)
        if settings != before:
            settings.save(self._paths)

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


def check_step(paths: Paths, kubernetes_minor: str) -> None:
    """Check that the stack's cluster may move to a minor version by the rules of EKS; any may be the first."""
    if refusal := step_refusal(Settings.load(paths).kubernetes, kubernetes_minor):
        raise LocalCloudError(f"{refusal}. `trn local down` removes this stack, and the next `up` makes it anew.")
