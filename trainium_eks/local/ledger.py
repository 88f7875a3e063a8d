"""What a stack has made on this machine: the ledger, written before anything is made and after it is done.

One JSON line for each change, appended; a kill at any moment loses at most the line being written, and what that
line was about had not begun. A resource stands in it once for each thing it holds: while an object is replaced by one
of another name, there are two.
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

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

VERSION = 1


@dataclass(frozen=True)
class Holding:
    """One thing that a resource holds."""

    urn: str
    type: str
    kind: str
    """Who made it: ``object``, ``release``, ``nodes``, ``addon``, or ``simulated`` for what exists in name only."""
    reference: Mapping[str, Any]
    """What its maker needs to find it again."""
    digest: str = ""
    """Of the inputs it was made from."""
    after: tuple[str, ...] = ()
    """URNs that were there before it, and that it outlives never."""
    deleted_with: str = ""
    """URN of what takes it along when it goes; empty for what is deleted by itself."""
    replaced_with: tuple[str, ...] = ()
    """URNs of what it is made from: when one of these is replaced, it is deleted first and made anew."""
    protect: bool = False
    retain: bool = False
    run: int = 0
    """The ``up`` that last asked for it."""
    done: bool = False
    """Whether that ``up`` finished it."""

    @property
    def key(self) -> str:
        """What tells it from other things of the same resource."""
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
        """The ledger in a file, which need not exist. A last line that was cut off is as if it were not there.

        Raises:
            ClusterError: for a file of another version, or one that cannot be read.
        """
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
        """Everything held, oldest first."""
        return tuple(self._holdings.values())

    def of(self, urn: str, kind: str) -> Holding | None:
        """What a resource holds, the newest."""
        with self._lock:
            mine = [each for each in self._holdings.values() if (each.urn, each.kind) == (urn, kind)]
        return mine[-1] if mine else None

    def begin(self) -> None:
        """A new ``up``: what it does not ask for is left over afterwards."""
        self.run += 1
        self._append({"run": self.run})

    def hold(self, holding: Holding, *, done: bool) -> None:
        """Writes down what is about to be made, or that it is done."""
        holding = replace(holding, run=self.run, done=done)
        with self._lock:
            self._holdings.pop(holding.key, None)
            self._holdings[holding.key] = holding
            self._append({"hold": asdict(holding)})

    def drop(self, holding: Holding) -> None:
        """Writes down that it is gone."""
        with self._lock:
            self._holdings.pop(holding.key, None)
            self._append({"drop": holding.key})

    def made_from(self, urn: str) -> tuple[Holding, ...]:
        """What earlier ``up`` commands made from a resource, and this one has not come to yet."""
        with self._lock:
            return tuple(each for each in self._holdings.values() if urn in each.replaced_with and each.run != self.run)

    def left_over(self) -> tuple[Holding, ...]:
        """What the current ``up`` did not ask for."""
        return tuple(each for each in self._holdings.values() if each.run != self.run)

    def compact(self) -> None:
        """Rewrites the file with what is held now; all of it or nothing.

        Raises:
            ClusterError: when it cannot be written.
        """
        lines = [{"version": VERSION}, {"run": self.run}, *({"hold": asdict(each)} for each in self.holdings)]
        part = self.file.with_suffix(".part")
        try:
            part.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            part.replace(self.file)
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
        """One line more, or none: what was written of it when the disk became full is taken back."""
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
    """SHA-256 of a resource's inputs; they may hold secrets, so they themselves are never written."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=repr).encode()).hexdigest()


def deletion_order(holdings: Iterable[Holding]) -> list[list[Holding]]:
    """In rounds: nothing goes before what was made after it, and what is in one round can go at the same time.

    What is taken along by something else is gone only when that is: a volume waits for the namespace of its claim.
    What waits for each other in a ring goes in one round. No single program makes one, but two may: what is left of
    one ``up`` can have come after what is left of another, and the other way round.
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
    """URN to the URNs that must not go before it."""
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
    """Of URNs that all have something after them: those that only their own ring comes after."""

    def all_before(urn: str) -> set[str]:
        found: set[str] = set()
        new = {urn}
        while new := {further for each in new for further in after.get(each, ())} - found:
            found |= new
        return found

    reached = {urn: all_before(urn) for urn in after}
    return {urn for urn in after if all(other in reached[urn] for other in after if urn in reached[other])}
