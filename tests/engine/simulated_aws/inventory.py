"""Inventory of the things that exist in the simulated clouds, kept in a file."""

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

VERSION = 1
"""Version of the file."""


class InventoryError(Exception):
    """A file that cannot be used. The message names the file, the reason and the remedy."""


class AlreadyExistsError(Exception):
    """A thing of the same type, cluster and id that exists already."""


@dataclass(frozen=True)
class Thing:
    """One thing that exists in AWS or in a Kubernetes cluster."""

    type: str
    """Type token: ``aws:ec2/vpc:Vpc``."""
    id: str
    """Unique among the things of its type in the same cluster."""
    cluster: str
    """Endpoint of the Kubernetes cluster that it is in; empty for a thing in AWS."""
    urn: str
    """URN of the resource that requested it."""
    made_as: str
    """Name that its ids are made from: the URN, with a number from the URN's second thing on."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Secrets as ``[secret]``."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Inputs and computed properties; secrets as ``[secret]``."""


class Inventory:
    """The things that exist, safe to use from many threads. InventoryError when the file cannot be read or written, is
    not an inventory, or is in use.

    The file is written whole and moved into place at every change, so a reader always finds a complete state. Only one
    process may use it: it is locked for as long as the inventory is open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._things: dict[tuple[str, str, str], Thing] = {}
        self._made: dict[str, int] = {}
        self._failed: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._guard = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InventoryError(f"the state file {path} cannot be used: {error.strerror}") from None
        try:
            self._open()
        except BaseException:
            os.close(self._guard)
            raise

    def __enter__(self) -> "Inventory":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file's lock, so that another process can use it."""
        os.close(self._guard)

    def things(self) -> tuple[Thing, ...]:
        """Return every thing that exists, in a fixed order."""
        with self._lock:
            return tuple(self._things[key] for key in sorted(self._things))

    def find(self, type_: str, id_: str, cluster: str) -> Thing | None:
        """Return the thing, or None when it does not exist."""
        with self._lock:
            return self._things.get((type_, cluster, id_))

    def next_name(self, urn: str) -> str:
        """Return the name that the ids of this URN's next thing are made from: no two things ever have the same."""
        with self._lock:
            made = self._made.get(urn, 0)
            return f"{urn}#{made + 1}" if made else urn

    def add(self, thing: Thing) -> None:
        """Add a new thing."""
        with self._lock:
            key = _key(thing)
            if key in self._things:
                raise AlreadyExistsError(thing.id)
            made = {**self._made, thing.urn: self._made.get(thing.urn, 0) + 1}
            self._commit({**self._things, key: thing}, made, self._failed)

    def put(self, thing: Thing) -> None:
        """Replace the inputs and outputs of an existing thing."""
        with self._lock:
            self._commit({**self._things, _key(thing): thing}, self._made, self._failed)

    def remove(self, *things: Thing) -> None:
        """Remove things, all in one write. Removing a missing thing is no error."""
        with self._lock:
            gone = {_key(thing) for thing in things}
            left = {key: thing for key, thing in self._things.items() if key not in gone}
            self._commit(left, self._made, self._failed)

    def fails_first(self, type_: str) -> bool:
        """Return True at the first call for this type, and never again, in any process."""
        with self._lock:
            if type_ in self._failed:
                return False
            self._commit(self._things, self._made, self._failed | {type_})
            return True

    def _open(self) -> None:
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InventoryError(
                f"the state file {self._path} is in use by another process that serves it: stop that one, or give "
                "another --state"
            ) from None
        if self._path.exists():
            self._read()
        else:
            self._commit({}, {}, set())

    def _read(self) -> None:
        try:
            content = json.loads(self._path.read_text())
            if content["version"] != VERSION:
                raise InventoryError(
                    f"the state file {self._path} has version {content['version']}, this program reads {VERSION}: "
                    "give another --state, or delete it to start empty"
                )
            things = [Thing(**item) for item in content["things"]]
            self._things = {_key(thing): thing for thing in things}
            self._made = dict(content["made"])
            self._failed = set(content["failed"])
        except OSError as error:
            raise InventoryError(f"the state file {self._path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InventoryError(
                f"{self._path} is not a state file of the simulated cloud: give another --state, or delete it to "
                "start empty"
            ) from None

    def _commit(self, things: dict[tuple[str, str, str], Thing], made: dict[str, int], failed: set[str]) -> None:
        """Write the file, then change the memory: a failed write changes nothing."""
        content = {
            "version": VERSION,
            "things": [asdict(things[key]) for key in sorted(things)],
            "made": made,
            "failed": sorted(failed),
        }
        part = self._path.with_name(f"{self._path.name}.part")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as sink:
                json.dump(content, sink)
            part.replace(self._path)
        except OSError as error:
            raise InventoryError(f"the state file {self._path} cannot be written: {error.strerror}") from None
        self._things, self._made, self._failed = things, made, failed


def _key(thing: Thing) -> tuple[str, str, str]:
    return thing.type, thing.cluster, thing.id
