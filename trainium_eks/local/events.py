"""The messages between ``trn local up`` and the program's process, as JSON: the backend's options, and its events."""

from collections.abc import Callable, Mapping, Sequence
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
    csi_drivers: Sequence[str] = ()
    """Names of the storage drivers that run on every node."""
    volcano: Mapping[str, str] = field(default_factory=dict)
    """Paths of Volcano's programs by name: all or none."""
    volcano_missing: str = ""
    """Why Volcano's programs are missing."""
    adopted_zones: Mapping[str, str] = field(default_factory=dict)
    """Zone id of each subnet that the stack adopts."""


@dataclass(frozen=True)
class Working:
    """A resource is being worked on."""

    urn: str
    reason: str = ""
    """What it waits for."""


@dataclass(frozen=True)
class Done:
    """A resource is as it should be, or gone."""

    urn: str
    kind: str
    """See :attr:`trainium_eks.local.inventory.Item.kind`."""
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


Event = Working | Done | Failed

Tell = Callable[[Event], None]


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain data."""
    return {"event": type(event).__name__, **asdict(event)}


def from_json(data: Mapping[str, Any]) -> Event:
    """Return the event that :func:`to_json` wrote."""
    rest = dict(data)
    kind = rest.pop("event")
    if kind == "Done":
        return Done(**rest | {"change": Change(rest["change"]), "notes": tuple(rest["notes"])})
    return (Failed if kind == "Failed" else Working)(**rest)
