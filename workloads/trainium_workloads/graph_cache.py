"""Files of a compile cache: whole or not there, also when their writer is killed.

Layout below the root, which lies on the shared file system:

``<key>/``              graphs for training, and ``complete.json``, written last: files with size and SHA-256, and
options
``.leases/<key>/``      leases of the compiling process and its helpers; see :mod:`trainium_workloads.lease`
``.staging/<key>/<n>/`` files that the holder of generation n has compiled so far
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads import lease as leases
from trainium_workloads.lease import Lease, write_whole

COMPLETE, NOT_THERE, OTHER_OPTIONS, IN_USE = 0, 3, 4, 5
"""Exit codes of ``check``; ``run`` and ``join`` have the last as well, or their command's."""

MARK = "complete.json"

_READERS = 8
"""Files that are read at a time: a share of Lustre gives one reader less than the network has."""
_READ_BYTES = 2**20

Part = Mapping[str, Any]
"""The mark's entry of a file: ``bytes`` and ``sha256``."""


@dataclass(frozen=True)
class Verdict:
    """State of a cache."""

    code: int
    """One of :data:`COMPLETE`, :data:`NOT_THERE`, :data:`OTHER_OPTIONS`, :data:`IN_USE`."""
    message: str


class Cache:
    """One cache.

    Args:
        root: directory of all caches, on the shared file system.
        name: see :func:`key`.
        beat_seconds: see :class:`~trainium_workloads.lease.Lease`.
        dead_seconds: the same.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        beat_seconds: float = leases.BEAT_SECONDS,
        dead_seconds: float = leases.DEAD_SECONDS,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", name):
            allowed = "at most 200 letters, digits, dots, dashes and underscores, no dot or dash first"
            raise ValueError(f"{name!r} is no name of a cache: {allowed}")
        self.name = name
        self.directory = root / name
        self.lease = Lease(root / ".leases" / name, beat_seconds, dead_seconds)
        self._helpers = root / ".leases" / name / "helpers"
        self._staging = root / ".staging" / name
        self._times = (beat_seconds, dead_seconds)
        self._read: dict[str, tuple[tuple[int, ...], str]] = {}
        """File to its state and digest when it was read: a waiting process checks again and again."""

    def staging(self, generation: int) -> Path:
        """Return the directory in which the holder of a generation compiles."""
        return self._staging / str(generation)

    def helper(self, generation: int, who: str) -> Lease:
        """Return the lease of a process that compiles beside the holder of a generation."""
        return Lease(self._helpers / f"{generation}.{who}", *self._times)

    def check(self, options: Mapping[str, Any]) -> Verdict:
        """Return the verdict whether training with these options would find its graphs."""
        if (found := self.complete(options)) is not None:
            return found
        holder = self.lease.holder()
        if holder is not None and self.lease.is_alive(holder):
            return Verdict(IN_USE, f"compile cache {self.name} is being compiled by {holder}")
        # A holder that is done by now has published meanwhile.
        mark = self._mark()
        if (found := self._complete(mark, options)) is not None:
            return found
        if mark is None:
            was = f"; {holder} began to compile it and is gone" if holder else ""
            return Verdict(NOT_THERE, f"compile cache {self.name} is not there{was}. Compile first (`trn compile`)")
        if damage := self._damage(mark):
            return Verdict(NOT_THERE, f"compile cache {self.name} is damaged: {damage}. Compile again (`trn compile`)")
        nearest = min((_differing(each["options"], options) for each in mark["compilations"]), key=len)
        told = f"compile cache {self.name} was compiled with other options: {'; '.join(nearest)}"
        return Verdict(OTHER_OPTIONS, f"{told}. Compile with these, too (`trn compile`), or train with those")

    def complete(self, options: Mapping[str, Any]) -> Verdict | None:
        """Return the verdict of a cache that has the graphs of these options; None for another cache."""
        return self._complete(self._mark(), options)

    def _complete(self, mark: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Verdict | None:
        if mark is None or self._damage(mark) or not any(each["options"] == options for each in mark["compilations"]):
            return None
        # Nobody compiles a compiled graph: the holders of these locks were killed, and the SDK waits for them for ever.
        _unlock(each for each in _modules(self.directory) if _is_compiled(each))
        return Verdict(COMPLETE, f"compile cache {self.name} is complete: {len(mark['files'])} files")

    def prepare(self, generation: int) -> Path:
        """Return the directory to compile in, with the files that a dead holder had compiled already.

        Its name has the generation, so that a holder wrongly taken for dead finds its directory gone, and cannot
        publish it.
        """
        ours = self.staging(generation)
        self._staging.mkdir(parents=True, exist_ok=True)
        left = [int(each.name) for each in self._staging.iterdir() if each.name.isdigit()]
        if left:
            self.staging(max(left)).rename(ours)
        for each in self._staging.iterdir():
            if each != ours:
                shutil.rmtree(each, ignore_errors=True)
        ours.mkdir(exist_ok=True)
        (ours / MARK).unlink(missing_ok=True)
        _unlock(_modules(ours))
        write_whole(self._open(generation), b"")
        return ours

    def is_open(self, generation: int) -> bool:
        """Return whether the directory of a generation accepts helpers. A helper asks after taking its lease:
        then either the holder finds the lease and waits, or the helper finds that it is too late."""
        return self._open(generation).exists()

    def await_helpers(self, generation: int) -> None:
        """Wait until every process that compiles beside the holder is done or dead. No process may join any more."""
        self._open(generation).unlink(missing_ok=True)
        for place in sorted(self._helpers.glob(f"{generation}.*")):
            helper = Lease(place, *self._times)
            while (holder := helper.holder()) is not None and helper.is_alive(holder):
                time.sleep(0.05)

    def _open(self, generation: int) -> Path:
        # Beside the leases, which sweep away files with an old number.
        return self._helpers.with_name(f"{generation}.open")

    def publish(self, generation: int, options: Mapping[str, Any], command: Sequence[str]) -> int:
        """Publish the compiled graphs to training.

        Returns:
            The number of graphs.

        Raises:
            Lost: somebody else compiles it now.
            Incomplete: not every graph was compiled.
            OSError: it cannot be written; the published graphs stay as they were.
        """
        ours = self.staging(generation)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        compilation = {"options": dict(options), "command": list(command), "time": now}
        try:
            modules = list(_modules(ours))
            if missing := [each.name for each in modules if not _is_compiled(each)]:
                raise Incomplete(missing)
            _unlock(modules)
            found = _files(ours)
            with ThreadPoolExecutor(_READERS) as pool:
                parts = pool.map(lambda file: {"bytes": file.stat().st_size, "sha256": _digest(file)}, found)
                files: dict[str, Part] = {
                    file.relative_to(ours).as_posix(): part for file, part in zip(found, parts, strict=True)
                }
            self.lease.check()
            if self.directory.exists():
                self._merge(ours, files, compilation)
            else:
                write_whole(ours / MARK, _json({"files": files, "compilations": [compilation]}))
                _sync(ours)
                ours.rename(self.directory)
                _sync_directory(self.directory.parent)
        except FileNotFoundError:
            self.lease.check()
            raise
        return len(modules)

    def _merge(self, ours: Path, files: dict[str, Part], compilation: dict[str, Any]) -> None:
        """Add to an existing cache: it has graphs of other options, or graphs compiled there without a lease.

        Each graph is moved by a rename, so that readers find their graphs all the time; the mark comes last.
        """
        mark = self._mark()
        known = mark if mark is not None and not self._damage(mark) else {"files": {}, "compilations": []}
        kept: dict[str, Part] = known["files"]
        _sync(ours)
        for unit in sorted({_unit(file) for file in files}):
            target = self.directory / unit
            own = {file for file in files if _unit(file) == unit}
            if target.exists() and own <= kept.keys():
                files = {file: part for file, part in files.items() if file not in own}
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                old = ours.with_name(f"{ours.name}.old") / unit
                old.parent.mkdir(parents=True, exist_ok=True)
                target.rename(old)
                kept = {file: part for file, part in kept.items() if _unit(file) != unit}
            (ours / unit).rename(target)
        others = [each for each in known["compilations"] if each["options"] != compilation["options"]]
        write_whole(ours / MARK, _json({"files": {**kept, **files}, "compilations": [*others, compilation]}))
        _sync_directory(self.directory)
        (ours / MARK).rename(self.directory / MARK)
        _sync_directory(self.directory)

    def discard(self, generation: int) -> None:
        """Remove the leftovers of the compilation."""
        for left in (self.staging(generation), self._staging / f"{generation}.old", self._helpers):
            shutil.rmtree(left, ignore_errors=True)

    def _mark(self) -> dict[str, Any] | None:
        """Return the cache's list of files and compilations; None when it was never complete."""
        try:
            mark = json.loads((self.directory / MARK).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return mark if _is_mark(mark) else None

    def _damage(self, mark: Mapping[str, Any]) -> str:
        """Return the first file that differs from its publication; empty for a cache that is whole.

        All of it is read: training reads the same files right afterwards, then from this machine's memory. One core
        digests 1.5 GiB a second, and :data:`_READERS` files are read at a time.
        """
        changed = []
        for path, part in mark["files"].items():
            try:
                state = os.stat(self.directory / path)
            except (OSError, ValueError):
                return f"{path} is gone"
            if state.st_size != part["bytes"]:
                return f"{path} has {state.st_size} bytes and had {part['bytes']}"
            seen = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if self._read.get(path, ((), ""))[0] != seen:
                changed.append((path, seen))
        with ThreadPoolExecutor(_READERS) as pool:
            digests = [*pool.map(lambda each: _digest(self.directory / each[0]), changed)]
        self._read |= {path: (seen, digest) for (path, seen), digest in zip(changed, digests, strict=True)}
        wrong = (path for path, part in mark["files"].items() if self._read[path][1] != part["sha256"])
        return next((f"{path} has the size that it had, and other bytes" for path in wrong), "")


def _is_mark(mark: object) -> bool:
    files, compilations = (mark.get(key) if isinstance(mark, dict) else None for key in ("files", "compilations"))
    return (
        isinstance(files, dict)
        and all(isinstance(part, dict) and part.keys() >= {"bytes", "sha256"} for part in files.values())
        and isinstance(compilations, list)
        and bool(compilations)
        and all(isinstance(each, dict) and isinstance(each.get("options"), dict) for each in compilations)
    )


def _digest(file: Path) -> str:
    """Return the SHA-256 of a file; an error's text for a file that cannot be read."""
    digest = hashlib.sha256()
    try:
        with file.open("rb", buffering=0) as opened:
            while data := opened.read(_READ_BYTES):
                digest.update(data)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()


class Incomplete(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Some graphs were not compiled."""

    def __init__(self, missing: Sequence[str]) -> None:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        super().__init__(f"{len(missing)} graphs were not compiled: {shown}")


# --- The SDK's files ----------------------------------------------------------------------------------------------
# <compiler>/MODULE_<graph>+<flags>/: the graph, model.neff when it is compiled, model.done in newer versions, and
# *.lock while somebody compiles, or was killed while compiling.


def _modules(directory: Path) -> Iterator[Path]:
    yield from sorted(each for each in directory.glob("**/MODULE_*") if each.is_dir())


def _is_compiled(module: Path) -> bool:
    return (module / "model.neff").exists() or (module / "model.done").exists()


def _unlock(modules: Iterable[Path]) -> None:
    for module in modules:
        for lock in module.glob("*.lock"):
            lock.unlink(missing_ok=True)


def _unit(file: str) -> str:
    """Return the unit of publication of a file: its graph's directory, or the file itself outside of graphs."""
    parts = file.split("/")
    at = next((place for place, part in enumerate(parts[:-1]) if part.startswith("MODULE_")), len(parts) - 1)
    return "/".join(parts[: at + 1])


def _files(directory: Path) -> list[Path]:
    return sorted(each for each in directory.rglob("*") if each.is_file() and each.name != MARK)


def _sync(directory: Path) -> None:
    """Wait until all of a directory is on disk: a rename must not be there before the files that it names."""
    for each in [*directory.rglob("*"), directory]:
        descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json(mark: Mapping[str, Any]) -> bytes:
    return json.dumps(mark, indent=1, sort_keys=True).encode() + b"\n"


def _differing(compiled: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Return ``batch_size was 16, is 8`` for each option that differs."""

    def words(options: Mapping[str, Any], name: str) -> str:
        if name not in options:
            return "not given"
        value = options[name]
        return value if isinstance(value, str) and value else json.dumps(value)

    return [
        f"{name} was {words(compiled, name)}, is {words(asked, name)}"
        for name in sorted({*compiled, *asked})
        if words(compiled, name) != words(asked, name)
    ]
