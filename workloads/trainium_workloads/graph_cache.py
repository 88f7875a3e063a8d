"""Files of a compile cache: whole or not there, also when their writer is killed.

Layout below the root, which lies on the shared file system:

``<key>/``              graphs for training, and ``complete.json``, written last: files with size and SHA-256, and
options
``.locks/<key>/``       locks of the compiling process and its helpers; see :mod:`trainium_workloads.file_lock`
``.staging/<key>/``     a directory with the files that the compiling process has compiled so far

The SDK's files are ``<compiler>/MODULE_<graph>+<flags>/``: the graph, ``model.neff`` when it is compiled,
``model.done`` in newer versions, and ``*.lock`` while a process compiles, or was killed while compiling.
"""

import contextlib
import json
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads import file_lock
from trainium_workloads.checkpoint import sha256, sync

COMPLETE, NOT_THERE, OTHER_OPTIONS, IN_USE = 0, 3, 4, 5
"""Exit codes of ``check``; ``run`` and ``join`` have the last as well, or their command's."""

MARK = "complete.json"

_COMPILE = "`trn train --precompile`"

_READERS = 8
"""Files that are read at a time: a share of Lustre gives one reader less than the network has."""

Part = Mapping[str, Any]
"""The mark's entry of a file: ``bytes`` and ``sha256``."""


class IncompleteError(Exception):
    """Some graphs were not compiled."""


@dataclass(frozen=True)
class CacheState:
    """State of a cache."""

    code: int
    """One of :data:`COMPLETE`, :data:`NOT_THERE`, :data:`OTHER_OPTIONS`, :data:`IN_USE`."""
    message: str


