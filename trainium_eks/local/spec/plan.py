"""The shim's input: everything of a pod resolved, so that the shim asks no other process.

Little else is imported, as by all that a shim imports.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import parse_json


class Isolation(StrEnum):
    """The isolation of a pod from its machine."""

    NET = "net"
    """Separate namespaces for users, files, processes, IPC, host name and network."""
    NS = "ns"
    """The same, on the machine's network."""
    PLAIN = "plain"
    """None: processes of the machine; paths are rewritten in arguments and environment."""


class RestartPolicy(StrEnum):
    """The rule for restarts of containers that ended."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True)
class Mount:
    """A directory or file of the machine, seen at another path."""

    source: str
    target: str
    read_only: bool = False
    below: str = ""
    """Path in the source to mount instead of it. Pods may write there, so :mod:`.beneath` opens it at each start."""

    @property
    def path(self) -> str:
        """Return the path on the machine."""
        return os.path.join(self.source, self.below) if self.below else self.source


@dataclass(frozen=True)
class Action:
    """The action of a probe or a hook: exactly one of its kinds."""

    command: tuple[str, ...] = ()
    host: str = ""
    """Host to connect to; the pod itself when empty."""
    port: int = 0
    http_path: str = ""
    """Path to request over HTTP at :attr:`port`; only connect when empty."""
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str], ...] = ()
    sleep_seconds: float = 0.0
    """Just wait (hooks only)."""


@dataclass(frozen=True)
class Probe:
    """A probe of a container, with Kubernetes' own defaults."""

    action: Action
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None
    """Grace period of the kill after a failure; the pod's own when None."""


@dataclass(frozen=True)
class Container:
    """One container."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    """Working directory; made when it is missing."""
    mounts: tuple[Mount, ...] = ()
    restart: RestartPolicy = RestartPolicy.ALWAYS
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None
    post_start: Action | None = None
    pre_stop: Action | None = None
    termination_log: str = ""
    """File of the machine that holds the container's termination message."""
    message_from_log: bool = False
    """Whether the end of a failed container's output replaces that message."""
    read_only_root: bool = False


@dataclass(frozen=True)
class PodPlan:
    """One pod."""

    uid: str
    namespace: str
    name: str
    hostname: str
    isolation: Isolation
    address: str
    """Address in the stack's pod network: ``100.127.0.2``."""
    init: tuple[Container, ...]
    containers: tuple[Container, ...]
    grace_seconds: float = 30.0
    deadline_seconds: float | None = None
    """How long the pod may be active."""
    network_pid: int = 0
    """Process that holds the pod network; only with :attr:`Isolation.NET`."""
    memory_volumes: Mapping[str, int] = field(default_factory=dict)
    """Directories that are to be in memory, with their sizes in bytes (0 for half of the memory)."""

    def to_json(self) -> str:
        """Return the plan as written to the pod's directory."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "PodPlan":
        """Return the plan that :meth:`to_json` wrote."""
        data = json.loads(text)
        data["isolation"] = Isolation(data["isolation"])
        data["init"] = tuple(_container(each) for each in data["init"])
        data["containers"] = tuple(_container(each) for each in data["containers"])
        return PodPlan(**data)

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return all containers, init containers first."""
        return self.init + self.containers


def _container(data: dict[str, Any]) -> Container:
    for kind in ("startup", "readiness", "liveness"):
        if data[kind] is not None:
            data[kind] = Probe(**{**data[kind], "action": _action(data[kind]["action"])})
    for kind in ("post_start", "pre_stop"):
        if data[kind] is not None:
            data[kind] = _action(data[kind])
    data["restart"] = RestartPolicy(data["restart"])
    data["argv"] = tuple(data["argv"])
    data["mounts"] = tuple(Mount(**each) for each in data["mounts"])
    return Container(**data)


def _action(data: dict[str, Any]) -> Action:
    return Action(
        **{
            **data,
            "command": tuple(data["command"]),
            "headers": tuple((name, value) for name, value in data["headers"]),
        }
    )


@dataclass(frozen=True)
class PodDirectory:
    """The files of one pod: ``.local/<stack>/pods/<uid>``."""

    path: Path

    @property
    def plan(self) -> Path:
        """Return the file of the shim's plan."""
        return self.path / "plan.json"

    @property
    def state(self) -> Path:
        """Return the file of the pod's state, written by the shim."""
        return self.path / "state.json"

    @property
    def stop(self) -> Path:
        """Return the file with the order to end the pod; missing before such an order."""
        return self.path / "stop.json"

    @property
    def hosts(self) -> Path:
        """Return the containers' ``/etc/hosts``, rewritten in place."""
        return self.path / "hosts"

    @property
    def shim_log(self) -> Path:
        """Return the file of the shim's own errors."""
        return self.path / "shim.log"

    @property
    def shared_memory(self) -> Path:
        """Return the containers' ``/dev/shm``."""
        return self.path / "shm"

    def volume(self, name: str) -> Path:
        """Return the directory of a volume's content, unless it is a claim's."""
        return self.path / "volumes" / name

    def container(self, name: str) -> Path:
        """Return the directory of one container."""
        return self.path / "containers" / name

    def log(self, name: str, restart: int) -> Path:
        """Return the log of a container's run, in the format of :mod:`trainium_eks.local.runtime.output`."""
        return self.container(name) / f"{restart}.log"

    def termination_log(self, name: str) -> Path:
        """Return the file for :attr:`Container.termination_log`."""
        return self.container(name) / "termination-log"

    def scratch(self, name: str) -> Path:
        """Return the container's ``/tmp``."""
        return self.container(name) / "tmp"

    def root(self, name: str) -> Path:
        """Return the directory in which the container's file system is built."""
        return self.container(name) / "root"


def read(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None."""
    try:
        data = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
