"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and kwok for nodes.

Everything listens on loopback with the stack's own certificates. :meth:`ControlPlane.start` brings it from whatever
state it is in to running: what runs as it should is left alone, all else is started or started anew. With programs of
the next minor version that is an upgrade, in the order of Kubernetes' version skew policy: the API server first, while
controller manager and scheduler go on, then these; etcd, kwok and the pods' agent stay.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.local.changes import LocalError
from trainium_eks.local.control_plane import kubelet, pki, processes
from trainium_eks.local.control_plane.flags import HOST, PROGRAMS, SERVICE_RANGE, commands
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import MovedPort, Settings, is_answered, is_free
from trainium_eks.local.control_plane.processes import Running, unwritable
from trainium_eks.local.paths import Paths
from trainium_eks.local.pods import programs
from trainium_eks.model.versions import KUBERNETES, step_refusal

READY_WITHIN_SECONDS = 300.0
"""How long a start may take: 10 s on two idle cores, much more where they are shared."""

_LOOK_SECONDS = 0.05

# /readyz fails for a moment where etcd answers its check late (kube-apiserver's --etcd-readycheck-timeout, 2 s).
_UNREADY_SECONDS = 10.0

# A port can be taken between the look and the start; not three times by chance.
_ATTEMPTS = 3

# A program that does not know a flag ends within that; a cluster that was there before says nothing about it.
_SETTLED_AFTER_SECONDS = 0.5

# The others are clients of the API server, and wait for it while it is replaced.
_SERVERS = ("etcd", "kube-apiserver")

# An API server does not end while clients watch: for ten seconds and more nobody would be served. It holds no state.
_WATCHED_SECONDS = 1.0

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Started:
    """What a start did."""

    server: str
    """Address of the API server."""
    version: str
    """Of the API server: ``v1.35.4``."""
    started: tuple[str, ...]
    """Processes that were started; none when all ran."""
    moved_ports: tuple[MovedPort, ...]
    """Ports that others had taken."""
    seconds: float
    """How long it took."""


class ControlPlane:
    """The control plane of a stack. Whoever starts or stops it holds the stack's lock."""

    def __init__(
        self,
        paths: Paths,
        binaries: Mapping[str, Path],
        *,
        kubernetes_minor: str = KUBERNETES,
        service_range: str = SERVICE_RANGE,
        ready_within_seconds: float = READY_WITHIN_SECONDS,
    ) -> None:
        """The control plane whose state is there.

        Args:
            paths: the stack's files.
            binaries: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.
            kubernetes_minor: what the API server must say it is, ``1.35``.
            service_range: addresses of services, ``172.20.0.0/16``.
            ready_within_seconds: when to give up waiting.
        """
        self._paths = paths
        self._binaries = binaries
        self._kubernetes_minor = kubernetes_minor
        self._service_range = service_range
        self._ready_within_seconds = ready_within_seconds

    @property
    def server(self) -> str:
        """Address of the API server; empty before the first start."""
        port = Settings.load(self._paths).ports.get("kube-apiserver")
        return f"https://{HOST}:{port}" if port else ""

    def start(self, progress: Callable[[str], None] = lambda _line: None) -> Started:
        """Starts what does not run, and waits until the API server serves and pods can be made.

        Args:
            progress: told what is being done, a line each.

        Raises:
            LocalError: the state cannot be written; EKS would refuse the step from the version that ran last; a process
                ends at its start (which, how, the end of its log); the API server is of another minor than asked for;
                or it takes too long. What was started is ended again.
        """
        begun = time.monotonic()
        self._check_service_range()
        check_step(self._paths, self._kubernetes_minor)
        for name in PROGRAMS:
            if not self._binaries[name].is_file():
                raise LocalError(f"{name} cannot be started: there is no file {self._binaries[name]}.")
        moved: list[MovedPort] = []
        for attempt in range(1, _ATTEMPTS + 1):
            deadline = time.monotonic() + self._ready_within_seconds
            attempted = _Start(self._paths, self._binaries, self._service_range, deadline, progress)
            try:
                attempted.run(moved)
                version = self._checked_version()
                self._remember()
                break
            except _PortTakenError:
                attempted.undo()
                if attempt == _ATTEMPTS:
                    raise
            except LocalError:
                attempted.undo()
                raise
        return Started(self.server, version, tuple(attempted.started), tuple(moved), time.monotonic() - begun)

    def get(self, path: str) -> dict[str, Any]:
        """What the API server answers to a path.

        Raises:
            LocalError: it does not answer, or with an error.
        """
        return _api(self._paths, Settings.load(self._paths).ports["kube-apiserver"]).get(path)

    def stop(self) -> list[str]:
        """Ends every process of the stack, also those that others started for it; their names."""
        return processes.stop(self._paths)

    def healthy(self) -> bool:
        """Whether all processes run and the API server says that it is ready, at once or within some seconds."""
        settings = Settings.load(self._paths)
        if not settings.is_complete:
            return False
        wanted = commands(self._paths, self._binaries, settings.ports, settings.service_range)
        deadline = time.monotonic() + _UNREADY_SECONDS
        while {each.name for each in processes.running(self._paths)}.issuperset(wanted):
            if _is_ready(self._paths, settings.ports["kube-apiserver"]):
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        return False

    def _check_service_range(self) -> None:
        settings = Settings.load(self._paths)
        if settings.is_complete and settings.service_range != self._service_range:
            raise LocalError(
                f"The cluster's service addresses are {settings.service_range}, and the program now says "
                f"{self._service_range}: EKS would replace the cluster. Run `trn local down`, then start again."
            )

    def _remember(self) -> None:
        """That a start came to its end, and with which Kubernetes."""
        before = Settings.load(self._paths)
        settings = before.completed(self._kubernetes_minor)
        if settings != before:
            settings.save(self._paths)

    def _checked_version(self) -> str:
        found = self.get("/version")
        # Cloud providers write "35+".
        minor = f"{found['major']}.{str(found['minor']).rstrip('+')}"
        if minor != self._kubernetes_minor:
            raise LocalError(
                f"{self._binaries['kube-apiserver']} is Kubernetes {found['gitVersion']}, and the stack asks for "
                f"{self._kubernetes_minor}. Remove it from PATH or KUBEBUILDER_ASSETS, or put the right version there."
            )
        return str(found["gitVersion"])


