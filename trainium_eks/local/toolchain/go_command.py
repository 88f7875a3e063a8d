"""Calls of ``go``, the meaning of its failures, and the place of a module's sources."""

import json
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainium_eks.local.toolchain import store

_SHOWN_LINES = 12

_HINTS = (
    ("no space left on device", "the disk is full; GOCACHE and GOMODCACHE can be moved elsewhere"),
    ("signal: killed", "a compiler was killed, probably for memory; GOFLAGS=-p=1 needs less"),
    ("GOPROXY=off", "TRN_OFFLINE or GOPROXY forbids downloads, and some modules are not on this machine"),
    ("requires go >=", "this Go is too old, and GOTOOLCHAIN forbids downloading a newer one"),
    ("toolchain not available", "this Go is too old, and a newer one could not be downloaded"),
    ("checksum mismatch", "a download does not match go.sum: do not use that proxy"),
    ("no such host", "the Go module proxy cannot be reached; GOPROXY names another"),
    ("dial tcp", "the Go module proxy cannot be reached; GOPROXY names another"),
    ("i/o timeout", "the Go module proxy cannot be reached; GOPROXY names another"),
)


class GoError(Exception):
    """The error of a Go that is missing or too old, cannot get the modules, or fails; the message says why."""


def is_offline(environment: Mapping[str, str]) -> bool:
    """Return whether no server may be asked for anything."""
    return environment.get("TRN_OFFLINE", "") not in ("", "0")


def go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without the variables that would build for another platform or workspace.

    ``GOFLAGS``, ``GOPROXY``, ``GOSUMDB``, ``GOCACHE`` and the like stay the user's. An older Go may fetch the version
    that go.mod asks for, unless ``GOTOOLCHAIN`` forbids it; some distributions forbid it by default.
    """
    left_out = ("GOOS", "GOARCH", "GOBIN")
    ours = {name: value for name, value in environment.items() if name not in left_out}
    ours |= {"CGO_ENABLED": "0", "GO111MODULE": "on", "GOWORK": "off"}
    ours.setdefault("GOTOOLCHAIN", "auto")
    if is_offline(environment):
        ours["GOPROXY"] = "off"
    return ours


def found(environment: Mapping[str, str]) -> str:
    """Return the ``go`` on PATH."""
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise GoError("go is not on PATH")
    return go


def source(module: str, version: str, sums: Path, scratch: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory with a module's source, which Go fetches if need be and checks against ``sources.sum``."""
    go = found(environment)
    place = scratch / f"source-of-{module.replace('/', '-')}"
    with store.writing(scratch):
        place.mkdir()
        (place / "go.mod").write_text(f"module source\n\ngo 1.21\n\nrequire {module} v{version}\n")
        shutil.copyfile(sums / "sources.sum", place / "go.sum")
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=place,
            # Not a newer Go, which would be fetched only to unpack a file.
            env={**go_environment(environment), "GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        told = json.loads(done.stdout) if done.stdout.strip() else {}
    except (OSError, ValueError) as error:
        raise GoError(f"{go} does not say where {module} is: {error}") from None
    listed = (place / "go.sum").read_text().splitlines()
    if "requires go >=" in told.get("Error", "") and f"{module} v{version} {told.get('Sum')}" in listed:
        # Go has the module and its checksum, but does not unpack it because it needs a newer Go.
        try:
            with zipfile.ZipFile(told["Zip"]) as files:
                files.extractall(place)
        except (OSError, zipfile.BadZipFile) as error:
            raise GoError(f"{told['Zip']} cannot be unpacked: {error}") from None
        return place / f"{module}@v{version}"
    if done.returncode or not told.get("Dir"):
        complaints = [*str(told.get("Error", "")).splitlines(), *done.stderr.splitlines()]
        raise GoError(failure("mod download", done.returncode, complaints))
    return Path(told["Dir"])


def failure(command: str, code: int, complaints: Sequence[str]) -> str:
    """Return the message for a ``go`` that failed: a known remedy, and the end of its output."""
    said = "\n".join(complaints)
    hints = [hint for words, hint in _HINTS if words in said][:1]
    how = f"was killed by signal {-code}" if code < 0 else f"failed (exit code {code})"
    shown = list(dict.fromkeys(complaints))[-_SHOWN_LINES:]
    return "\n".join([f"go {command} {how}{': ' + hints[0] if hints else ''}", *shown])
