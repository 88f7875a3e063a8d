"""The tools that this machine already has."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainium_eks import fetched
from trainium_eks.local.toolchain.tools import Binary, Bundle, Origin, Tool

_ASK_SECONDS = 60.0
_VERSION = re.compile(r"\bv?(\d+\.\d+(?:\.\d+)?)")


class SilentError(Exception):
    """The error for a program without a known version; the message says why."""


def find(
    bundle: Bundle, environment: Mapping[str, str] = os.environ, cache: Path | None = None
) -> tuple[dict[str, Binary], dict[str, list[str]]]:
    """Return the tools of a bundle on this machine, and the reasons against each other tool. Uses no network."""
    reasons: dict[str, list[str]] = {}
    there: dict[str, Binary] = {}
    with ThreadPoolExecutor(max_workers=len(bundle.tools)) as pool:
        looked = pool.map(lambda tool: _installed(tool, environment), bundle.tools)
    for tool, (binary, why) in zip(bundle.tools, looked, strict=True):
        if binary:
            there[tool.name] = binary
        else:
            reasons[tool.name] = why
    there |= cached([tool for tool in bundle.tools if tool.name in reasons], place(bundle, environment, cache))
    return there, {name: why for name, why in reasons.items() if name not in there}


def place(bundle: Bundle, environment: Mapping[str, str], cache: Path | None) -> Path:
    """Return the directory of a bundle's tools in the cache."""
    return (cache or fetched.cache(environment)) / bundle.place


def cached(tools: Sequence[Tool], directory: Path) -> dict[str, Binary]:
    """Return the tools in the directory of their versions. They were checked before they came there."""
    found = {}
    for tool in tools:
        path = directory / tool.name
        if tool.version and path.is_file() and os.access(path, os.X_OK):
            found[tool.name] = Binary(tool.name, path, "cache", tool.version)
    return found


def version(tool: Tool, path: Path, environment: Mapping[str, str]) -> str:
    """Return the version that a program reports, such as ``1.35.4``."""
    try:
        done = subprocess.run(
            [path, *tool.question],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SilentError(f"did not say its version in {_ASK_SECONDS:g} s") from None
    except OSError as error:
        raise SilentError(f"cannot be run: {error.strerror}") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise SilentError(f"failed when asked for its version (exit code {done.returncode}): {last}")
    match = _VERSION.search(done.stdout)
    if not match:
        raise SilentError(f"does not say its version: {done.stdout.strip()[:80]!r}")
    return match[1]


def _installed(tool: Tool, environment: Mapping[str, str]) -> tuple[Binary | None, list[str]]:
    """Return a fitting program on PATH or in ``KUBEBUILDER_ASSETS``, or the reasons against those.

    Only the first of its name on PATH counts, as in a shell.
    """
    if tool.fits is None:
        return None, []
    reasons = []
    assets = environment.get("KUBEBUILDER_ASSETS", "")
    directories: dict[Origin, str] = {"PATH": environment.get("PATH", ""), "KUBEBUILDER_ASSETS": assets}
    for origin, directory in directories.items():
        found = shutil.which(tool.name, path=directory) if directory else None
        if found is None:
            absent = "not there" if origin == "PATH" else f"not in {assets}" if assets else "not set"
            reasons.append(f"{origin}: {absent}")
            continue
        path = Path(found).absolute()
        try:
            its_version = version(tool, path, environment)
        except SilentError as error:
            reasons.append(f"{origin}: {path} {error}")
            continue
        misfit = tool.misfit(its_version)
        if not misfit:
            return Binary(tool.name, path, origin, its_version), []
        reasons.append(f"{origin}: {path} is {its_version}, {misfit}")
    return None, reasons
