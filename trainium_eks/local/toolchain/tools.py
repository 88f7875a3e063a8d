"""The tools, their versions and their platforms."""

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "helm")
"""Programs of every local cloud."""

VOLCANO_TOOLS = ("vc-webhook-manager", "vc-scheduler", "vc-controller-manager")
"""Volcano's programs, used where they are available: without these, its pods are simulated like all others."""

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

KUBERNETES_RELEASES = {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3"}
"""The provided release of each minor version."""

BUILDABLE_MINOR = "1.35"
"""The minor version that ``go.mod`` pins, with all the other tools."""

BUILDABLE_MINORS = ("1.34", BUILDABLE_MINOR)
"""Minor versions that can be built: of the older one only the control plane, to upgrade from.

All other versions are only downloaded or found.
"""

# The same as in go.mod; a test compares them.
ETCD = "3.6.5"
HELM = "3.19.5"
# 0.7.0 does not compile with the libraries of Kubernetes 1.35, 0.8.0 compiles only with 1.36's.
KWOK = "0.6.1"

KWOK_IMAGE_DIGEST = "sha256:aeb199bfba96b23482bb647f81a83884b134ff518d774ed4c3464b213501dc25"
"""registry.k8s.io/kwok/kwok:v0.6.1, as the Kubernetes project records it (kubernetes/k8s.io,
registry.k8s.io/images/k8s-staging-kwok/images.yaml)."""

VOLCANO = "1.15.0"
"""The version of the chart that the stacks install; a test compares them."""

VOLCANO_IMAGE_DIGESTS: Mapping[str, str] = {}
"""Tool to the digest (``sha256:…``) of its image of that version, for all platforms, where one is published.

Volcano publishes none, so its tags are trusted the first time: see docs/decisions/0034-volcano-for-everyone.md.
"""

TRAINING_OPERATOR = "1.9.3"
"""The version that the stacks install; a test compares them."""

KARPENTER = "1.15.0"
"""The version of Karpenter's core and of its kwok provider, which stands in for EC2 here."""

PROMETHEUS = "3.13.5"
"""The newest version with the libraries of Kubernetes 1.35: 3.15 and later have Kubernetes 1.37's."""

PROMETHEUS_TOOLS = ("prometheus", "promtool")
"""Programs for the tests of dashboards, recording rules and alerts."""

Origin = Literal["PATH", "KUBEBUILDER_ASSETS", "running", "cache", "download", "build"]

_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Binary:
    """A tool that can be run."""

    name: str
    """One of :data:`TOOLS`, :data:`VOLCANO_TOOLS`, :data:`PARTS` or :data:`PROMETHEUS_TOOLS`."""
    path: Path
    """Absolute."""
    origin: Origin
    version: str
    """Without the ``v``: ``1.35.4``."""


@dataclass(frozen=True)
class Platform:
    """A machine, in Go's terms, which all of these projects use for their files."""

    system: str
    """``linux`` or ``darwin``."""
    architecture: str
    """``amd64`` or ``arm64``; another architecture by the machine's own name."""

    def __str__(self) -> str:
        return f"{self.system}-{self.architecture}"

    @staticmethod
    def here() -> "Platform":
        """Return this machine's platform."""
        machine = platform.machine()
        return Platform(sys.platform, _ARCHITECTURES.get(machine, machine))


class Release(Protocol):
    """The versions of tools that belong together."""

    @property
    def platform(self) -> Platform:
        """Return the platform."""
        ...

    @property
    def key(self) -> str:
        """Return the name of the directory for these versions and this platform: a new pin makes a new one."""
        ...

    def version(self, tool: str) -> str | None:
        """Return the version to download or build, or None where no release is known here."""
        ...

    def misfit(self, tool: str, version: str) -> str:
        """Return why a tool of that version does not serve, or nothing: "must be 1.35"."""
        ...


@dataclass(frozen=True)
class VolcanoPins:
    """The version of Volcano's programs."""

    platform: Platform

    @property
    def key(self) -> str:
        """Return the directory's name, as in :class:`Release`."""
        return f"volcano-{VOLCANO}_{self.platform}"

    def version(self, tool: str) -> str | None:
        """Return the version, as in :class:`Release`."""
        return VOLCANO if tool in VOLCANO_TOOLS else None

    def misfit(self, tool: str, version: str) -> str:
        """Return a reason, as in :class:`Release`. The chart's flags and definitions change with the minor version."""
        ours = parsed(VOLCANO)
        fits = tool in VOLCANO_TOOLS and parsed(version) == ours
        return "" if fits else f"must be {ours[0]}.{ours[1]}, as the chart"


@dataclass(frozen=True)
class Part:
    """A program that only some stacks run. It is found or built; no fitting binary is published."""

    tool: str
    """Its name, and the name of its directory in the cache."""
    title: str
    """Its name at the beginning of a sentence."""
    version: str
    variable: str
    """Environment variable; ``off`` leaves it out."""
    unpublished: str
    """Why it is not downloaded."""
    instead: str
    """The remedy where it is missing."""


OPERATOR = Part(
    tool="training-operator",
    title="The Training Operator",
    version=TRAINING_OPERATOR,
    variable="TRN_TRAINING_OPERATOR",
    # Its image's program looks for its certificates in a directory of the whole machine (sources.py).
    unpublished="there is none; it is built",
    instead="leave v1 out of `gpuAddons.trainers`",
)
"""Kubeflow's Training Operator, which runs PyTorchJobs."""

SCALER = Part(
    tool="karpenter",
    title="Karpenter",
    version=KARPENTER,
    variable="TRN_KARPENTER",
    # The published image asks EC2 for its nodes.
    unpublished="there is none with the kwok provider; it is built",
    instead="take Karpenter out of the stack",
)
"""Karpenter with its kwok provider."""

PARTS = {part.tool: part for part in (OPERATOR, SCALER)}
"""All parts, by name."""


@dataclass(frozen=True)
class PartPins:
    """The version of a part."""

    platform: Platform
    part: Part

    @property
    def key(self) -> str:
        """Return the directory's name, as in :class:`Release`."""
        return f"{self.part.tool}-{self.part.version}_{self.platform}"

    def version(self, tool: str) -> str | None:
        """Return the version, as in :class:`Release`."""
        return self.part.version if tool == self.part.tool else None

    def misfit(self, tool: str, version: str) -> str:
        """Return a reason, as in :class:`Release`."""
        return "" if version == self.version(tool) else f"must be {self.part.version}, as the stacks install"


@dataclass(frozen=True)
class PrometheusPins:
    """The version of Prometheus and promtool."""

    platform: Platform

    @property
    def key(self) -> str:
        """Return the directory's name, as in :class:`Release`."""
        return f"prometheus-{PROMETHEUS}_{self.platform}"

    def version(self, tool: str) -> str | None:
        """Return the version, as in :class:`Release`."""
        return PROMETHEUS if tool in PROMETHEUS_TOOLS else None

    def misfit(self, tool: str, version: str) -> str:
        """Return a reason, as in :class:`Release`. Version 2 parses rules and queries differently, without
        ``parse_query``.
        """
        return "" if tool in PROMETHEUS_TOOLS and parsed(version)[0] == 3 else "must be 3"


@dataclass(frozen=True)
class Pins:
    """The version of every tool for one minor version of Kubernetes."""

    minor: str
    """``1.35``."""
    platform: Platform

    def holder(self, tool: str) -> "Pins":
        """Return the release with the directory of the cache that holds a tool.

        Tools outside of Kubernetes' control plane are the same for every minor version and lie once, so that an upgrade
        of the control plane leaves etcd and kwok running.
        """
        return self if tool in CONTROL_PLANE else Pins(BUILDABLE_MINOR, self.platform)

    def version(self, tool: str) -> str | None:
        """Return the version, as in :class:`Release`. None for a Kubernetes without a known release here."""
        others = {"etcd": ETCD, "helm": HELM, "kwok": KWOK}
        return others.get(tool) or KUBERNETES_RELEASES.get(self.minor)

    @property
    def key(self) -> str:
        """Return the directory's name, as in :class:`Release`."""
        kubernetes = f"kubernetes-{KUBERNETES_RELEASES.get(self.minor, self.minor)}"
        if self.minor != BUILDABLE_MINOR:
            return f"{kubernetes}_{self.platform}"
        return f"{kubernetes}_etcd-{ETCD}_kwok-{KWOK}_helm-{HELM}_{self.platform}"

    def misfit(self, tool: str, version: str) -> str:
        """Return a reason, as in :class:`Release`."""
        major, minor = parsed(version)
        if tool in CONTROL_PLANE:
            return "" if f"{major}.{minor}" == self.minor else f"must be {self.minor}"
        if tool == "kubectl":
            ours_major, ours_minor = parsed(self.minor)
            # Kubernetes' version skew policy: kubectl may be one minor older or newer than the server.
            near = major == ours_major and abs(minor - ours_minor) <= 1
            return "" if near else f"must be within one minor version of {self.minor}"
        if tool == "helm":
            return "" if major == 3 and minor >= 14 else "must be 3.14 or newer, and not 4"
        if tool == "etcd":
            return "" if major == 3 and minor >= 5 else "must be 3.5 or newer"
        return "" if (major, minor) >= (0, 6) else "must be 0.6 or newer"


def parsed(version: str) -> tuple[int, int]:
    """Return major and minor of ``1.35`` or ``1.35.4``.

    Raises:
        ValueError: it is no version.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"not a version: {version!r}")
    return int(match[1]), int(match[2])
