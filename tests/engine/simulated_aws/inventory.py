"""Inventory of the things that exist in the simulated clouds, kept in a file."""

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


class InventoryError(Exception):
    """A file that another process uses."""


@dataclass(frozen=True)
class Thing:
    """One thing that exists in AWS or in a Kubernetes cluster."""

    type: str
    id: str
    """Unique among the things of its type in the same cluster."""
    cluster: str
    """Endpoint of the Kubernetes cluster that it is in; empty for a thing in AWS."""
    urn: str
    made_as: str
    """Name that its ids are made from: the URN, with a number from the URN's second thing on."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Secrets as ``[secret]``."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Inputs and computed properties; secrets as ``[secret]``."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.type, self.cluster, self.id


class Inventory:
    """The things that exist, safe to use from many threads, and by one process at a time.

    The file is written whole and moved into place at every change, so a reader always finds a complete state.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._things: dict[tuple[str, str, str], Thing] = {}
        self._made: dict[str, int] = {}
        self._failed: set[str] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._guard = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise InventoryError(f"{path} is in use by another process that serves it") from None
        if path.exists():
            content = json.loads(path.read_text())
            self._things = {thing.key: thing for thing in (Thing(**item) for item in content["things"])}
            self._made, self._failed = content["made"], set(content["failed"])
        else:
            self._commit({}, {}, set())

    def __enter__(self) -> "Inventory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file's lock, so that another process can use it."""
        os.close(self._guard)

    def things(self) -> tuple[Thing, ...]:
        with self._lock:
            return tuple(self._things[key] for key in sorted(self._things))

    def find(self, type_: str, id_: str, cluster: str) -> Thing | None:
        with self._lock:
            return self._things.get((type_, cluster, id_))

    def next_name(self, urn: str) -> str:
        """Return the name that the ids of this URN's next thing are made from: no two things ever have the same."""
        with self._lock:
            made = self._made.get(urn, 0)
            return f"{urn}#{made + 1}" if made else urn

    def add(self, thing: Thing) -> bool:
        with self._lock:
            if thing.key in self._things:
                return False
            made = {**self._made, thing.urn: self._made.get(thing.urn, 0) + 1}
            self._commit({**self._things, thing.key: thing}, made, self._failed)
            return True

    def put(self, thing: Thing) -> None:
        with self._lock:
            self._commit({**self._things, thing.key: thing}, self._made, self._failed)

    def remove(self, *things: Thing) -> None:
        """Remove things, all in one write. Removing a missing thing is no error."""
        with self._lock:
            gone = {thing.key for thing in things}
            left = {key: thing for key, thing in self._things.items() if key not in gone}
            self._commit(left, self._made, self._failed)

    def fails_first(self, type_: str) -> bool:
        """Return True at the first call for this type, and never again, in any process."""
        with self._lock:
            if type_ in self._failed:
                return False
            self._commit(self._things, self._made, self._failed | {type_})
            return True

    def _commit(self, things: dict[tuple[str, str, str], Thing], made: dict[str, int], failed: set[str]) -> None:
        """Write the file, then change the memory: a failed write changes nothing."""
        sorted_things = [asdict(things[key]) for key in sorted(things)]
        part = self._path.with_name(f"{self._path.name}.part")
        part.write_text(json.dumps({"things": sorted_things, "made": made, "failed": sorted(failed)}))
        part.replace(self._path)
        self._things, self._made, self._failed = things, made, failed
