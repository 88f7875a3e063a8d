"""Every version that this project pins, except the versions of EKS add-ons (addon_records.py).

None was run on a live account by the authors; the certainty of each is noted beside it. Nothing here may float (no
``latest``, ``main``, ``master``): ``etcd:latest`` broke every TorchX rendezvous on the day 3.6 dropped the v2 API.
"""

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

KUBERNETES = "1.35"
"""Minor version of new clusters: the highest that Volcano 1.15 certifies."""


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


def today() -> datetime.date:
    """Return the day for all support dates: today in UTC, or the day of ``SOURCE_DATE_EPOCH``, which makes builds and
    tests repeatable (reproducible-builds.org)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.datetime.now(datetime.UTC)
    return (datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch.isdigit() else now).date()


KUBERNETES_STANDARD_SUPPORT: Mapping[str, Support] = MappingProxyType(
    {
        # From the EKS user guide.
        "1.31": Support("2025-11-26", "2026-11-26"),
        "1.32": Support("2026-03-23", "2027-03-23"),
        "1.33": Support("2026-07-29", "2027-07-29"),
        "1.34": Support("2026-12-02", "2027-12-02"),
        # Second-hand (endoflife.date, release announcements); extended support has always been one more year.
        "1.35": Support("2027-03-27", "2028-03-27"),
        "1.36": Support("2027-08-02", "2028-08-02"),
    }
)
"""Minor versions that EKS runs."""


SUPPORT_DAYS, SUPPORT_DAYS_WITHOUT_WAIVER, AMI_DAYS = 120, 30, 90
"""Fewest days of standard support without a warning, and without a waiver of R05; most days since an AMI release."""


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


CHARTS: Mapping[str, Chart] = MappingProxyType(
    {
        # The newest in the repository's index of June 2026. The git tag v1.15.1 is newer, its chart not seen published.
        "volcano": Chart("https://volcano-sh.github.io/helm-charts", "volcano", "1.15.0"),
        # Named on the release page of 2026-08-19; the files of 1.9.0 were read, those of 1.10.0 were not.
        "neuron-helm-chart": Chart("", "oci://public.ecr.aws/neuron/neuron-helm-chart", "1.10.0"),
        # These three: read in the repositories' own indexes (August, August and May 2026). 0.20.0 of the NVIDIA
        # plugin exists too; 0.19 is the line that EKS' guide describes (MOFED must be off).
        "aws-efa-k8s-device-plugin": Chart("https://aws.github.io/eks-charts", "aws-efa-k8s-device-plugin", "v0.5.30"),
        "nvidia-device-plugin": Chart("https://nvidia.github.io/k8s-device-plugin", "nvidia-device-plugin", "0.19.3"),
        # Read at its tag: chart, definitions, calls of AWS. For Kubernetes 1.36 Karpenter must be 1.13 or newer.
        "karpenter": Chart("", "oci://public.ecr.aws/karpenter/karpenter", "1.15.1"),
        "karpenter-crd": Chart("", "oci://public.ecr.aws/karpenter/karpenter-crd", "1.15.1"),
        # From its release page. Earlier lines must be upgraded to 2.3 before any later one.
        "kubeflow-trainer": Chart("", "oci://ghcr.io/kubeflow/charts/kubeflow-trainer", "2.3.0"),
        # Read in the repository's index of August 2026; its templates and values in the source tree of 9.51.
        "cluster-autoscaler": Chart("https://kubernetes.github.io/autoscaler", "cluster-autoscaler", "9.59.0"),
        "dcgm-exporter": Chart("https://nvidia.github.io/dcgm-exporter/helm-charts", "dcgm-exporter", "4.8.2"),
        # These three: from the charts' own repositories, as of 2026-08-22.
        "kube-prometheus-stack": Chart(
            "https://prometheus-community.github.io/helm-charts", "kube-prometheus-stack", "88.5.3"
        ),
        "prometheus-yet-another-cloudwatch-exporter": Chart(
            "https://prometheus-community.github.io/helm-charts", "prometheus-yet-another-cloudwatch-exporter", "0.47.0"
        ),
        "fluent-bit": Chart("https://fluent.github.io/helm-charts", "fluent-bit", "0.58.1"),
    }
)
"""Helm charts that are installed."""

IMAGES: Mapping[str, str] = MappingProxyType(
    {
        # The 3.5 line: 3.6 has no v2 API, which TorchX's etcd backend speaks. The line's newest tag.
        "etcd": "quay.io/coreos/etcd:v3.5.35",
        # From the Neuron SDK's own manifest.
        "neuron-monitor": "public.ecr.aws/neuron/neuron-monitor:1.3.0",
        # Pinned by the kustomization of tag v1.9.3 itself (read there).
        "training-operator": "ghcr.io/kubeflow/training-v1/training-operator:v1-d6eb98e",
        # Makes directories once; Docker's official image, from AWS' mirror. The tag is from memory.
        "lustre-setup": "public.ecr.aws/docker/library/busybox:1.37.0",
        # Builds images in the cluster, rootless. The tag is in use in public projects.
        "buildah": "quay.io/buildah/stable:v1.43.0",
        # Copies images. Upstream rebuilds its other tags every day and deletes their digests; this one stays. Tag and
        # digest as several public projects pin them.
        "skopeo": "quay.io/skopeo/stable:v1.22.3-immutable"
        "@sha256:c0ee1f4edca5c01cb8d5611124f92f3cc47196ecab68aee5d0f90834e00574d5",
        # Stages data: Docker's official image, from AWS' mirror. The tag is from memory.
        "python": "public.ecr.aws/docker/library/python:3.13.7-slim-bookworm",
        # Serves models that generate text, on GPUs. PyPI has 0.33.0; this tag is the newest in use in public projects.
        "vllm": "docker.io/vllm/vllm-openai:v0.30.0",
        # Ends the instances that the idle guard names. The tag is in use in public projects.
        "aws-cli": "public.ecr.aws/aws-cli/aws-cli:2.36.44",
    }
)
"""Container images that are run directly, by tag."""

CLUSTER_AUTOSCALER: Mapping[str, str] = MappingProxyType(
    # Charts 9.51.0 and 9.59.0 have the first two; of the third only the source's tag was seen.
    {"1.34": "1.34.0", "1.35": "1.35.0", "1.36": "1.36.0"}
)
"""Cluster Autoscaler by Kubernetes version, because it simulates that version's scheduler."""
GRAFANA_AMP_PLUGIN = "grafana-amazonprometheus-datasource@3.3.5"
"""Grafana's data source for Amazon Managed Prometheus, as Grafana takes it at its start (grafana.com's catalogue, 2026;
3.0 needs Grafana 12.2.5, and the chart has 13.2)."""

TRAINING_OPERATOR = "v1.9.3"
"""Tag of Kubeflow's training operator, for its kustomization: the last line with PyTorchJob, and without a chart."""

TRAINING_OPERATOR_COMMIT = "c77ee3ff4d21aa8e5027580d83361c1a426ee789"
"""Commit of that tag in kubeflow/trainer: a tag can be moved."""

AMI_RELEASES: Mapping[str, str] = MappingProxyType(
    {
        # Public node groups ran these in October 2026, of 1.35 one with GPUs, too: every AMI of a day is made together.
        # The Neuron driver is the newest of that day: images of SDK 2.30 need one above 2.26.
        "1.34": "1.34.11-20260930",
        "1.35": "1.35.8-20260930",
        "1.36": "1.36.4-20260930",
    }
)
"""AMI release of managed nodes, by Kubernetes version; the same for all AL2023 AMI types."""
