"""The programs that the local cloud runs: found, downloaded or built.

For each tool, in this order: PATH; the directory in ``KUBEBUILDER_ASSETS``; the per-user cache (``<cache>/bin/<versions
and platform>/``); the project's own download, with its published checksum; a build from Go modules with their checksums
in ``go.sum``. A tool on PATH or in ``KUBEBUILDER_ASSETS`` counts only if its version fits
(:meth:`~trainium_eks.local.toolchain.tools.Pins.misfit`).

Volcano's programs come the same ways, and Kubeflow's Training Operator and Karpenter for stacks that install them, but
a local cloud does without them where they are not available. Prometheus and promtool are for the tests of monitoring.

Environment:
    ``TRN_OFFLINE``: anything but ``0`` and nothing: no downloads, and Go uses only its caches.
    ``TRN_VOLCANO``: ``off``: Volcano's programs are not looked for, and its pods are simulated like all others.
    ``TRN_TRAINING_OPERATOR``: ``off``: Kubeflow's Training Operator is not looked for.
    ``TRN_KARPENTER``: ``off``: Karpenter is not looked for.
    ``TRN_CACHE``: another cache directory; see :func:`trainium_eks.local.paths.cache`.
    Go's own variables (``GOPROXY``, ``GOFLAGS``, ``GOCACHE``, ``GOTOOLCHAIN``, ...) and ``HTTPS_PROXY`` as usual.

``python -m trainium_eks.local.toolchain`` provides everything and shows where it comes from: for images of CI.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local import paths
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.toolchain import find
from trainium_eks.local.toolchain.download import Origins
from trainium_eks.local.toolchain.supply import Supply, is_offline
from trainium_eks.local.toolchain.tools import (
    BUILDABLE_MINORS,
    CONTROL_PLANE,
    OPERATOR,
    PROMETHEUS_TOOLS,
    SCALER,
    TOOLS,
    VOLCANO,
    VOLCANO_TOOLS,
    Binary,
    Origin,
    Part,
    PartPins,
    Pins,
    Platform,
    PrometheusPins,
    Release,
    VolcanoPins,
    parsed,
)

__all__ = [
    "OPERATOR",
    "PROMETHEUS_TOOLS",
    "SCALER",
    "TOOLS",
    "VOLCANO_TOOLS",
    "VOLCANO_VARIABLE",
    "Binary",
    "Origin",
    "Origins",
    "Part",
    "PartPins",
    "Pins",
    "Platform",
    "Unavailable",
    "VolcanoPins",
    "find_part",
    "find_volcano",
    "provide",
    "provide_part",
    "provide_prometheus",
    "provide_volcano",
]

VOLCANO_VARIABLE = "TRN_VOLCANO"
"""Environment variable; ``off`` leaves Volcano's pods simulated."""

PATIENCE_SECONDS = 600.0
"""Age up to which an ``up`` trusts the last failure to provide Volcano's programs, without a new attempt."""

_WAYS = ("PATH", "KUBEBUILDER_ASSETS", "running", "cache", "download", "build")
"""Every reason begins with one of these and a colon."""


class Unavailable(LocalCloudError):  # noqa: N818 - reads as what it is where it is raised
    """The error for tools that could not be found, downloaded or built.

    The message names the tools, the attempts, the reasons of their failure, and remedies.
    """

    def __init__(self, reasons: Mapping[str, Sequence[str]], whose: str, helps: Sequence[str]) -> None:
        self.reasons = {tool: tuple(tried) for tool, tried in reasons.items()}
        """Failed attempts for each missing tool, in order, with the reason of each."""
        missing = ", ".join(self.reasons)
        lines = [f"{whose} needs programs that could not be found, downloaded or built: {missing}."]
        for reason, tools in _by_reason(self.reasons).items():
            named = "" if len(tools) == len(self.reasons) else f" ({', '.join(tools)})"
            first, *more = reason.splitlines()
            lines += [f"  {first}{named}", *(f"    {line}" for line in more)]
        super().__init__("\n".join([*lines, f"What helps: {'; or '.join(helps)}."]))
        self.last = next(iter(self.reasons.values()))[-1].splitlines()[0]
        """The last attempt and the reason of its failure, in one line."""
        self.summary = (
            f"no local control plane: {len(reasons)} of {len(TOOLS)} programs could not be found, downloaded or built "
            f"({self.last}); "
            "`python -m trainium_eks.local.toolchain` says what would help"
        )
        """One line, for a skipped test."""


