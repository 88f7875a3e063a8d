"""Builds from Go modules, pinned by the ``go.mod`` beside this file and in directories beside it.

Go checks every module against ``go.sum``. Its caches are the user's own (``GOCACHE``, ``GOMODCACHE``), so that a build
that was killed continues where it ended.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainium_eks.local.toolchain import go_command, sources, store
from trainium_eks.local.toolchain.tools import BUILDABLE_MINOR, Bundle, Tool


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
    packages = [tool.package for tool in tools]
    cores = os.cpu_count() or 1
    minutes = max(1, round(bundle.minutes / cores))
    progress(
        f"building {', '.join(tool.name for tool in tools)} from source with {release}: about {minutes} minutes on "
        f"{cores} cores, once (less where Go has some of it in its cache)"
    )
    link_flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in bundle.variables.items())])
    arguments = [
        *("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", *bundle.tags),
        # Without data for debuggers, which saves a tenth of the time.
        "-gcflags=all=-dwarf=false",
        *("-ldflags", link_flags, "-o", f"out{os.sep}", *packages),
    ]
    _run(go, arguments, module, go_command.go_environment(environment))
    # Go's name for the result: the last part of the path that is no major version.
    names = {tool.name: re.sub(r"/v\d+$", "", tool.package).rpartition("/")[2] for tool in tools}
    files = {tool: module / "out" / name for tool, name in names.items()}
    missing = [name for name, file in files.items() if not file.is_file()]
    if missing:
        raise go_command.GoError(f"go build succeeded but made no {', '.join(missing)}")
    return files


def _run(go: str, arguments: Sequence[str], module: Path, environment: Mapping[str, str]) -> None:
    """Run go to its end. When this process is killed, go's next line goes to a pipe without a reader, which ends it."""
    try:
        process = subprocess.Popen(
            [go, *arguments],
            cwd=module,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise go_command.GoError(f"{go} cannot be run: {error.strerror}") from None
    with process:
        try:
            assert process.stdout is not None
            # Line by line: one read to the end would notice Ctrl-C only there, when another thread takes the signal.
            lines = [line.rstrip() for line in process.stdout]
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code:
        # Without Go's progress: downloads, and import paths alone on a line.
        complaints = [line for line in lines if " " in line and not line.startswith("go: downloading ")]
        raise go_command.GoError(go_command.failure(arguments[0], code, complaints))
