"""Messages between the process that requests a recording and the process that runs the program: JSON, with a version.

A checkout is recorded by the package that lies beside its program, so the two sides may be of different versions.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainium_eks import whole_file
from trainium_eks.plan.recording.assumptions import Assumptions

PROTOCOL = 1

LIVE_PROTOCOL = 2
"""Version of a request that names a backend: a package that does not know it must not simulate instead."""


class UnknownProtocolError(Exception):
    """A message of a version that this side does not know; ``version`` is None for a message without one."""

    def __init__(self, version: object) -> None:
        self.version = version
        super().__init__(f"unknown version {version} of the recording protocol")


@dataclass(frozen=True)
class LiveBackend:
    """Backend that answers for the providers instead of the simulation."""

    factory: str
    """``module:function``."""
    options: Mapping[str, Any]
    events: int
    """File descriptor for its events, one JSON object a line."""


@dataclass(frozen=True)
class RecordingRequest:
    """Request to record a program."""

    project: str
    stack: str
    program: str
    config: Mapping[str, str]
    """Full key to text."""
    secret_keys: tuple[str, ...]
    dry_run: bool
    timeout_seconds: float
    answer: str = ""
    live: LiveBackend | None = None
    assumptions: Assumptions | None = None
    """With None, a look-up is an error."""

    def to_json(self) -> str:
        """Return the JSON text for the other process."""
        return json.dumps({"protocol": LIVE_PROTOCOL if self.live else PROTOCOL, **asdict(self)})

    @staticmethod
    def from_json(text: str) -> "RecordingRequest":
        """Return the request of a JSON text, the inverse of :meth:`to_json`."""
        data = _known(json.loads(text))
        live = data.pop("live", None)
        assumptions = data.pop("assumptions", None)
        secret_keys = tuple(data.pop("secret_keys"))
        return RecordingRequest(
            **data,
            secret_keys=secret_keys,
            live=LiveBackend(**live) if live else None,
            assumptions=Assumptions(**assumptions) if assumptions is not None else None,
        )


class Status(StrEnum):
    """Result of a recording."""

    RECORDED = "recorded"
    INVALID = "invalid"
    """The program refused its config."""
    FAILED = "failed"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """The request was of a version that the program's own package does not know."""


@dataclass(frozen=True)
class Answer:
    """Result of a recording, with its graph or its problems."""

    status: Status
    graph: Mapping[str, Any] | None = None
    problems: tuple[Mapping[str, Any], ...] = ()
    component: str = ""
    """The component with invalid arguments; empty when the stack's config is invalid."""
    message: str = ""
    traceback: str = ""
    pending: tuple[str, ...] = field(default=())

    def write(self, path: Path) -> None:
        """Write the answer in one step: a half-written answer must not look like a complete one."""
        whole_file.write(path, json.dumps({"protocol": PROTOCOL, **vars(self)}))

    @staticmethod
    def read(path: Path) -> "Answer":
        """Return the answer of a file, the inverse of :meth:`write`."""
        data = json.loads(path.read_text())
        if data.get("status") == Status.PROTOCOL:
            raise UnknownProtocolError(data.get("protocol"))
        data = _known(data)
        return Answer(
            Status(data["status"]),
            graph=data.get("graph"),
            problems=tuple(data.get("problems", ())),
            component=data.get("component", ""),
            message=data.get("message", ""),
            traceback=data.get("traceback", ""),
            pending=tuple(data.get("pending", ())),
        )


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message without its version, or raise for an unknown version."""
    rest = dict(data)
    version = rest.pop("protocol", None)
    if version not in (PROTOCOL, LIVE_PROTOCOL):
        raise UnknownProtocolError(version)
    return rest
