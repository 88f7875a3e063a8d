"""Builds from Go modules, pinned by the ``go.mod`` beside this file and in directories beside it.

The directories are ``kubernetes_1_34``, ``volcano``, ``training_operator``, ``karpenter`` and ``prometheus``. Go checks
every module against ``go.sum``. Its caches are the user's own (``GOCACHE``, ``GOMODCACHE``), so that a build that was
killed continues where it ended.
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
from trainium_eks.local.toolchain.tools import (
    BUILDABLE_MINORS,
    HELM,
    KARPENTER,
    KUBERNETES_RELEASES,
    PROMETHEUS,
    SCALER,
    VOLCANO,
    PartPins,
    Pins,
    PrometheusPins,
    Release,
    VolcanoPins,
)

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "vc-webhook-manager": "volcano.sh/volcano/cmd/webhook-manager",
    "vc-scheduler": "volcano.sh/volcano/cmd/scheduler",
    "vc-controller-manager": "volcano.sh/volcano/cmd/controller-manager",
    "training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1",
    "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
    "karpenter": "sigs.k8s.io/karpenter/kwok",
}

_MODULES = {
    "kubernetes-1.34": Path(__file__).parent / "kubernetes_1_34",
    "kubernetes-1.35": Path(__file__).parent,
    "volcano": go_command.VOLCANO_MODULE,
    "training-operator": go_command.OPERATOR_MODULE,
    "prometheus": go_command.PROMETHEUS_MODULE,
    "karpenter": go_command.KARPENTER_MODULE,
}
_OLDEST_GO = (1, 21)
"""The first version that fetches a newer Go by itself."""
_COMPUTING_MINUTES = {
    "kubernetes-1.34": 11,
    "kubernetes-1.35": 14,
    "volcano": 9,
    "training-operator": 5,
    "prometheus": 5,
    "karpenter": 4,
}
"""Minutes of one core for a complete build: measured with Go 1.26 on a small virtual machine. Volcano, the Training
Operator and Karpenter take less after Kubernetes: their go.mod have the same libraries.
"""


@dataclass
class _Counts:
    """The progress of Go."""

    modules: int = 0
    packages: int = 0
    complaints: list[str] = field(default_factory=list)
    """The other lines of its output."""


def build(
    tools: Sequence[str],
    pins: Release,
    scratch: Path,
    *,
    environment: Mapping[str, str],
    offline: bool,
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Build tools in the scratch directory, in one go.

    Args:
        tools: the tools, all of one release.
        pins: their versions.
        scratch: an empty directory.
        environment: the user's; see :func:`~trainium_eks.local.toolchain.go_command.go_environment`.
        offline: use only Go's caches.
        progress: called with phases and numbers, at most about once a second.

    Raises:
        go_command.GoFailed: Go is missing or too old, cannot get the modules, or fails.
        store.Unwritable: the scratch directory cannot be written.
    """
    if isinstance(pins, Pins) and pins.minor not in BUILDABLE_MINORS:
        raise go_command.GoFailed(f"only Kubernetes {' and '.join(BUILDABLE_MINORS)} can be built, not {pins.minor}")
    release = _release_name(pins)
    go = go_command.found(environment)
    ours = go_command.go_environment(environment, offline)
    module = scratch / "module"
    try:
        # The package's own directory may be read-only, and Go reads the files beside go.mod.
        module.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module_of(pins) / name, module / name)
    except OSError as error:
        raise store.unwritable(scratch, error) from error
    if release == "volcano":
        sources.complete_volcano_apis(module / "apis", scratch, ours)
    elif release == "training-operator":
        sources.complete_operator(module / "operator", scratch, ours)
    elif release == "karpenter":
        sources.complete_karpenter(module / "karpenter", scratch, ours)
    builder = _Builder(go, module, ours, Throttle(progress))
    builder.build(tools, pins, _COMPUTING_MINUTES[release])
    files = {tool: module / "out" / _file_name(PACKAGES[tool]) for tool in tools}
    missing = [tool for tool, file in files.items() if not file.is_file()]
    if missing:
        raise go_command.GoFailed(f"go build succeeded but made no {', '.join(missing)}")
    return files