def provide(
    kubernetes_minor: str,
    *,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    origins: Origins | None = None,
) -> Mapping[str, Binary]:
    """Return all of :data:`TOOLS`; missing tools are fetched or built.

    Several processes may call it at the same time: one provides, the others wait for it.

    Args:
        kubernetes_minor: such as ``1.35``.
        progress: called when something takes time, at most about once a second.
        environment: variables, with ``PATH`` and the variables above.
        cache: instead of the user's cache directory.
        origins: instead of the projects' own servers.

    Raises:
        Unavailable: at least one is missing.
        ValueError: that is no version.
    """
    parsed(kubernetes_minor)
    pins = Pins(kubernetes_minor, Platform.here())
    directory = (cache or paths.cache(environment)) / "bin"
    there, reasons = find.installed(TOOLS, pins, environment, find.Answers(directory / "versions.json"))
    # The control plane first: without it, waiting for the rest is useless.
    for holder in dict.fromkeys(pins.holder(tool) for tool in (*CONTROL_PLANE, *TOOLS)):
        held = [tool for tool in reasons if pins.holder(tool) == holder]
        there |= find.cached(held, holder, directory / holder.key)
        if missing := [tool for tool in held if tool not in there]:
            supply = Supply(holder, directory, environment, origins or Origins(), progress)
            made, refused = supply.make(missing)
            there |= made
            if refused:
                tried = {tool: [*reasons[tool], *why] for tool, why in refused.items()}
                raise Unavailable(tried, "The local cloud", _enabling(kubernetes_minor))
    return {tool: there[tool] for tool in TOOLS}


def find_volcano(
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    running: Mapping[str, Path] | None = None,
) -> tuple[dict[str, Binary], dict[str, list[str]]]:
    """Return the :data:`VOLCANO_TOOLS` on this machine, and the reasons against each other tool. Uses no network."""
    pins, directory = VolcanoPins(Platform.here()), _volcano_directory(environment, cache)
    return _found(VOLCANO_TOOLS, pins, directory, environment, running)


def provide_volcano(
    *,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    origins: Origins | None = None,
    running: Mapping[str, Path] | None = None,
    before_building: Callable[[], None] = lambda: None,
    patience_seconds: float = 0.0,
) -> Mapping[str, Binary]:
    """Return all of :data:`VOLCANO_TOOLS`, as :func:`provide` does.

    Args:
        progress: called when something takes time, at most about once a second.
        environment: variables, with ``PATH`` and the variables above.
        cache: instead of the user's cache directory.
        origins: instead of the projects' own servers.
        running: a stack's running programs; they are used when PATH has none.
        before_building: called before anything is compiled, to wait for others that need the machine's cores first.
        patience_seconds: age up to which the last failure counts, without a new attempt.

    Raises:
        Unavailable: at least one is missing.
    """
    _unless_off(VOLCANO_VARIABLE, environment, VOLCANO_TOOLS, "Volcano")
    found = find_volcano(environment, cache, running)
    pins, directory = VolcanoPins(Platform.here()), _volcano_directory(environment, cache)
    make = _Make(pins, directory, environment, origins or Origins(), progress, before_building, patience_seconds)
    return make.rest(VOLCANO_TOOLS, *found, "Volcano", _enabling_volcano())


def find_part(
    part: Part,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    running: Path | None = None,
) -> tuple[Binary | None, list[str]]:
    """Return a part's program, if it is on this machine, and otherwise the reasons against it. Uses no network."""
    pins, directory = PartPins(Platform.here(), part), _part_directory(part, environment, cache)
    runs = {part.tool: running} if running else None
    there, reasons = _found((part.tool,), pins, directory, environment, runs)
    return there.get(part.tool), reasons.get(part.tool, [])


def provide_part(
    part: Part,
    *,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    running: Path | None = None,
    patience_seconds: float = 0.0,
) -> Binary:
    """Return a part's program, found or built, as :func:`provide_volcano` does.

    Args:
        part: the part.
        progress: called when something takes time, at most about once a second.
        environment: variables, with ``PATH`` and the variables above.
        cache: instead of the user's cache directory.
        running: a stack's running program; it is used when PATH has none.
        patience_seconds: age up to which the last failure counts, without a new attempt.

    Raises:
        Unavailable: it is missing.
    """
    _unless_off(part.variable, environment, (part.tool,), part.title)
    there, reasons = find_part(part, environment, cache, running)
    pins, directory = PartPins(Platform.here(), part), _part_directory(part, environment, cache)
    make = _Make(pins, directory, environment, Origins(), progress, lambda: None, patience_seconds)
    found = {part.tool: there} if there else {}
    missing = {} if there else {part.tool: reasons}
    return make.rest((part.tool,), found, missing, part.title, [_GO, part.instead])[part.tool]


def provide_prometheus(
    *,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    patience_seconds: float = 0.0,
) -> Mapping[str, Binary]:
    """Return Prometheus and promtool, found or built, as :func:`provide_volcano` does.

    Raises:
        Unavailable: they are missing.
    """
    pins, directory = PrometheusPins(Platform.here()), (cache or paths.cache(environment)) / "prometheus"
    found = _found(PROMETHEUS_TOOLS, pins, directory, environment)
    make = _Make(pins, directory, environment, Origins(), progress, lambda: None, patience_seconds)
    return make.rest(PROMETHEUS_TOOLS, *found, "What is monitored", [_GO, "put the programs of Prometheus 3 on PATH"])


