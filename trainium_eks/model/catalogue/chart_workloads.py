"""Workloads of each chart in a cluster: names, nodes, and a remedy for each that does not run.

``trn doctor`` checks a cluster against ``workloads.yaml``, which has those of EKS add-ons, too (addon_records.py).
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainium_eks.model.config import namespaces
from trainium_eks.model.validation.parsing import read_table

WorkloadKind = Literal["DaemonSet", "Deployment", "StatefulSet"]
Where = Literal["all", "neuron", "nvidia", "efa", "none"]

SYSTEM_NAMESPACE = "kube-system"
"""Namespace of device plugins: it exists in every cluster, and Pod Security lets node agents run there."""

ETCD_CHART = "torchx-etcd"
"""Our own chart of the etcd for a rendezvous."""

EBS_DRIVER = "ebs.csi.aws.com"
"""Name of the EBS CSI driver, in storage classes and on nodes; Lustre's is ``lustre.DRIVER``."""


@dataclass(frozen=True)
class Workload:
    """One DaemonSet, Deployment or StatefulSet."""

    kind: WorkloadKind
    """Of ``apps/v1``."""
    namespace: str
    name: str
    remedy: str
    """Remedy when it is not running, in a line."""
    nodes: Where = "none"
    """Nodes that run one pod each: ``all``, nodes with Neuron devices (``neuron``), with NVIDIA GPUs (``nvidia``), or
    with EFA interfaces (``efa``). ``none`` for a workload that is not tied to nodes."""


@functools.cache
def table() -> Mapping[str, Mapping[str, list[dict[str, Any]]]]:
    """Return ``workloads.yaml``, which only checks and the local cloud need."""
    found: dict[str, Any] = read_table(Path(__file__).with_name("workloads.yaml"))
    return found


def charts() -> Mapping[str, tuple[Workload, ...]]:
    """Return the workloads of each chart or kustomization."""
    return {name: tuple(Workload(**each) for each in rows) for name, rows in table()["charts"].items()}


HYPERNODES = Workload(
    "Deployment",
    namespaces.VOLCANO,
    "hypernodes",
    "jobs with a network topology do not go to nodes that came since: check its log",
)
"""The controller that keeps HyperNodes. No chart makes it."""
