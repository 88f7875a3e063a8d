"""The real ``helm`` against the local API server, cut off from the user's repositories, plugins and logins."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane.processes import writing
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.parsing import parse_json

LOOK_SECONDS = 2.0
"""Interval between two calls of ``look`` while Helm runs."""

GRACE_SECONDS = 30.0
"""Time beyond Helm's own limits, after which a Helm that hangs is killed."""

_QUICK_SECONDS = 180.0
_END_SECONDS = 10.0


class HelmError(LocalCloudError):
    """The error of a failed Helm command. The text is Helm's own."""


class HelmTimeoutError(HelmError):
    """The error of a Helm command that was killed because it took too long."""


@dataclass(frozen=True)
class ReleaseStatus:
    """The newest revision of a release."""

    revision: int
    status: str
    """``deployed``, ``failed``, ``superseded``, ``uninstalled``, ``uninstalling`` or ``pending-…``."""
    description: str
    manifest: str
    hooks: tuple[str, ...] = ()


class HelmCli:
    """A runner of ``helm`` commands. Safe to use from many threads.

    ``HELM_*`` and ``KUBECONFIG`` of the caller are left out; ``<root>/helm`` holds Helm's caches and settings.
    """

    def __init__(self, binary: Path, paths: Paths, environment: Mapping[str, str] = os.environ) -> None:
        self._binary = binary
        self._kubeconfig = paths.kubeconfig
        home = paths.root / "helm"
        with writing(home):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = {key: value for key, value in environment.items() if not key.startswith("HELM_")}
        self._environment = {
            **kept,
            "KUBECONFIG": str(paths.kubeconfig),
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
            # Helm falls back on Docker's logins for OCI registries; with an expired one even public charts are refused.
            "DOCKER_CONFIG": str(home / "docker"),
        }

    def status(self, name: str, namespace: str) -> ReleaseStatus | None:
        """Return the newest revision of a release, or None."""
        try:
            release = parse_json(self._on_cluster("status", name, namespace, "--output", "json"))
        except HelmError as error:
            if "release: not found" in str(error):
                return None
            raise
        info: Mapping[str, Any] = release["info"]
        hooks = tuple(str(hook["manifest"]) for hook in release.get("hooks") or [])
        return ReleaseStatus(
            int(release["version"]), info["status"], info.get("description", ""), release.get("manifest", ""), hooks
        )

    def upgrade(
        self,
        name: str,
        namespace: str,
        chart: Path,
        *,
        values: Mapping[str, Any],
        description: str,
        flags: Sequence[str],
        post_renderer: Sequence[str],
        timeout_seconds: float,
        look: Callable[[], None],
    ) -> None:
        """Install a chart, or upgrade its release.

        Helm replaces the description when the operation fails. ``look`` is called every :data:`LOOK_SECONDS` while Helm
        runs; an exception from it ends Helm.
        """
        program, *arguments = post_renderer
        self._on_cluster(
            "upgrade",
            name,
            namespace,
            str(chart),
            "--install",
            *("--values", "-", "--description", description, "--timeout", _duration(timeout_seconds)),
            *("--post-renderer", program, *(f"--post-renderer-args={argument}" for argument in arguments)),
            *flags,
            stdin=json.dumps(values),
            # Each hook, the wait for the objects, and both again when it is rolled back.
            timeout_seconds=4 * timeout_seconds + GRACE_SECONDS,
            look=look,
        )

    def uninstall(self, name: str, namespace: str, *, timeout_seconds: float) -> None:
        """Uninstall a release and await the end of its objects; an absent release is no error."""
        self._on_cluster(
            "uninstall",
            name,
            namespace,
            *("--ignore-not-found", "--wait", "--timeout", _duration(timeout_seconds)),
            timeout_seconds=2 * timeout_seconds + GRACE_SECONDS,
        )

    def pull(
        self, reference: str, version: str, destination: Path, *, flags: Sequence[str], timeout_seconds: float
    ) -> None:
        """Fetch a chart's package into a directory."""
        self._run(
            ["pull", reference, "--version", version, "--destination", str(destination), *flags],
            timeout_seconds=timeout_seconds,
        )

    def end_left_behind(self, name: str, namespace: str) -> None:
        """End a ``helm`` that works on the release but was not started by this process.

        A killed ``trn`` leaves such a process behind; two at a time would take each other's half-made objects for their
        own.
        """
        place = [f"--kubeconfig={self._kubeconfig}", f"--namespace={namespace}"]
        found = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                if command[2:5] == [name, *place] and process.ppid() != os.getpid():
                    process.terminate()
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        # At SIGTERM Helm first prints a message, which has no reader: it dies of SIGPIPE, its operation unfinished.
        _, left = psutil.wait_procs(found, timeout=_END_SECONDS)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=_END_SECONDS)

    def _on_cluster(
        self,
        command: str,
        name: str,
        namespace: str,
        *arguments: str,
        stdin: str = "",
        timeout_seconds: float = _QUICK_SECONDS,
        look: Callable[[], None] | None = None,
    ) -> str:
        # The kubeconfig's path tells this stack's processes from others'; `end_left_behind` knows this order.
        place = [f"--kubeconfig={self._kubeconfig}", f"--namespace={namespace}"]
        return self._run([command, name, *place, *arguments], stdin=stdin, timeout_seconds=timeout_seconds, look=look)

    def _run(
        self,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        timeout_seconds: float,
        look: Callable[[], None] | None = None,
    ) -> str:
        deadline = time.monotonic() + timeout_seconds
        try:
            process = subprocess.Popen(
                [str(self._binary), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment,
            )
        except OSError as error:
            raise LocalCloudError(f"helm cannot be started: {self._binary}: {error.strerror}") from error
        given: str | None = stdin
        with process:
            while True:
                left = deadline - time.monotonic()
                try:
                    output, errors = process.communicate(given, timeout=max(min(LOOK_SECONDS, left), 0.01))
                    break
                except subprocess.TimeoutExpired:
                    given = None
                    if left <= 0:
                        process.kill()
                        raise HelmTimeoutError(
                            f"helm {arguments[0]} did not end within {timeout_seconds:.0f} s"
                        ) from None
                    try:
                        if look is not None:
                            look()
                    except BaseException:
                        # Helm cleans up; it is killed when that takes too long.
                        process.terminate()
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.communicate(timeout=_END_SECONDS)
                        process.kill()
                        raise
        if process.returncode:
            # Without the warnings before its error.
            words = (errors.partition("Error: ")[2] or errors).strip()
            raise HelmError(words or f"helm {arguments[0]} ended with {process.returncode} and said nothing")
        return output


def python_file(file: Path, *arguments: str) -> list[str]:
    """Return a command that runs a file of this package alone: its neighbours are not imported by mistake."""
    return [sys.executable, "-P", str(file), *arguments]


def _duration(seconds: float) -> str:
    return f"{max(int(seconds), 1)}s"