def _found(
    tools: Sequence[str],
    pins: Release,
    directory: Path,
    environment: Mapping[str, str],
    running: Mapping[str, Path] | None = None,
) -> tuple[dict[str, Binary], dict[str, list[str]]]:
    """Return the tools on this machine, and the reasons against each other tool."""
    there, reasons = find.installed(tools, pins, environment, find.Answers(directory / "versions.json"), running)
    there |= find.cached(reasons, pins, directory / pins.key)
    return there, {tool: tried for tool, tried in reasons.items() if tool not in there}


def _unless_off(variable: str, environment: Mapping[str, str], tools: Sequence[str], whose: str) -> None:
    if environment.get(variable, "").lower() == "off":
        reason = f"PATH: not looked for, {variable} is off"
        raise Unavailable({tool: [reason] for tool in tools}, whose, [f"unset {variable}"])


@dataclass(frozen=True)
class _Make:
    """The supply of tools that a local cloud can do without."""

    pins: Release
    directory: Path
    environment: Mapping[str, str]
    origins: Origins
    progress: Callable[[str], None]
    before_building: Callable[[], None]
    patience_seconds: float

    def rest(
        self,
        tools: Sequence[str],
        there: dict[str, Binary],
        reasons: Mapping[str, list[str]],
        whose: str,
        helps: Sequence[str],
    ) -> Mapping[str, Binary]:
        """Return the present tools with the others, which have reasons, provided."""
        if not reasons:
            return {tool: there[tool] for tool in tools}
        refusal = _Refusal(self.directory / f"{self.pins.key}.refused.json")
        refused = refusal.read(list(reasons), self.patience_seconds)
        if not refused:
            supply = Supply(
                self.pins, self.directory, self.environment, self.origins, self.progress, self.before_building
            )
            made, refused = supply.make(list(reasons))
            there |= made
            # A failure without a network must not count once there is one.
            refusal.write({} if is_offline(self.environment) else refused)
        if refused:
            tried = {tool: [*reasons[tool], *why] for tool, why in refused.items()}
            raise Unavailable(tried, whose, helps)
        return {tool: there[tool] for tool in tools}


def _part_directory(part: Part, environment: Mapping[str, str], cache: Path | None) -> Path:
    return (cache or paths.cache(environment)) / part.tool


def _volcano_directory(environment: Mapping[str, str], cache: Path | None) -> Path:
    """Return Volcano's directory, beside Kubernetes' because each has a lock: neither supply waits for the other."""
    return (cache or paths.cache(environment)) / "volcano"


class _Refusal:
    """The last failure, kept for soon repeated attempts. A file that cannot be read or written costs time only."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, tools: Sequence[str], patience_seconds: float) -> dict[str, list[str]]:
        """Return the reasons of all these tools, if they are recent enough."""
        try:
            if not 0 <= time.time() - self._file.stat().st_mtime < patience_seconds:
                return {}
            told = json.loads(self._file.read_text())
            return {tool: [str(reason) for reason in told[tool]] for tool in tools}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def write(self, reasons: Mapping[str, Sequence[str]]) -> None:
        """Save the reasons, or delete the file when there are none."""
        with contextlib.suppress(OSError):
            if reasons:
                self._file.write_text(json.dumps(reasons))
            else:
                self._file.unlink(missing_ok=True)


def _by_reason(reasons: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the tools of each reason, in the order of the attempts."""
    tools: dict[str, list[str]] = {}
    for tool, tried in reasons.items():
        for reason in tried:
            tools.setdefault(reason, []).append(tool)
    return dict(sorted(tools.items(), key=lambda item: _WAYS.index(item[0].partition(":")[0])))


def _enabling(minor: str) -> list[str]:
    ways = []
    if minor in BUILDABLE_MINORS:
        ways.append(_GO)
    else:
        ways.append(f"use Kubernetes {' or '.join(BUILDABLE_MINORS)}, which can be built from source")
    ways.append("make dl.k8s.io, github.com, get.helm.sh and registry.k8s.io reachable (Linux)")
    ways.append("put the programs on PATH or name their directory in KUBEBUILDER_ASSETS")
    return ways


_GO = "install Go 1.25 or newer (https://go.dev/dl/), with access to a module proxy (GOPROXY)"


def _enabling_volcano() -> list[str]:
    major, minor = parsed(VOLCANO)
    return [
        _GO,
        "make Docker Hub reachable: registry-1.docker.io, auth.docker.io, and the stores that it redirects to (Linux)",
        f"put the programs of Volcano {major}.{minor} on PATH",
    ]
