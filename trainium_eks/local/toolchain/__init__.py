"""The programs that the local cloud runs: found, downloaded or built.

For each tool, in this order: PATH; the directory in ``KUBEBUILDER_ASSETS``; the per-user cache
(``<cache>/bin/<versions and platform>/``); the project's own download, with its published checksum; built from Go
modules whose checksums are in ``go.sum``. A tool of one's own counts only if its version fits
(:meth:`~trainium_eks.local.toolchain.tools.Pins.misfit`).

Environment:
    ``TRN_OFFLINE``: anything but ``0`` and nothing: no downloads, and Go uses only what its caches hold.
    ``TRN_CACHE``: another cache directory; see :func:`trainium_eks.local.paths.cache`.
    Go's own variables (``GOPROXY``, ``GOFLAGS``, ``GOCACHE``, ``GOTOOLCHAIN``, ...) and ``HTTPS_PROXY`` as usual.

``python -m trainium_eks.local.toolchain`` provides everything and shows where it comes from: for images of CI.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainium_eks.local import paths
from trainium_eks.local.changes import LocalError
from trainium_eks.local.toolchain import build, download, find, store
from trainium_eks.local.toolchain.download import Origins
from trainium_eks.local.toolchain.tools import BUILDABLE_MINOR, TOOLS, Binary, Origin, Pins, Platform, parsed

__all__ = ["TOOLS", "Binary", "Origin", "Origins", "Pins", "Platform", "Unavailable", "provide"]


_WAYS = ("PATH", "KUBEBUILDER_ASSETS", "cache", "download", "build")
"""Every reason begins with one of these and a colon."""


class Unavailable(LocalError):  # noqa: N818 - reads as what it is where it is raised
    """Tools that could not be found, downloaded or built.

    The message says which, what was tried, why it failed, and what would enable it.
    """

    def __init__(self, reasons: Mapping[str, Sequence[str]], minor: str) -> None:
        self.reasons = {tool: tuple(tried) for tool, tried in reasons.items()}
        """For each missing tool what was tried, in order, and why it failed."""
        lines = [
            f"The local cloud needs programs that could not be found, downloaded or built: {', '.join(self.reasons)}."
        ]
        for reason, tools in _by_reason(self.reasons).items():
            whose = "" if len(tools) == len(self.reasons) else f" ({', '.join(tools)})"
            first, *more = reason.splitlines()
            lines += [f"  {first}{whose}", *(f"    {line}" for line in more)]
        super().__init__("\n".join([*lines, _enabling(minor)]))
        last = next(iter(self.reasons.values()))[-1].splitlines()[0]
        self.summary = (
            f"no local control plane: {len(reasons)} of {len(TOOLS)} programs could not be found, downloaded or built "
            f"({last}); "
            "`python -m trainium_eks.local.toolchain` says what would help"
        )
        """One line, for a test that is skipped."""


def provide(
    kubernetes_minor: str,
    *,
    progress: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    origins: Origins | None = None,
) -> Mapping[str, Binary]:
    """All of :data:`TOOLS`, fetched or built if need be; only what is missing.

    Several may call it at the same time: one provides, the others wait for it.

    Args:
        kubernetes_minor: such as ``1.35``.
        progress: told when something takes time, at most about once a second.
        environment: where ``PATH`` and the variables above are looked up.
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
    there |= find.cached(reasons, pins, directory / pins.key)
    missing = [tool for tool in TOOLS if tool not in there]
    if missing:
        supply = _Supply(pins, directory, environment, origins or Origins(), progress)
        made, refused = supply.make(missing)
        there |= made
        if refused:
            raise Unavailable({tool: [*reasons[tool], *tried] for tool, tried in refused.items()}, kubernetes_minor)
    return {tool: there[tool] for tool in TOOLS}


class _Supply:
    """Brings what is missing into the cache."""

    def __init__(
        self,
        pins: Pins,
        directory: Path,
        environment: Mapping[str, str],
        origins: Origins,
        progress: Callable[[str], None],
    ) -> None:
        self._pins = pins
        self._directory = directory
        self._place = directory / pins.key
        self._environment = environment
        self._origins = origins
        self._progress = progress
        self._offline = environment.get("TRN_OFFLINE", "") not in ("", "0")
        self._made: dict[str, Binary] = {}
        self._reasons: dict[str, list[str]] = {}

    def make(self, tools: Sequence[str]) -> tuple[dict[str, Binary], dict[str, list[str]]]:
        """What came into the cache, and what was tried for the rest."""
        self._reasons = {tool: [f"cache: not in {self._place}"] for tool in tools}
        try:
            with store.writing(self._directory, self._progress) as scratch:
                # Whoever held the lock before may have brought it.
                self._made = find.cached(tools, self._pins, self._place)
                self._download(scratch)
                self._build(scratch)
        except store.Unwritable as error:
            self._refuse(self._missing(), f"cache: {error}; TRN_CACHE names another directory")
        return self._made, {tool: self._reasons[tool] for tool in self._missing()}

    def _missing(self) -> list[str]:
        return [tool for tool in self._reasons if tool not in self._made]

    def _refuse(self, tools: Iterable[str], reason: str) -> None:
        for tool in tools:
            self._reasons[tool].append(reason)

    def _download(self, scratch: Path) -> None:
        missing = self._missing()
        if self._offline:
            self._refuse(missing, "download: not tried, TRN_OFFLINE is set")
            return
        if not missing:
            return
        self._progress(f"looking for downloads of {', '.join(missing)}")
        files, reasons = download.download(missing, self._pins, self._origins, scratch, self._progress)
        for tool, reason in reasons.items():
            self._refuse([tool], f"download: {reason}")
        for tool, file in files.items():
            self._keep(tool, file, "download")

    def _build(self, scratch: Path) -> None:
        missing = self._missing()
        if not missing:
            return
        try:
            files = build.build(
                missing,
                self._pins,
                scratch,
                environment=self._environment,
                offline=self._offline,
                progress=self._progress,
            )
        except build.BuildFailed as error:
            self._refuse(missing, f"build: {error}")
            return
        for tool, file in files.items():
            self._keep(tool, file, "build")

    def _keep(self, tool: str, file: Path, origin: Origin) -> None:
        """A file comes into the cache when it runs and is what it should be."""
        expected = self._pins.version(tool)
        try:
            actual = find.version(tool, file, self._environment)
        except find.Silent as error:
            self._refuse([tool], f"{origin}: the new {tool} in {file.parent} {error}")
            return
        if actual != expected:
            self._refuse([tool], f"{origin}: got {tool} {actual} instead of {expected}")
            return
        store.keep(file, self._place / tool)
        self._made[tool] = Binary(tool, self._place / tool, origin, actual)


def _by_reason(reasons: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The tools of each reason, the reasons in the order of the ways that were tried."""
    tools: dict[str, list[str]] = {}
    for tool, tried in reasons.items():
        for reason in tried:
            tools.setdefault(reason, []).append(tool)
    return dict(sorted(tools.items(), key=lambda item: _WAYS.index(item[0].partition(":")[0])))


def _enabling(minor: str) -> str:
    ways = []
    if minor == BUILDABLE_MINOR:
        ways.append("install Go 1.25 or newer (https://go.dev/dl/), with access to a module proxy (GOPROXY)")
    else:
        ways.append(f"use Kubernetes {BUILDABLE_MINOR}, which can be built from source")
    ways.append("make dl.k8s.io, github.com, get.helm.sh and registry.k8s.io reachable (Linux)")
    ways.append("put the programs on PATH or name their directory in KUBEBUILDER_ASSETS")
    return "What helps: " + "; or ".join(ways) + "."
