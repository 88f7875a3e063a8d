"""The versions that this project pins, as ``versions.toml`` has them with the certainty of each."""

import datetime
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_PINS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

KUBERNETES: str = _PINS["kubernetes"]
"""Minor version of new clusters."""


@dataclass(frozen=True)
class Support:
    """End of EKS' support for a Kubernetes minor version; dates as ``2027-03-27``."""

    standard_end: str
    """Last day of standard support (0.10 USD an hour)."""
    extended_end: str
    """Last day of extended support (0.60 USD an hour); then EKS upgrades automatically."""

    @property
    def days_left(self) -> int:
        """Days of standard support after today (:func:`today`); below 0 when it has ended."""
        return (datetime.date.fromisoformat(self.standard_end) - today()).days

    @property
    def is_standard(self) -> bool:
        """Whether standard support holds today."""
        return self.days_left >= 0

    @property
    def is_over(self) -> bool:
        """Whether extended support, too, has ended."""
        return today() > datetime.date.fromisoformat(self.extended_end)


def now() -> datetime.datetime:
    """Return the moment for all dates: now in UTC, or that of ``SOURCE_DATE_EPOCH``, which makes builds and tests
    repeatable (reproducible-builds.org)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdigit():
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    return datetime.datetime.now(datetime.UTC)


def today() -> datetime.date:
    """Return the day of :func:`now`, for all support dates."""
    return now().date()


KUBERNETES_STANDARD_SUPPORT: Mapping[str, Support] = MappingProxyType(
    {minor: Support(*ends) for minor, ends in _PINS["support"].items()}
)
"""Minor versions of which this release knows how long EKS supports them. EKS may run later ones."""


SUPPORT_DAYS, SUPPORT_DAYS_WITHOUT_WAIVER, AMI_DAYS = 120, 30, 90
"""Fewest days of standard support without a warning (only where :func:`successor` has a version to go to), and without
a waiver of R05; most days since an AMI release."""


def successor(version: str) -> str:
    """Return the next minor version where the pinned Volcano certifies it, or empty."""
    return f"1.{minor(version) + 1}" if minor(version) < minor(KUBERNETES) else ""


def ami_age_days(release: str) -> int:
    """Return the days since an AMI release, ``1.35.8-20260930``."""
    return (today() - datetime.datetime.strptime(release[-8:], "%Y%m%d").date()).days


def minor(kubernetes_version: str) -> int:
    """Return the minor of a version: 35 of ``1.35``."""
    return int(kubernetes_version.split(".")[1])


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (1, 18, 5) of ``v1.18.5-eksbuild.1``."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", version.partition("-")[0]))


OLDEST_NODES_BEHIND = 3
"""How many minor versions nodes may be behind their control plane (Kubernetes' version skew policy, from 1.28 on)."""


def step_refusal(before: object, after: object, *, is_control_plane: bool = True) -> str:
    """Return EKS' reason to refuse a change of the Kubernetes version in place (UpdateClusterVersion,
    UpdateNodegroupVersion), or an empty text: a control plane is upgraded by one minor version at a time, and neither
    it nor its nodes can be downgraded. Empty, too, if one of the versions is no plain one (``1.35``)."""
    now, then = _minor_pair(before), _minor_pair(after)
    if now is None or then is None:
        return ""
    if then < now:
        return f"EKS never goes back from Kubernetes {before} to {after}: keep {before}"
    major, minor = now
    if is_control_plane and then > (major, minor + 1):
        step = f"{major}.{minor + 1}"
        return f"EKS goes from Kubernetes {before} to {after} one minor version at a time: {step} comes next"
    return ""


def _minor_pair(version: object) -> tuple[int, int] | None:
    """Return ``1.35`` as (1, 35); None for a value that is no plain version."""
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", version) if isinstance(version, str) else None
    return (int(match[1]), int(match[2])) if match else None


LUSTRE = "2.15"
"""Version of the file system. AL2023's client mounts it; it does not mount 2.10, the API's default (fsx-csi#437)."""

NEWEST_KUBERNETES_WITH_LUSTRE = "1.35"
"""The last minor version with nodes that are known to mount the file system (kernel 6.12). Nodes of 1.36 run kernel
6.18, and no source was found on whether Amazon Linux' Lustre client works with it."""

MINIMUM_VPC_CNI_FOR_EFA_ONLY = "1.18.5"
"""First VPC CNI that leaves ``efa-only`` interfaces alone; with an older one nodes stay NotReady."""


@dataclass(frozen=True)
class Chart:
    """A Helm chart at one version."""

    repository: str
    """URL of the repository; empty for an OCI chart."""
    chart: str
    """Name in the repository, or the whole ``oci://`` reference."""
    version: str
    """Exact version, as the repository spells it."""


def _chart(name: str, place: str, version: str) -> Chart:
    return Chart("", place, version) if place.startswith("oci://") else Chart(place, name, version)


CHARTS: Mapping[str, Chart] = MappingProxyType({name: _chart(name, *pin) for name, pin in _PINS["charts"].items()})
"""Helm charts that are installed."""

IMAGES: Mapping[str, str] = MappingProxyType(_PINS["images"])
"""Container images that are run directly, by tag."""

CLUSTER_AUTOSCALER: Mapping[str, str] = MappingProxyType(_PINS["cluster_autoscaler"])
"""Cluster Autoscaler by Kubernetes version."""

GRAFANA_AMP_PLUGIN: str = _PINS["grafana_amp_plugin"]
"""Grafana's data source for Amazon Managed Prometheus."""

TRAINING_OPERATOR: str = _PINS["training_operator"]
"""Tag of Kubeflow's training operator."""

TRAINING_OPERATOR_COMMIT: str = _PINS["training_operator_commit"]
"""Commit of that tag in kubeflow/trainer."""

AMI_RELEASES: Mapping[str, str] = MappingProxyType(_PINS["ami_releases"])
"""AMI release of managed nodes, by Kubernetes version."""

ADDONS: Mapping[str, Mapping[str, str]] = MappingProxyType(_PINS["addons"])
"""Builds of each EKS add-on by Kubernetes version, or under ``*``."""