def check_step(paths: Paths, kubernetes_minor: str) -> None:
    """Whether the stack's cluster may become that minor version (``1.35``), as EKS judges it; any may be the first.

    Raises:
        LocalError: it skips one, or goes back.
    """
    if refusal := step_refusal(Settings.load(paths).kubernetes, kubernetes_minor):
        raise LocalError(f"{refusal}. `trn local down` removes this stack, and the next `up` makes it anew.")


class _PortTakenError(LocalError):
    """Somebody else was faster."""


class _Start:
    """One attempt to start."""

    def __init__(
        self,
        paths: Paths,
        binaries: Mapping[str, Path],
        service_range: str,
        deadline: float,
        progress: Callable[[str], None],
    ) -> None:
        self.started: dict[str, Running] = {}
        self._paths = paths
        self._binaries = binaries
        self._service_range = service_range
        self._deadline = deadline
        self._progress = progress
        self._log_sizes: dict[str, int] = {}

    def run(self, moved: list[MovedPort]) -> None:
        self._prepare_directory()
        if pki.ensure(self._paths, self._service_range):
            # They trust, and are trusted by, authorities that are no more.
            processes.stop(self._paths)
        settings = self._settle_ports(moved)
        self._port = settings.ports["kube-apiserver"]
        pki.write_kubeconfigs(self._paths, f"https://{HOST}:{self._port}")
        wanted = commands(self._paths, self._binaries, settings.ports, self._service_range)
        kept, wrong = self._looked_over(wanted)
        servers = [each for each in wrong if each.name in _SERVERS]
        processes.stop_these(servers, timeout_seconds=_WATCHED_SECONDS)
        if not settings.is_complete and "etcd" not in kept:
            # A first start that was cut off: nothing in there is anybody's, and it may be half-made.
            self._remove_data()
        missing = [name for name in wanted if name not in kept]
        if missing:
            self._progress(f"Starting {', '.join(missing)}")
        # The API server waits for etcd by itself; the others give up where there is none.
        for name in _SERVERS:
            if name in missing:
                self._spawn(name, wanted[name])
        self._wait("the API server to be ready", lambda: _is_ready(self._paths, self._port), settings)
        for name in (each for each in wanted if each not in _SERVERS):
            processes.stop_these(each for each in wrong if each.name == name)
            if name in missing:
                if name == "kwok":
                    self._release_nodes()
                self._spawn(name, wanted[name])
        settled = time.monotonic() + (_SETTLED_AFTER_SECONDS if self.started else 0)
        self._wait(
            "the default service account",
            lambda: _api(self._paths, self._port).has(_DEFAULT_ACCOUNT) and time.monotonic() >= settled,
            settings,
        )
        self._wait("the pods' agent to listen", lambda: is_answered(settings.ports[kubelet.PORT]), settings)

    def undo(self) -> None:
        """Ends what this attempt started, last first."""
        processes.stop_these(reversed(self.started.values()), timeout_seconds=3)
        if programs.AGENT in self.started and not any(
            each.name == programs.SHIM for each in processes.running(self._paths)
        ):
            # The agent's own, and nobody's without it.
            processes.stop(self._paths, [programs.NETWORK])

    def _prepare_directory(self) -> None:
        try:
            self._paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._paths.root.chmod(0o700)
            programs.link(self._paths)
        except OSError as error:
            raise unwritable(error, self._paths.root) from error
        processes.trim_logs(self._paths)

    def _settle_ports(self, moved: list[MovedPort]) -> Settings:
        """Keeps the ports of last time but for those that others have taken meanwhile."""
        before = replace(Settings.load(self._paths), service_range=self._service_range)
        ours = {argument for each in processes.running(self._paths) for argument in each.command}
        settings, changes = before.settled(lambda name, port: _listens(ours, name, port))
        moved += changes
        for change in changes:
            self._progress(f"Port {change}")
        if settings != Settings.load(self._paths):
            settings.save(self._paths)
        return settings

    def _looked_over(self, wanted: Mapping[str, list[str]]) -> tuple[set[str], list[Running]]:
        """Names of the processes of the control plane that run as they should, and those that do not, in the order in
        which to end them."""
        kept: dict[str, Running] = {}
        wrong = []
        for each in processes.running(self._paths):
            if each.name not in wanted:
                continue  # somebody else's: Volcano's
            if list(each.command) == wanted[each.name] and each.name not in kept:
                kept[each.name] = each
            else:
                wrong.append(each)
        return set(kept), sorted(wrong, key=lambda each: processes.NAMES.index(each.name))

    def _remove_data(self) -> None:
        try:
            if self._paths.etcd.exists():
                shutil.rmtree(self._paths.etcd)
        except OSError as error:
            raise unwritable(error, self._paths.etcd) from error

    def _spawn(self, name: str, command: list[str]) -> None:
        self._log_sizes[name] = processes.log_size(self._paths, name)
        if name == programs.AGENT:
            self.started[name] = processes.start(self._paths, name, command, programs.python_environment())
            return
        # kwok reads ~/.kwok/kwok.yaml first if there is one; it is not meant for this cluster.
        # Collecting garbage a quarter as often costs memory, which is there, and saves processor time, which is what
        # bringing up many nodes waits for. Up to a point: with 1,000 nodes the API server would take 4 GB and more.
        environment = {"HOME": str(self._paths.root), "GOGC": "400", "GOMEMLIMIT": "1500MiB"}
        self.started[name] = processes.start(self._paths, name, command, environment)

    def _release_nodes(self) -> None:
        """Deletes nodes' leases: a kwok that was killed cannot give them back, and a new one would wait 160 s."""
        _api(self._paths, self._port).delete(_LEASES)

    def _wait(self, what: str, done: Callable[[], bool], settings: Settings) -> None:
        while True:
            self._check_alive(settings)
            if done():
                return
            if time.monotonic() > self._deadline:
                self._give_up(what)
            time.sleep(_LOOK_SECONDS)

    def _check_alive(self, settings: Settings) -> None:
        for name, process in self.started.items():
            code = processes.exit_code(process)
            if code is None:
                continue
            told = processes.last_lines(self._paths, name, since_bytes=self._log_sizes[name])
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            log = processes.log_file(self._paths, name)
            message = f"{name} ended while starting ({how}). The end of {log}:\n{told}"
            if name == "etcd" and settings.is_complete:
                message += (
                    "\nIf its data is damaged: `trn local down` removes it, and the next `up` makes the stack again."
                )
            taken = any(not is_free(port) for each, port in settings.ports.items() if each.startswith(name))
            raise (_PortTakenError if taken and "address already in use" in told else LocalError)(message)

    def _give_up(self, what: str) -> None:
        running = {each.name for each in processes.running(self._paths)}
        parts = [f"Timed out waiting for {what}."]
        for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
            state = "runs" if name in running else "does not run"
            parts.append(f"{name} {state}; the end of {processes.log_file(self._paths, name)}:")
            parts.append(processes.last_lines(self._paths, name, 5, since_bytes=self._log_sizes.get(name, 0)))
        parts.append(
            "If this machine is only busy, run the command again; otherwise start again after `trn local down`."
        )
        raise LocalError("\n".join(parts))


def _listens(ours: set[str], name: str, port: int) -> bool:
    """Whether a process of ours has that port on its command line."""
    flags = {
        "etcd": f"--listen-client-urls=https://{HOST}:{port}",
        "etcd-peer": f"--listen-peer-urls=https://{HOST}:{port}",
        "kube-apiserver": f"--secure-port={port}",
        kubelet.PORT: f"--listen={HOST}:{port}",
    }
    return flags[name] in ours


def _api(paths: Paths, port: int) -> Loopback:
    return Loopback(
        port, pki.certificate(paths, "ca"), pki.certificate(paths, pki.ADMINISTRATOR), pki.key(paths, pki.ADMINISTRATOR)
    )


def _is_ready(paths: Paths, port: int) -> bool:
    return _api(paths, port).has("/readyz")