class Cache:
    """One cache below the directory of all caches on the shared file system, named by model, ranks, precision and
    compiler."""

    def __init__(self, root: Path, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", name):
            allowed = "at most 200 letters, digits, dots, dashes and underscores, no dot or dash first"
            raise ValueError(f"{name!r} is not a cache name: {allowed}")
        self.name = name
        self.directory = root / name
        self._staging = root / ".staging" / name
        self._lock, self._helpers = (root / ".locks" / name / each for each in ("writer", "helpers"))

    def check(self, options: Mapping[str, Any]) -> CacheState:
        """Return the verdict whether training with these options would find its graphs."""
        found = self.state(options)
        if found.code == COMPLETE:
            return found
        if (note := file_lock.holder(self._lock)) is not None:
            by = note.partition("\n")[0]
            return CacheState(IN_USE, f"compile cache {self.name} is being compiled by {by}")
        # A process that is done by now has published meanwhile.
        return self.state(options)

    def state(self, options: Mapping[str, Any]) -> CacheState:
        """Return the verdict on the published files; a process that compiles is not looked for."""
        mark = self._mark()
        if mark is None:
            return CacheState(NOT_THERE, f"compile cache {self.name} is not there. Compile first ({_COMPILE})")
        compiled = [each["options"] for each in mark["compilations"]]
        if options not in compiled:
            nearest = min((_differing(each, options) for each in compiled), key=len)
            told = f"compile cache {self.name} was compiled with other options: {'; '.join(nearest)}"
            return CacheState(OTHER_OPTIONS, f"{told}. Compile with these, too ({_COMPILE}), or train with those")
        if damage := self._damage(mark):
            return CacheState(NOT_THERE, f"compile cache {self.name} is damaged: {damage}. Compile again ({_COMPILE})")
        # Compiled graphs need no lock: the holders of these were killed, and the SDK waits for them for ever.
        _unlock(each for each in _modules(self.directory) if _is_compiled(each))
        return CacheState(COMPLETE, f"compile cache {self.name} is complete: {len(mark['files'])} files")

    # --- Compiling ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def compiling(self, who: str, job: str) -> Iterator[Path]:
        """Hold the right to write, and yield the directory to compile in, with the files of a killed writer. Helpers
        find it by ``job``. InUseError: another process compiles; the first line of the message is its ``who``.

        Its name is new, so that a machine that lost the lock, because it was away from the file system, finds its
        directory gone, and cannot publish it.
        """
        ours = self._staging / uuid.uuid4().hex
        self._staging.mkdir(parents=True, exist_ok=True)
        with file_lock.held(self._lock, f"{who}\n{job}\n{ours.name}"):
            for left in sorted(self._staging.iterdir()):
                if left.suffix or ours.exists():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                else:
                    left.rename(ours)
            ours.mkdir(exist_ok=True)
            (ours / MARK).unlink(missing_ok=True)
            _unlock(_modules(ours))
            self._open(ours).touch()
            yield ours

    @contextlib.contextmanager
    def helping(self, job: str) -> Iterator[Path | None]:
        """Yield the directory in which a process of the job compiles, and which waits for this one; None without it."""
        with file_lock.held(self._helpers, shared=True, waiting=lambda _: None):
            # The writer closes the directory before it waits: either it waits for this process, or this is too late.
            _, its_job, name = (*(file_lock.holder(self._lock) or "").split("\n"), "", "")[:3]
            directory = self._staging / name
            yield directory if name and its_job == job and self._open(directory).exists() else None

    def await_helpers(self, ours: Path) -> None:
        """Wait until every process that compiles beside this one has ended. No process may join any more."""
        self._open(ours).unlink(missing_ok=True)
        with file_lock.held(self._helpers, waiting=lambda _: None):
            pass

    def _open(self, ours: Path) -> Path:
        return ours.with_suffix(".open")

    def publish(self, ours: Path, options: Mapping[str, Any], command: Sequence[str]) -> int:
        """Publish the compiled graphs of a directory to training, and remove the leftovers of the compilation; return
        the number of graphs.

        IncompleteError: not every graph was compiled. OSError: it cannot be written, or another process has taken over;
        the published graphs stay as they were.
        """
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        compilation = {"options": dict(options), "command": list(command), "time": now}
        modules = _modules(ours)
        if missing := [each.name for each in modules if not _is_compiled(each)]:
            shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
            raise IncompleteError(f"{len(missing)} graphs were not compiled: {shown}")
        _unlock(modules)
        found = [each for each in sorted(ours.rglob("*")) if each.is_file() and each.name != MARK]
        with ThreadPoolExecutor(_READERS) as pool:
            names = [file.relative_to(ours).as_posix() for file in found]
            files: dict[str, Part] = dict(zip(names, pool.map(_part, found), strict=True))
        if self.directory.exists():
            self._merge(ours, files, compilation)
        else:
            _write_mark(ours, files, [compilation])
            sync(*ours.rglob("*"), ours)
            ours.rename(self.directory)
            sync(self.directory.parent)
        for left in (ours, self._old(ours)):
            shutil.rmtree(left, ignore_errors=True)
        return len(modules)

    def _merge(self, ours: Path, files: dict[str, Part], compilation: dict[str, Any]) -> None:
        """Add to an existing cache: it has graphs of other options, or graphs compiled there without the lock.

        Each graph is moved by a rename, so that readers find their graphs all the time; the mark comes last.
        """
        mark = self._mark()
        known = mark if mark is not None and not self._damage(mark) else {"files": {}, "compilations": []}
        kept: dict[str, Part] = known["files"]
        sync(*ours.rglob("*"), ours)
        for unit in sorted({_unit(file) for file in files}):
            target = self.directory / unit
            if target.exists() and {file for file in files if _unit(file) == unit} <= kept.keys():
                continue
            kept = {file: part for file, part in kept.items() if _unit(file) != unit}
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                old = self._old(ours) / unit
                old.parent.mkdir(parents=True, exist_ok=True)
                target.rename(old)
            (ours / unit).rename(target)
        others = [each for each in known["compilations"] if each["options"] != compilation["options"]]
        _write_mark(ours, {**files, **kept}, [*others, compilation])
        sync(self.directory)
        (ours / MARK).rename(self.directory / MARK)
        sync(self.directory)

    def _old(self, ours: Path) -> Path:
        return ours.with_suffix(".old")

    # --- The mark -------------------------------------------------------------------------------------------------

    def _mark(self) -> dict[str, Any] | None:
        """Return the cache's list of files and compilations; None when it was never complete."""
        try:
            mark = json.loads((self.directory / MARK).read_bytes())
            are_files = all({"bytes", "sha256"} <= part.keys() for part in mark["files"].values())
            are_options = [isinstance(each["options"], dict) for each in mark["compilations"]]
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return None
        return mark if are_files and are_options and all(are_options) else None

    def _damage(self, mark: Mapping[str, Any]) -> str:
        """Return the first file that differs from its publication; empty for a cache that is whole.

        All of it is read: training reads the same files right afterwards, then from this machine's memory. One core
        digests 1.5 GiB a second, and :data:`_READERS` files are read at a time.
        """

        def difference(path: str) -> str:
            try:
                now, was = _part(self.directory / path), mark["files"][path]
            except (OSError, ValueError) as error:
                return f"{path} is gone or cannot be read ({error})"
            if now["bytes"] != was["bytes"]:
                return f"{path} has {now['bytes']} bytes and had {was['bytes']}"
            return "" if now["sha256"] == was["sha256"] else f"{path} has the size that it had, and other bytes"

        with ThreadPoolExecutor(_READERS) as pool:
            return next(filter(None, pool.map(difference, mark["files"])), "")


def _write_mark(directory: Path, files: Mapping[str, Part], compilations: Sequence[Mapping[str, Any]]) -> None:
    mark = json.dumps({"files": files, "compilations": compilations}, indent=1, sort_keys=True)
    (directory / MARK).write_text(f"{mark}\n", encoding="utf-8")
    sync(directory / MARK)


def _part(file: Path) -> Part:
    """Return the size and the SHA-256 of a file."""
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}


def _modules(directory: Path) -> list[Path]:
    return sorted(each for each in directory.glob("**/MODULE_*") if each.is_dir())


def _is_compiled(module: Path) -> bool:
    return (module / "model.neff").exists() or (module / "model.done").exists()


def _unlock(modules: Iterable[Path]) -> None:
    for module in modules:
        for lock in module.glob("*.lock"):
            lock.unlink(missing_ok=True)


def _unit(file: str) -> str:
    """Return the unit of publication of a file: its graph's directory, or the file itself outside of graphs."""
    found = re.match(r"(.*?/)??MODULE_[^/]*(?=/)", file)
    return found[0] if found else file


def _differing(compiled: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Return ``batch_size was 16, is 8`` for each option that differs."""

    def words(options: Mapping[str, Any], name: str) -> str:
        value = options.get(name)
        return "not given" if name not in options else value if isinstance(value, str) and value else json.dumps(value)

    names = [name for name in sorted({*compiled, *asked}) if words(compiled, name) != words(asked, name)]
    return [f"{name} was {words(compiled, name)}, is {words(asked, name)}" for name in names]
