"""Builds from Go modules, pinned by the ``go.mod`` beside this file and in directories beside it.

Go checks every module against ``go.sum``. Its caches are the user's own (``GOCACHE``, ``GOMODCACHE``), so that a build
that was killed continues where it ended.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainium_eks.local.toolchain import go_command, sources, store
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import BUILDABLE_MINOR, Bundle, Tool


@dataclass
class _Counts:
    """The progress of Go."""

    modules: int = 0
    packages: int = 0
    complaints: list[str] = field(default_factory=list)
    """The other lines of its output."""


def build(
    bundle: Bundle,
    tools: Sequence[Tool],
    scratch: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Build tools of a bundle in the scratch directory, in one go, and return their files by name."""
    if bundle.module is None:
        raise go_command.GoError(f"only Kubernetes {BUILDABLE_MINOR} can be built")
    go, release = go_command.provide(environment, progress)
    module = scratch / "module"
    with store.writing(scratch):
        # The package's own directory may be read-only, and Go reads the files beside go.mod.
        module.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(bundle.module / name, module / name)
    if completion := sources.COMPLETIONS.get(bundle.name):
        completion(module, scratch, environment)
    _Builder(go, module, go_command.go_environment(environment), Throttle(progress)).build(bundle, tools, release)
    files = {tool.name: module / "out" / _file_name(tool.package) for tool in tools}
    missing = [name for name, file in files.items() if not file.is_file()]
    if missing:
        raise go_command.GoError(f"go build succeeded but made no {', '.join(missing)}")
    return files


class _Builder:
    def __init__(self, go: str, module: Path, environment: Mapping[str, str], throttle: Throttle) -> None:
        self._go = go
        self._module = module
        self._environment = environment
        self._throttle = throttle

    def build(self, bundle: Bundle, tools: Sequence[Tool], release: str) -> None:
        packages = [tool.package for tool in tools]
        cores = os.cpu_count() or 1
        minutes = max(1, round(bundle.minutes / cores))
        self._throttle.now(
            f"building {', '.join(tool.name for tool in tools)} from source with {release}: about {minutes} minutes on "
            f"{cores} cores, once (less where Go has some of it in its cache)"
        )
        modules = sum(1 for line in (self._module / "go.mod").read_text().splitlines() if "// indirect" in line)
        needed = self._run(
            ["list", "-mod=readonly", *bundle.tags, "-deps", *packages],
            lambda counts: f"building: {counts.modules} of at most {modules} modules downloaded",
        ).packages
        self._throttle.now(f"building: has the sources, compiling at most {needed} packages")
        link_flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in bundle.variables.items())])
        self._run(
            [
                *("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", *bundle.tags),
                # Without data for debuggers, which saves a tenth of the time.
                "-gcflags=all=-dwarf=false",
                *("-ldflags", link_flags, "-o", f"out{os.sep}", *packages),
            ],
            lambda counts: f"building: {counts.packages} of at most {needed} packages compiled",
        )

    def _run(self, arguments: Sequence[str], message: Callable[[_Counts], str]) -> _Counts:
        """Run go to its end.

        When this process is killed, go's next line goes to a pipe without a reader, which ends it too.
        """
        counts = _Counts()
        try:
            process = subprocess.Popen(
                [self._go, *arguments],
                cwd=self._module,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise go_command.GoError(f"{self._go} cannot be run: {error.strerror}") from None
        # Its end closes the pipe, and on an exception the process is ended first.
        with process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    _count(counts, line.rstrip())
                    self._throttle(message(counts))
                code = process.wait()
            except BaseException:
                process.kill()
                raise
        if code:
            raise go_command.GoError(go_command.failure(arguments[0], code, counts.complaints))
        return counts


def _count(counts: _Counts, line: str) -> None:
    if line.startswith("go: downloading "):
        counts.modules += 1
    elif line and " " not in line:
        counts.packages += 1  # an import path, which both `go list -deps` and `go build -v` print alone
    elif line:
        counts.complaints.append(line)


def _file_name(package: str) -> str:
    """Return go's name for the result: the last part of the path that is no major version."""
    parts = [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)]
    return parts[-1]
