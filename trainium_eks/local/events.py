"""The messages between ``trn local up`` and the program's process, as JSON: the backend's options, and its events."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainium_eks.local.changes import Change


@dataclass(frozen=True)
class BackendOptions:
    """The options from which the program's process makes its backend."""

    root: str
    project: str
    helm: str
    server: str
    instance_types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The config's changes of the catalogue."""
    csi_drivers: tuple[str, ...] = ()
    """Names of the storage drivers that run on every node."""
    volcano: Mapping[str, str] = field(default_factory=dict)
    """Paths of Volcano's programs by name: all or none."""
    volcano_missing: str = ""
    """Why Volcano's programs are missing."""
    adopted_zones: Mapping[str, str] = field(default_factory=dict)
    """Zone id of each subnet that the stack adopts."""

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "BackendOptions":
        """Return the options that :meth:`to_json` wrote."""
        return BackendOptions(**{**data, "csi_drivers": tuple(data["csi_drivers"])})


@dataclass(frozen=True)
class Begun:
    """A resource is being worked on."""

    urn: str


@dataclass(frozen=True)
class Waiting:
    """A resource waits for something."""

    urn: str
    reason: str


@dataclass(frozen=True)
class Done:
    """A resource is as it should be."""

    urn: str
    kind: str
    """See :attr:`trainium_eks.local.ledger.Holding.kind`."""
    name: str
    change: Change
    notes: tuple[str, ...] = ()
    not_installed: str = ""
    """Why it could not be installed on this machine, when that is no failure."""


@dataclass(frozen=True)
class Failed:
    """A resource could not be made or deleted."""

    urn: str
    message: str


@dataclass(frozen=True)
class Abandoned:
    """A resource was under way when something else failed."""

    urn: str
    message: str


@dataclass(frozen=True)
class Deleted:
    """A resource that left the program is gone."""

    urn: str
    kind: str


@dataclass(frozen=True)
class Kept:
    """A resource that left the program stays, as its options say."""

    urn: str


Event = Begun | Waiting | Done | Failed | Abandoned | Deleted | Kept

Tell = Callable[[Event], None]

_EVENTS: Mapping[str, type[Event]] = {
    each.__name__: each for each in (Begun, Waiting, Done, Failed, Abandoned, Deleted, Kept)
}


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain data."""
    return {"event": type(event).__name__, **asdict(event)}


def from_json(data: Mapping[str, Any]) -> Event:
    """Return the event that :func:`to_json` wrote."""
    rest = dict(data)
    made = _EVENTS[rest.pop("event")]
    if made is Done:
        rest |= {"change": Change(rest["change"]), "notes": tuple(rest["notes"])}
    return made(**rest)
