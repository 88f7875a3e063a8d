"""The ledger: the list of a stack's holdings on this machine, written before each is made and after it is done.

One JSON line for each change, appended; a kill at any moment loses at most the line being written, and the work that
this line announces had not begun. A resource has one entry for each thing it holds: while an object is replaced by
another one of a different name, there are two.
"""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainium_eks import whole_file
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

VERSION = 1


@dataclass(frozen=True)
class Holding:
    """One thing that a resource holds."""

    urn: str
    type: str
    kind: str
    """Kind of the maker: ``object``, ``release``, ``nodes``, ``addon``, or ``simulated`` for a resource in name only.
    """
    reference: Mapping[str, Any]
    """The data by which its maker finds it again."""
    digest: str = ""
    after: tuple[str, ...] = ()
    """URNs of the resources that existed before it; it never outlives these."""
    deleted_with: str = ""
    """URN of the resource that is deleted with this one; empty for a holding that is deleted by itself."""
    replaced_with: tuple[str, ...] = ()
    """URNs of the resources it is made from: when one of these is replaced, it is deleted first and made anew."""
    protect: bool = False
    retain: bool = False
    run: int = 0
    """Number of the last ``up`` with this holding in its program."""
    done: bool = False
    """Whether that ``up`` completed it."""

    @property
    def key(self) -> str:
        """Return the key that sets a holding apart from other holdings of the same resource."""
        return f"{self.urn} {self.kind} {json.dumps(self.reference, sort_keys=True)}"


@dataclass
class Ledger:
    """The holdings of one stack.

    Attributes:
        run: number of the current ``up``.
    """

    file: Path
    run: int = 0
    _holdings: dict[str, Holding] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def open(file: Path) -> "Ledger":
        """Return the ledger in a file, which need not exist. A last line that was cut off is dropped."""
        ledger = Ledger(file)
        try:
            text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        except OSError as error:
            raise LocalCloudError(f"{file} cannot be read: {error.strerror}") from None
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            if not line.endswith("\n"):
                ledger.compact()  # or the next line would be glued to the torn one
                break
            try:
                ledger._take(parse_json(line))
            except MISSHAPEN as error:
                fix = "`trn local down` removes it with the rest of the stack"
                raise LocalCloudError(f"{file}, line {number}, is damaged ({error!r}): {fix}") from None
        return ledger

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """Return all holdings, oldest first."""
        return tuple(self._holdings.values())

    def of(self, urn: str, kind: str) -> Holding | None:
        """Return the newest holding of a kind of a resource."""
        with self._lock:
            mine = [each for each in self._holdings.values() if (each.urn, each.kind) == (urn, kind)]
        return mine[-1] if mine else None

    def begin(self) -> None:
        """Begin a new ``up``: holdings that it does not ask for are left over afterwards."""
        self.run += 1
        self._append({"run": self.run})

    def hold(self, holding: Holding, *, done: bool) -> None:
        """Record a holding that is about to be made, or that is done."""
        holding = replace(holding, run=self.run, done=done)
        with self._lock:
            self._holdings.pop(holding.key, None)
            self._holdings[holding.key] = holding
            self._append({"hold": asdict(holding)})

    def drop(self, holding: Holding) -> None:
        """Record that a holding is gone."""
        with self._lock:
            self._holdings.pop(holding.key, None)
            self._append({"drop": holding.key})

    def made_from(self, urn: str) -> tuple[Holding, ...]:
        """Return the holdings that earlier ``up`` commands made from a resource and this ``up`` has not reached."""
        with self._lock:
            return tuple(each for each in self._holdings.values() if urn in each.replaced_with and each.run != self.run)

    def left_over(self) -> tuple[Holding, ...]:
        """Return the holdings that the current ``up`` did not ask for."""
        return tuple(each for each in self._holdings.values() if each.run != self.run)

    def compact(self) -> None:
        """Rewrite the file with the current holdings, as a whole or not at all."""
        lines = [{"version": VERSION}, {"run": self.run}, *({"hold": asdict(each)} for each in self.holdings)]
        try:
            whole_file.write(self.file, "".join(json.dumps(line) + "\n" for line in lines))
        except OSError as error:
            raise LocalCloudError(f"{self.file} cannot be written: {error.strerror}") from None

    def _take(self, line: Mapping[str, Any]) -> None:
        if "version" in line and line["version"] != VERSION:
            raise LocalCloudError(
                f"{self.file} has version {line['version']}, this trn writes {VERSION}: "
                "`trn local down` with the trn that made it, then start again"
            )
        if "run" in line:
            self.run = line["run"]
        elif "hold" in line:
            lists = {name: tuple(line["hold"].get(name, ())) for name in ("after", "replaced_with")}
            holding = Holding(**{**line["hold"], **lists})
            self._holdings.pop(holding.key, None)
            self._holdings[holding.key] = holding
        elif "drop" in line:
            self._holdings.pop(line["drop"], None)

    def _append(self, line: Mapping[str, Any]) -> None:
        """Append one line, or none: a partly written line is removed when the disk is full."""
        try:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                text = (json.dumps({"version": VERSION}) + "\n" if size == 0 else "") + json.dumps(line) + "\n"
                if os.write(descriptor, text.encode()) != len(text.encode()):
                    os.ftruncate(descriptor, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LocalCloudError(f"{self.file} cannot be written: {error.strerror}") from None


def digest(inputs: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a resource's inputs; the inputs may hold secrets, so they themselves are never written."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=repr).encode()).hexdigest()


def deletion_order(holdings: Iterable[Holding]) -> list[list[Holding]]:
    """Return the holdings in rounds: each goes after all that were made after it, and all of one round can go at once.

    A resource that is deleted with another one is gone only when the other one is: a volume waits for the namespace of
    its claim. Resources that wait for each other in a ring go in one round. No single program makes a ring, but two
    may: the left-overs of one ``up`` can have come after the left-overs of another, and the other way round.
    """
    left = list(holdings)
    after = _after(left)
    rounds: list[list[Holding]] = []
    while left:
        urns = {each.urn for each in left}
        needed = {urn for each in urns for urn in after[each] if urn != each}
        free = urns - needed or _ring({urn: after[urn] for urn in urns})
        rounds.append([each for each in left if each.urn in free])
        left = [each for each in left if each.urn not in free]
    return rounds


def _after(holdings: Sequence[Holding]) -> dict[str, set[str]]:
    """Return for each URN the URNs that must not be deleted before it."""
    after: dict[str, set[str]] = {}
    for each in holdings:
        after.setdefault(each.urn, set()).update(each.after)
    with_it = {each.urn: each.deleted_with for each in holdings}
    for each in holdings:
        if each.deleted_with in after:
            after[each.deleted_with] |= {
                urn for urn in each.after if urn != each.deleted_with and with_it.get(urn) != each.deleted_with
            }
    return after


def _ring(after: Mapping[str, set[str]]) -> set[str]:
    """Return the URNs that nothing outside of their own ring comes after. Each given URN has another one after it."""

    def all_before(urn: str) -> set[str]:
        found: set[str] = set()
        new = {urn}
        while new := {further for each in new for further in after.get(each, ())} - found:
            found |= new
        return found

    reached = {urn: all_before(urn) for urn in after}
    return {urn for urn in after if all(other in reached[urn] for other in after if urn in reached[other])}
