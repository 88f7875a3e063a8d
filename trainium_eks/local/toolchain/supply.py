"""The supply of tools: found, taken from the cache, downloaded, or built where no download works."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.toolchain import build, finding, go_command, store
from trainium_eks.local.toolchain.download import download
from trainium_eks.local.toolchain.tools import Binary, Bundle, Origin, Tool

PATIENCE_SECONDS = 600.0
"""Age up to which an ``up`` trusts the last failure to provide tools that it can do without."""

_WAYS = ("PATH", "KUBEBUILDER_ASSETS", "cache", "download", "build")
"""Every reason begins with one of these and a colon."""


class UnavailableError(LocalCloudError):
    """The error for tools that could not be found, downloaded or built.

    The message names the tools, the attempts, the reasons of their failure, and remedies.
    """

    def __init__(self, reasons: Mapping[str, Sequence[str]], bundle: Bundle, helps: Sequence[str]) -> None:
        self.reasons = {tool: tuple(tried) for tool, tried in reasons.items()}
        """Failed attempts for each missing tool, in order, with the reason of each."""
        tools: dict[str, list[str]] = {}
        for tool, tried in reasons.items():
            for reason in tried:
                tools.setdefault(reason, []).append(tool)
        lines = [f"{bundle.title} needs programs that could not be found, downloaded or built: {', '.join(reasons)}."]
        for reason, named in sorted(tools.items(), key=lambda item: _WAYS.index(item[0].partition(":")[0])):
            first, *more = reason.splitlines()
            whose = "" if len(named) == len(reasons) else f" ({', '.join(named)})"
            lines += [f"  {first}{whose}", *(f"    {line}" for line in more)]
        super().__init__("\n".join([*lines, f"What helps: {'; or '.join(helps)}."]))
        self.last = next(iter(self.reasons.values()))[-1].splitlines()[0]
        """The last attempt and the reason of its failure, in one line."""
        self.summary = (
            f"{', '.join(reasons)} could not be found, downloaded or built ({self.last}); "
            "`python -m trainium_eks.local.toolchain` says what would help"
        )
        """One line, for a skipped test or a note."""


def is_off(bundle: Bundle, environment: Mapping[str, str]) -> bool:
    """Return whether the user leaves the tools out by their variable."""
    return bool(bundle.switch) and environment.get(bundle.switch, "").lower() == "off"


def provide(
    *bundles: Bundle,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    patience_seconds: float = 0.0,
) -> Mapping[str, Binary]:
    """Return all tools of the bundles; missing tools are fetched or built.

    Several processes may call it at the same time: one provides, the others wait for it.

    ``progress`` gets a line for each step. A failure within the time of patience counts, without a new
    attempt.
    """
    provided: dict[str, Binary] = {}
    for bundle in bundles:
        if is_off(bundle, environment):
            reasons = {tool.name: [f"cache: not looked for, {bundle.switch} is off"] for tool in bundle.tools}
            raise UnavailableError(reasons, bundle, [f"unset {bundle.switch}"])
        there, reasons = finding.find(bundle, environment, cache)
        if reasons:
            place = finding.place(bundle, environment, cache)
            refusal = place.with_name(f"{place.name}.refused.json")
            refused = _read_refusal(refusal, reasons, patience_seconds)
            if not refused:
                missing = [tool for tool in bundle.tools if tool.name in reasons]
                made, refused = _Supply(bundle, place, environment, progress).make(missing)
                there |= made
                # A failure without a network must not count once there is one.
                _write_refusal(refusal, {} if go_command.is_offline(environment) else refused)
            if refused:
                tried = {name: [*reasons[name], *why] for name, why in refused.items()}
                raise UnavailableError(tried, bundle, bundle.helps)
        provided |= {tool.name: there[tool.name] for tool in bundle.tools}
    return provided


class _Supply:
    """The supply of a bundle's missing tools to their place in the cache."""

    def __init__(
        self, bundle: Bundle, place: Path, environment: Mapping[str, str], progress: Callable[[str], None]
    ) -> None:
        self._bundle = bundle
        self._place = place
        self._environment = environment
        self._progress = progress
        self._made: dict[str, Binary] = {}
        self._reasons: dict[str, list[str]] = {}

    def make(self, tools: Sequence[Tool]) -> tuple[dict[str, Binary], dict[str, list[str]]]:
        """Return the tools that came into the cache, and the failed attempts for the rest."""
        self._reasons = {tool.name: [f"cache: not in {self._place}"] for tool in tools}
        try:
            with store.locked(self._place.parent, self._progress) as scratch:
                # The former holder of the lock may have provided it.
                self._made = finding.cached(tools, self._place)
                for way in (self._download, self._build):
                    if missing := self._missing(tools):
                        way(missing, scratch)
        except store.UnwritableError as error:
            self._refuse(self._missing(tools), f"cache: {error}; TRN_CACHE names another directory")
        return self._made, {tool.name: self._reasons[tool.name] for tool in self._missing(tools)}

    def _missing(self, tools: Sequence[Tool]) -> list[Tool]:
        return [tool for tool in tools if tool.name not in self._made]

    def _refuse(self, tools: Sequence[Tool], reason: str) -> None:
        for tool in tools:
            self._reasons[tool.name].append(reason)

    def _download(self, missing: Sequence[Tool], scratch: Path) -> None:
        if go_command.is_offline(self._environment):
            self._refuse(missing, "download: not tried, TRN_OFFLINE is set")
            return
        self._progress(f"looking for downloads of {', '.join(tool.name for tool in missing)}")
        notes = self._place.with_name("images.json")
        files, reasons = download(missing, scratch, notes, self._progress)
        for tool in missing:
            if tool.name in files:
                self._keep(tool, files[tool.name], "download")
            else:
                self._refuse([tool], f"download: {reasons[tool.name]}")

    def _build(self, missing: Sequence[Tool], scratch: Path) -> None:
        try:
            files = build.build(self._bundle, missing, scratch, self._environment, self._progress)
        except go_command.GoError as error:
            self._refuse(missing, f"build: {error}")
            return
        for tool in missing:
            self._keep(tool, files[tool.name], "build")

    def _keep(self, tool: Tool, file: Path, origin: Origin) -> None:
        """Move a file into the cache, if it runs and has the expected version."""
        if tool.question:
            try:
                actual = finding.version(tool, file, self._environment)
            except finding.SilentError as error:
                self._refuse([tool], f"{origin}: the new {tool.name} in {file.parent} {error}")
                return
            if actual != tool.version:
                self._refuse([tool], f"{origin}: got {tool.name} {actual} instead of {tool.version}")
                return
        store.keep(file, self._place / tool.name)
        self._made[tool.name] = Binary(tool.name, self._place / tool.name, origin, tool.version)


def _read_refusal(file: Path, tools: Iterable[str], patience_seconds: float) -> dict[str, list[str]]:
    """Return the reasons of the last failure, if they are recent enough and of all these tools.

    A file that cannot be read or written costs time only.
    """
    try:
        if not 0 <= time.time() - file.stat().st_mtime < patience_seconds:
            return {}
        told = json.loads(file.read_text())
        return {tool: [str(reason) for reason in told[tool]] for tool in tools}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write_refusal(file: Path, reasons: Mapping[str, Sequence[str]]) -> None:
    with contextlib.suppress(OSError):
        if reasons:
            file.write_text(json.dumps(reasons))
        else:
            file.unlink(missing_ok=True)