def module_of(pins: Release) -> Path:
    """Return the directory with the ``go.mod`` and ``go.sum`` of a release that can be built."""
    return _MODULES[_release_name(pins)]


def _release_name(pins: Release) -> str:
    if isinstance(pins, VolcanoPins):
        return "volcano"
    if isinstance(pins, PrometheusPins):
        return "prometheus"
    if isinstance(pins, PartPins):
        return pins.part.tool
    assert isinstance(pins, Pins)
    return f"kubernetes-{pins.minor}"


def tags(pins: Release) -> list[str]:
    """Return build tags, as arguments of go.

    Of Prometheus' service discoveries, files and Kubernetes are enough: the others bring the SDKs of twenty clouds.
    """
    return ["-tags=remove_all_sd,enable_kubernetes_sd"] if isinstance(pins, PrometheusPins) else []


def link_flags(pins: Release) -> str:
    """Return the linker's flags of the projects' own builds: they set the version that a program reports."""
    if isinstance(pins, PartPins):
        # Karpenter shows its version in a metric; the operator nowhere.
        return f"-s -w -X sigs.k8s.io/karpenter/pkg/operator.Version={KARPENTER}" if pins.part == SCALER else "-s -w"
    if isinstance(pins, PrometheusPins):
        return f"-s -w -X github.com/prometheus/common/version.Version={PROMETHEUS}"
    if not isinstance(pins, Pins):
        return f"-s -w -X volcano.sh/volcano/pkg/version.Version=v{VOLCANO}"
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

    def build(self, tools: Sequence[str], pins: Release, computing_minutes: int) -> None:
        release = self._release()
        packages = [PACKAGES[tool] for tool in tools]
        cores = os.cpu_count() or 1
        minutes = max(1, round(computing_minutes / cores))
        self._throttle.now(
            f"building {', '.join(tools)} from source with {release}: about {minutes} minutes on {cores} cores, once "
            "(less where Go has some of it in its cache)"
        )
        modules = sum(1 for line in (self._module / "go.mod").read_text().splitlines() if "// indirect" in line)
        needed = self._run(
            ["list", "-mod=readonly", *tags(pins), "-deps", *packages],
            lambda counts: f"building: {counts.modules} of at most {modules} modules downloaded",
        ).packages
        self._throttle.now(f"building: has the sources, compiling at most {needed} packages")
        self._run(
            [
                *("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", *tags(pins)),
                # Without data for debuggers, which saves a tenth of the time.
                "-gcflags=all=-dwarf=false",
                *("-ldflags", link_flags(pins), "-o", f"out{os.sep}", *packages),
            ],
            lambda counts: f"building: {counts.packages} of at most {needed} packages compiled",
        )

    def _release(self) -> str:
        """Return the version of this Go, which may still fetch a newer one."""
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
            raise go_command.GoFailed(f"{self._go} cannot be run: {error}") from None
        match = re.match(r"go(\d+)\.(\d+)", done.stdout)
        if done.returncode == 0 and match is None and "devel" in done.stdout:
            return done.stdout.strip()
        if done.returncode or match is None:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise go_command.GoFailed(f"{self._go} does not say its version: {said}")
        if (int(match[1]), int(match[2])) < _OLDEST_GO:
            oldest = ".".join(map(str, _OLDEST_GO))
            raise go_command.GoFailed(f"{self._go} is {done.stdout.strip()}; {oldest} or newer is needed")
        return done.stdout.strip()

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
            raise go_command.GoFailed(f"{self._go} cannot be run: {error.strerror}") from None
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
            raise go_command.GoFailed(go_command.failure(arguments[0], code, counts.complaints))
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
