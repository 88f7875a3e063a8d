"""The tools that this machine already has."""

import contextlib
import json
import mmap
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainium_eks.local.toolchain import store
from trainium_eks.local.toolchain.tools import OPERATOR, SCALER, VOLCANO_TOOLS, Binary, Origin, Release

_ASK_SECONDS = 60.0

_QUESTIONS = {"kubectl": ("version", "--client"), "helm": ("version", "--short")}
"""Arguments for a tool's version, where they are not ``--version``."""

_VERSION = re.compile(r"\bv?(\d+\.\d+(?:\.\d+)?)")

_MODULE_VERSION = r"\n(?:mod|dep)\t{}\tv(?!0\.0\.0)(\d+\.\d+\.\d+)"
"""Go's record, in a program, of the modules that it was built from."""

_KARPENTER_MODULE = "sigs.k8s.io/karpenter"
_KWOK_PROVIDER = b"path\tsigs.k8s.io/karpenter/kwok\n"
"""Bytes in a Karpenter that makes nodes here. Karpenter for AWS has the same module in it, and would ask EC2."""

_MACHINES_DIRECTORY = b"/tmp/k8s-webhook-server/serving-certs"
"""Bytes in an unchanged Training Operator: all stacks of a machine would read one another's certificates there."""


class Silent(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The error for a tool without a known version; the message says why."""


class Answers:
    """The versions that tools reported, kept in a file: the question takes a tenth of a second for each.

    An answer holds for as long as the file has the same size and time. A script is asked every time: a version
    manager's script on PATH chooses the version by the directory. A file that cannot be read or written costs time
    only.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = self._read()
        self._new: dict[str, list[Any]] = {}

    def version(self, tool: str, path: Path, environment: Mapping[str, str]) -> str:
        """Return the kept version, or call :func:`version` when there is none."""
        status = path.stat()
        state = [status.st_size, status.st_mtime_ns]
        known = self._known.get(str(path))
        if isinstance(known, list) and known[:2] == state and isinstance(known[-1], str):
            return str(known[-1])
        answer = version(tool, path, environment)
        with path.open("rb") as file:
            if file.read(2) != b"#!":
                self._new[str(path)] = [*state, answer]
        return answer

    def save(self) -> None:
        """Save new answers. When two processes save at once, one loses its answers, and asks again later."""
        if not self._new:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f"{store.SCRATCH}versions-")
            with os.fdopen(handle, "w") as file:
                json.dump({**self._known, **self._new}, file)
            os.replace(name, self._file)

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def installed(
    tools: Iterable[str],
    pins: Release,
    environment: Mapping[str, str],
    answers: Answers,
    running: Mapping[str, Path] | None = None,
) -> tuple[dict[str, Binary], dict[str, list[str]]]:
    """Return the fitting tools on PATH or in ``KUBEBUILDER_ASSETS``, and the reasons against each other tool.

    Only the first of its name on PATH counts, as in a shell. After these come running tools, from wherever another
    shell had them.
    """

    def look(tool: str) -> tuple[Binary | None, list[str]]:
        reasons = []
        candidates = _candidates(tool, environment)
        if running and tool in running:
            candidates.append(("running", running[tool]))
        for origin, path in candidates:
            if path is None:
                reasons.append(_absent(origin, environment))
                continue
            try:
                version = answers.version(tool, path, environment)
            except (Silent, OSError) as error:
                reasons.append(f"{origin}: {path} {_words(error)}")
                continue
            misfit = pins.misfit(tool, version)
            if not misfit:
                return Binary(tool, path, origin, version), []
            reasons.append(f"{origin}: {path} is {version}, {misfit}")
        return None, reasons

    wanted = tuple(tools)
    with ThreadPoolExecutor(max_workers=len(wanted) or 1) as pool:
        looked = dict(zip(wanted, pool.map(look, wanted), strict=True))
    answers.save()
    return (
        {tool: binary for tool, (binary, _) in looked.items() if binary},
        {tool: reasons for tool, (binary, reasons) in looked.items() if not binary},
    )


def cached(tools: Iterable[str], pins: Release, directory: Path) -> dict[str, Binary]:
    """Return the tools in the directory of these versions. They were checked before they came there."""
    found = {}
    for tool in tools:
        path, version = directory / tool, pins.version(tool)
        if version and path.is_file() and os.access(path, os.X_OK):
            found[tool] = Binary(tool, path, "cache", version)
    return found


def version(tool: str, path: Path, environment: Mapping[str, str]) -> str:
    """Return the version that a tool reports, such as ``1.35.4``.

    The Training Operator's and Karpenter's is read from the file: they have no such option.

    Raises:
        Silent: it cannot be run, fails, reports no version or does not answer in time.
    """
    if tool == OPERATOR.tool:
        return _operator_version(path)
    if tool == SCALER.tool:
        return _karpenter_version(path)
    try:
        done = subprocess.run(
            [path, *_QUESTIONS.get(tool, ("--version",))],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Silent(f"did not say its version in {_ASK_SECONDS:g} s") from None
    except OSError as error:
        raise Silent(f"cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Silent(f"failed when asked for its version (exit code {done.returncode}): {said[-1] if said else ''}")
    match = _VERSION.search(done.stdout)
    if not match:
        # Volcano built without its Makefile reports "Not provided"; Go has recorded the version of its source.
        if tool in VOLCANO_TOOLS and (built_from := _built_from("volcano.sh/volcano", path)):
            return built_from
        raise Silent(f"does not say its version: {done.stdout.strip()[:80]!r}")
    return match[1]


def _operator_version(path: Path) -> str:
    found = _built_from("github.com/kubeflow/training-operator", path)
    if not found:
        raise Silent("is not built from the module github.com/kubeflow/training-operator")
    if _contains(_MACHINES_DIRECTORY, path):
        raise Silent(f"reads certificates in {_MACHINES_DIRECTORY.decode()}, which all stacks would share")
    return found


def _karpenter_version(path: Path) -> str:
    found = _built_from(_KARPENTER_MODULE, path)
    if not found:
        raise Silent(f"is not built from a release of the module {_KARPENTER_MODULE}")
    if not _contains(_KWOK_PROVIDER, path):
        raise Silent("makes nodes of another cloud, not simulated ones")
    return found


def _contains(words: bytes, path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(words) >= 0


def _built_from(module: str, path: Path) -> str:
    """Return the version of a Go module that a program was built from; empty where it has no record."""
    pattern = re.compile(_MODULE_VERSION.format(re.escape(module)).encode())
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = pattern.search(content)
            return found[1].decode() if found else ""
    except (OSError, ValueError):
        return ""


def _candidates(tool: str, environment: Mapping[str, str]) -> list[tuple[Origin, Path | None]]:
    on_path = shutil.which(tool, path=environment.get("PATH", ""))
    assets = environment.get("KUBEBUILDER_ASSETS")
    in_assets = shutil.which(tool, path=assets) if assets else None
    return [
        ("PATH", Path(on_path).absolute() if on_path else None),
        ("KUBEBUILDER_ASSETS", Path(in_assets).absolute() if in_assets else None),
    ]


def _absent(origin: Origin, environment: Mapping[str, str]) -> str:
    if origin == "PATH":
        return "PATH: not there"
    assets = environment.get("KUBEBUILDER_ASSETS")
    return f"KUBEBUILDER_ASSETS: not in {assets}" if assets else "KUBEBUILDER_ASSETS: not set"


def _words(error: Exception) -> str:
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
