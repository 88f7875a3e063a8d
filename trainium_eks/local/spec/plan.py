"""What a shim is told to run: everything of a pod resolved, so that the shim asks nobody.

Standard library alone, like all that a shim imports.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Isolation(StrEnum):
    """How far a pod is from the machine it runs on."""

    NET = "net"
    """Namespaces of its own for users, files, processes, IPC, host name and network."""
    NS = "ns"
    """The same, on the machine's network."""
    PLAIN = "plain"
    """None: processes of the machine; paths are rewritten in arguments and environment."""


class RestartPolicy(StrEnum):
    """When a container that ended is started again."""

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
    """Path in the source that is seen in its place. Pods may write there, so :mod:`.beneath` opens it at each start."""

    @property
    def path(self) -> str:
        """The path on the machine."""
        return os.path.join(self.source, self.below) if self.below else self.source


@dataclass(frozen=True)
class Action:
    """What a probe or a hook does: exactly one of its kinds."""

    command: tuple[str, ...] = ()
    """Run in the container."""
    host: str = ""
    """To connect to; the pod itself when empty."""
    port: int = 0
    """To connect to over TCP."""
    http_path: str = ""
    """To ask for over HTTP at :attr:`port`; only connect when empty."""
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str], ...] = ()
    sleep_seconds: float = 0.0
    """Just wait (hooks only)."""


@dataclass(frozen=True)
class Probe:
    """How to find out about a container, with Kubernetes' own defaults."""

    action: Action
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None
    """Of the kill that a failure leads to; the pod's own when None."""


@dataclass(frozen=True)
class Container:
    """One container."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    """To start in; made when it is not there."""
    mounts: tuple[Mount, ...] = ()
    restart: RestartPolicy = RestartPolicy.ALWAYS
    is_sidecar: bool = False
    """An init container that goes on running beside the others."""
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None
    post_start: Action | None = None
    pre_stop: Action | None = None
    memory_bytes: int = 0
    """It is killed beyond that; 0 for no limit."""
    termination_log: str = ""
    """File of the machine that holds what the container said at its end."""
    message_from_log: bool = False
    """Whether the end of a failed container's output stands in for that."""
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
    """In the stack's pod network: ``100.127.0.2``."""
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
        """As it stands in the pod's directory."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "PodPlan":
        """What :meth:`to_json` wrote."""
        data = json.loads(text)
        data["isolation"] = Isolation(data["isolation"])
        data["init"] = tuple(_container(each) for each in data["init"])
        data["containers"] = tuple(_container(each) for each in data["containers"])
        return PodPlan(**data)

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Init containers first."""
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
        """What the shim runs."""
        return self.path / "plan.json"

    @property
    def state(self) -> Path:
        """What became of it, written by the shim."""
        return self.path / "state.json"

    @property
    def stop(self) -> Path:
        """How the shim is to end the pod; there once it is asked to."""
        return self.path / "stop.json"

    @property
    def hosts(self) -> Path:
        """The containers' ``/etc/hosts``, rewritten in place."""
        return self.path / "hosts"

    @property
    def shim_log(self) -> Path:
        """What the shim itself has to say."""
        return self.path / "shim.log"

    @property
    def shared_memory(self) -> Path:
        """The containers' ``/dev/shm``."""
        return self.path / "shm"

    def volume(self, name: str) -> Path:
        """Where a volume's content lies, unless it is a claim's."""
        return self.path / "volumes" / name

    def container(self, name: str) -> Path:
        """What is one container's own."""
        return self.path / "containers" / name

    def log(self, name: str, restart: int) -> Path:
        """What a container has written since its start, in lines with time and stream."""
        return self.container(name) / f"{restart}.log"

    def termination_log(self, name: str) -> Path:
        """See :attr:`Container.termination_log`."""
        return self.container(name) / "termination-log"

    def scratch(self, name: str) -> Path:
        """The container's ``/tmp``."""
        return self.container(name) / "tmp"

    def root(self, name: str) -> Path:
        """Where the container's file system is put together."""
        return self.container(name) / "root"
