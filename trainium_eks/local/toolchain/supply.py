"""The supply of tools to the cache: downloaded, or built where no download works."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainium_eks.local.toolchain import build, download, find, go_command, store
from trainium_eks.local.toolchain.download import Origins
from trainium_eks.local.toolchain.registry import Notes
from trainium_eks.local.toolchain.tools import Binary, Origin, Release


def is_offline(environment: Mapping[str, str]) -> bool:
    """Return whether no server may be asked for anything."""
    return environment.get("TRN_OFFLINE", "") not in ("", "0")


class Supply:
    """The supply of one release's missing tools to the cache.

    Args:
        pins: the versions.
        directory: directory of the cache, with a directory for each release; one process at a time writes there.
        environment: the user's variables.
        origins: servers of the downloads.
        progress: called when something takes time.
        before_building: called before anything is compiled.
    """

    def __init__(
        self,
        pins: Release,
        directory: Path,
        environment: Mapping[str, str],
        origins: Origins,
        progress: Callable[[str], None],
        before_building: Callable[[], None] = lambda: None,
    ) -> None:
        self._pins = pins
        self._directory = directory
        self._place = directory / pins.key
        self._environment = environment
        self._origins = origins
        self._progress = progress
        self._before_building = before_building
        self._offline = is_offline(environment)
        self._made: dict[str, Binary] = {}
        self._reasons: dict[str, list[str]] = {}

    def make(self, tools: Sequence[str]) -> tuple[dict[str, Binary], dict[str, list[str]]]:
        """Return the tools that came into the cache, and the failed attempts for the rest."""
        self._reasons = {tool: [f"cache: not in {self._place}"] for tool in tools}
        try:
            with store.writing(self._directory, self._progress) as scratch:
                # The former holder of the lock may have provided it.
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
        notes = Notes(self._directory / "images.json")
        files, reasons = download.download(missing, self._pins, self._origins, scratch, notes, self._progress)
        for tool, reason in reasons.items():
            self._refuse([tool], f"download: {reason}")
        for tool, file in files.items():
            self._keep(tool, file, "download")

    def _build(self, scratch: Path) -> None:
        missing = self._missing()
        if not missing:
            return
        self._before_building()
        try:
            files = build.build(
                missing,
                self._pins,
                scratch,
                environment=self._environment,
                offline=self._offline,
                progress=self._progress,
            )
        except go_command.GoFailed as error:
            self._refuse(missing, f"build: {error}")
            return
        for tool, file in files.items():
            self._keep(tool, file, "build")

    def _keep(self, tool: str, file: Path, origin: Origin) -> None:
        """Move a file into the cache, if it runs and has the expected version."""
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
