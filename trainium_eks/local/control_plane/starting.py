"""One attempt to start a control plane, from any state."""

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import kubelet, pki, processes, programs
from trainium_eks.local.control_plane.flags import HOST, LISTENING, commands
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import Settings, is_answered
from trainium_eks.local.control_plane.processes import Running, writing
from trainium_eks.local.paths import Paths

_LOOK_SECONDS = 0.05

# A program with an unknown flag reports it and ends within that time. An existing cluster proves nothing about it.
_SETTLED_AFTER_SECONDS = 0.5

# On a busy machine a program may take seconds to its first line.
_SPEAKS_WITHIN_SECONDS = 30.0
_SPEAKING = ("kube-controller-manager", "kube-scheduler", "kwok")

# The others are clients of the API server.
_SERVERS = ("etcd", "kube-apiserver")

# An API server does not end while clients watch: requests would wait for ten seconds and more. It holds no state.
_WATCHED_SECONDS = 1.0

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class Attempt:
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
        """Processes that were started, by their names."""
        self._paths = paths
        self._binaries = binaries
        self._service_range = service_range
        self._deadline = deadline
        self._progress = progress
        self._log_sizes: dict[str, int] = {}
        self._silent_at = 0.0

    def run(self) -> None:
        """Start the processes that do not run, and wait until the API server serves and pods can be made."""
        with writing(self._paths.root):
            self._paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._paths.root.chmod(0o700)
            programs.link(self._paths)
        processes.trim_logs(self._paths)
        if pki.ensure(self._paths, self._service_range):
            # They trust, and are trusted by, authorities that no longer exist.
            processes.stop(self._paths)
        saved = Settings.load(self._paths)
        arguments = [argument for each in processes.running(self._paths) for argument in each.command]
        ours = [each for each in arguments if each.startswith(LISTENING)]
        settings = replace(saved, service_range=self._service_range).with_ports(
            lambda port: any(each.endswith((f":{port}", f"={port}")) for each in ours)
        )
        if settings != saved:
            settings.save(self._paths)
        self._port = settings.ports["kube-apiserver"]
        pki.write_kubeconfigs(self._paths, f"https://{HOST}:{self._port}")
        wanted = commands(self._paths, self._binaries, settings.ports, self._service_range)
        kept, wrong = self._looked_over(wanted)
        processes.stop_these(wrong, timeout_seconds=_WATCHED_SECONDS)
        if not settings.is_complete and "etcd" not in kept:
            # A first start that was cut off: it holds no user's data, and may be incomplete.
            with writing(self._paths.etcd), contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._paths.etcd)
        missing = [name for name in wanted if name not in kept]
        if missing:
            self._progress(f"Starting {', '.join(missing)}")
        # The API server waits for etcd by itself; the others give up where there is none.
        for name in _SERVERS:
            if name in missing:
                self._spawn(name, wanted[name])
        self._wait("the API server to be ready", lambda: Loopback(self._paths, self._port).has("/readyz"), settings)
        for name in (each for each in wanted if each not in _SERVERS):
            if name in missing:
                if name == "kwok":
                    # A killed kwok cannot release its nodes' leases, and a new one would wait 160 s for them.
                    Loopback(self._paths, self._port).delete(_LEASES)
                self._spawn(name, wanted[name])
        speak_until = min(time.monotonic() + _SPEAKS_WITHIN_SECONDS, self._deadline)
        self._wait("the new processes to settle", lambda: self._has_settled(speak_until), settings)
        self._wait(
            "the default service account", lambda: Loopback(self._paths, self._port).has(_DEFAULT_ACCOUNT), settings
        )
        self._wait("the pods' agent to listen", lambda: is_answered(settings.ports[kubelet.PORT]), settings)

    def undo(self) -> None:
        """End the processes that this attempt started, in reverse order."""
        processes.stop_these(reversed(self.started.values()), timeout_seconds=3)
        if programs.AGENT in self.started:
            processes.stop(self._paths, [programs.SHIM, programs.NETWORK])

    def _looked_over(self, wanted: Mapping[str, list[str]]) -> tuple[set[str], list[Running]]:
        """Return the names of the control plane's correct processes, and the wrong ones in the order to end them."""
        kept: dict[str, Running] = {}
        wrong = []
        for each in processes.running(self._paths):
            if each.name not in wanted:
                continue  # not of the control plane: Volcano's
            if list(each.command) == wanted[each.name] and each.name not in kept:
                kept[each.name] = each
            else:
                wrong.append(each)
        return set(kept), sorted(wrong, key=lambda each: processes.NAMES.index(each.name))

    def _spawn(self, name: str, command: list[str]) -> None:
        self._log_sizes[name] = processes.log_size(self._paths, name)
        self._silent_at = time.monotonic()
        if name == programs.AGENT:
            self.started[name] = processes.start(self._paths, name, command, programs.python_environment())
            return
        # kwok reads ~/.kwok/kwok.yaml first if there is one; it is not meant for this cluster.
        # Collecting garbage a quarter as often costs memory, which is there, and saves processor time, which limits
        # the start of many nodes. Up to a point, a sixth of the machine's memory: with 1,000 nodes the API server takes
        # 3.6 GB, and with 1.5 GB a fifth more processor time (benchmarks/gangs.py).
        mebibytes = max(1500, psutil.virtual_memory().total // 2**20 // 6)
        environment = {"HOME": str(self._paths.root), "GOGC": "400", "GOMEMLIMIT": f"{mebibytes}MiB"}
        self.started[name] = processes.start(self._paths, name, command, environment)

    def _has_settled(self, speak_until: float) -> bool:
        """Return whether new processes ran on after their first log line, which would be about an unknown flag.

        A process without output counts as running after ``speak_until``.
        """
        now = time.monotonic()
        started = [name for name in _SPEAKING if name in self.started]
        if now < speak_until and any(
            processes.log_size(self._paths, name) <= self._log_sizes[name] for name in started
        ):
            self._silent_at = now
        return not started or now >= self._silent_at + _SETTLED_AFTER_SECONDS

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
            raise LocalCloudError(message)

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
        raise LocalCloudError("\n".join(parts))
