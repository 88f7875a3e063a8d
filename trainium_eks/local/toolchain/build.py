"""Building from the Go modules that ``go.mod`` beside this file pins.

Go checks every module against ``go.sum``. Its caches are the user's own (``GOCACHE``, ``GOMODCACHE``), so that a
build that was killed goes on where it was.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainium_eks.local.toolchain import store
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import BUILDABLE_MINOR, HELM, KUBERNETES_RELEASES, Pins

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm": "helm.sh/helm/v3/cmd/helm",
}

_MODULE = Path(__file__).parent
_OLDEST_GO = (1, 21)
"""The first that fetches a newer one by itself."""
_COMPUTING_MINUTES = 14
"""Of one core, for everything from nothing: measured with Go 1.26 on a small virtual machine."""
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


class BuildFailed(Exception):  # noqa: N818 - reads as what it is where it is raised
    """Nothing was built; the message says why."""


@dataclass
class _Counts:
    """How far Go is."""

    modules: int = 0
    packages: int = 0
    complaints: list[str] = field(default_factory=list)
    """What else it printed."""


def build(
    tools: Sequence[str],
    pins: Pins,
    scratch: Path,
    *,
    environment: Mapping[str, str],
    offline: bool,
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Builds tools in the scratch directory, in one go.

    Args:
        tools: which.
        pins: for which Kubernetes.
        scratch: an empty directory.
        environment: of the user; see :func:`go_environment`.
        offline: use only what Go's own caches hold.
        progress: told in phases and numbers, at most about once a second.

    Raises:
        BuildFailed: Go is not there, too old, cannot get the modules, or fails.
        store.Unwritable: the scratch directory cannot be written.
    """
    if pins.minor != BUILDABLE_MINOR:
        raise BuildFailed(f"only Kubernetes {BUILDABLE_MINOR} can be built, not {pins.minor}")
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise BuildFailed("go is not on PATH")
    module = scratch / "module"
    try:
        # The package's own directory may be read-only, and Go looks for what is beside go.mod.
        module.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(_MODULE / name, module / name)
    except OSError as error:
        raise store.unwritable(scratch, error) from error
    builder = _Builder(go, module, go_environment(environment, offline), Throttle(progress))
    builder.build(tools, pins)
    files = {tool: module / "out" / _file_name(PACKAGES[tool]) for tool in tools}
    missing = [tool for tool, file in files.items() if not file.is_file()]
    if missing:
        raise BuildFailed(f"go build succeeded but made no {', '.join(missing)}")
    return files


def go_environment(environment: Mapping[str, str], offline: bool) -> dict[str, str]:
    """The user's environment, less what would build something else: another platform, another workspace.

    ``GOFLAGS``, ``GOPROXY``, ``GOSUMDB``, ``GOCACHE`` and the like stay the user's. An older Go may fetch the one that
    go.mod asks for, unless ``GOTOOLCHAIN`` says otherwise; some distributions forbid it where nothing is said.
    """
    left_out = ("GOOS", "GOARCH", "GOBIN")
    ours = {name: value for name, value in environment.items() if name not in left_out}
    ours |= {"CGO_ENABLED": "0", "GO111MODULE": "on", "GOWORK": "off"}
    ours.setdefault("GOTOOLCHAIN", "auto")
    if offline:
        ours["GOPROXY"] = "off"
    return ours


def link_flags(pins: Pins) -> str:
    """What the projects' own builds write into their binaries: the version that they answer with."""
    major, minor = pins.minor.split(".")
    variables = {"helm.sh/helm/v3/internal/version.version": f"v{HELM}"}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        variables |= {
            f"{package}.gitVersion": f"v{KUBERNETES_RELEASES[pins.minor]}",
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
        }
    for package in ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"):
        variables |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in variables.items())])


class _Builder:
    def __init__(self, go: str, module: Path, environment: Mapping[str, str], throttle: Throttle) -> None:
        self._go = go
        self._module = module
        self._environment = environment
        self._throttle = throttle

    def build(self, tools: Sequence[str], pins: Pins) -> None:
        release = self._release()
        packages = [PACKAGES[tool] for tool in tools]
        cores = os.cpu_count() or 1
        minutes = max(1, round(_COMPUTING_MINUTES / cores))
        self._throttle.now(
            f"building {', '.join(tools)} from source with {release}: about {minutes} minutes on {cores} cores, once "
            "(less where Go has some of it in its cache)"
        )
        modules = sum(1 for line in (self._module / "go.mod").read_text().splitlines() if "// indirect" in line)
        needed = self._run(
            ["list", "-mod=readonly", "-deps", *packages],
            lambda counts: f"building: {counts.modules} of at most {modules} modules downloaded",
        ).packages
        self._throttle.now(f"building: has the sources, compiling at most {needed} packages")
        self._run(
            [
                *("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"),
                # Nobody debugs these; leaving that out saves a tenth of the time.
                "-gcflags=all=-dwarf=false",
                *("-ldflags", link_flags(pins), "-o", f"out{os.sep}", *packages),
            ],
            lambda counts: f"building: {counts.packages} of at most {needed} packages compiled",
        )

    def _release(self) -> str:
        """Of this Go, which may still fetch a newer one."""
        try:
            # Outside of a module, or an old Go would fail on go.mod's first line with words about its format.
            done = subprocess.run(
                [self._go, "env", "GOVERSION"],
                cwd=self._module.parent,
                env=dict(self._environment) | {"GOTOOLCHAIN": "local"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"{self._go} cannot be run: {error}") from None
        match = re.match(r"go(\d+)\.(\d+)", done.stdout)
        if done.returncode == 0 and match is None and "devel" in done.stdout:
            return done.stdout.strip()
        if done.returncode or match is None:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise BuildFailed(f"{self._go} does not say its version: {said}")
        if (int(match[1]), int(match[2])) < _OLDEST_GO:
            oldest = ".".join(map(str, _OLDEST_GO))
            raise BuildFailed(f"{self._go} is {done.stdout.strip()}; {oldest} or newer is needed")
        return done.stdout.strip()

    def _run(self, arguments: Sequence[str], message: Callable[[_Counts], str]) -> _Counts:
        """Runs go to its end.

        When this process is killed, go's next line goes to a pipe that nobody reads, which ends it too.
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
            raise BuildFailed(f"{self._go} cannot be run: {error.strerror}") from None
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
            raise BuildFailed(_failure(arguments[0], code, counts.complaints))
        return counts


def _count(counts: _Counts, line: str) -> None:
    if line.startswith("go: downloading "):
        counts.modules += 1
    elif line and " " not in line:
        counts.packages += 1  # an import path, which both `go list -deps` and `go build -v` print alone
    elif line:
        counts.complaints.append(line)


def _failure(command: str, code: int, complaints: Sequence[str]) -> str:
    said = "\n".join(complaints)
    hints = [hint for words, hint in _HINTS if words in said][:1]
    how = f"was killed by signal {-code}" if code < 0 else f"failed (exit code {code})"
    shown = list(dict.fromkeys(complaints))[-_SHOWN_LINES:]
    return "\n".join([f"go {command} {how}{': ' + hints[0] if hints else ''}", *shown])


def _file_name(package: str) -> str:
    """As go names the result: the last part of the path that is no major version."""
    parts = [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)]
    return parts[-1]
