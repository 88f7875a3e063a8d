"""Exporters, and the facts about a series: see :mod:`trainium_eks.observe.series.metrics`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Exporter:
    """A program that serves series."""

    name: str
    """Label ``job`` of its series."""
    source: str
    """Source of its names and labels."""
    scraped: tuple[str, ...] = ()
    """Labels that scraping adds to each of its series."""


Kind = Literal["gauge", "counter"]
Unit = Literal["", "1", "bytes", "MiB", "seconds", "ms", "timestamp", "%", "°C", "W", "core", "milli"]
"""Unit of a value: nothing ("" for values that are always 1), things ("1"), or a unit; ``timestamp`` is Unix seconds,
and ``milli`` a thousandth of the unit of the label ``resource``."""


@dataclass(frozen=True)
class Metric:
    """A series."""

    name: str
    exporter: Exporter
    kind: Kind
    unit: Unit
    own_labels: tuple[str, ...]
    """Labels that the exporter gives it."""
    about: str
    """Meaning of a value, where the name does not say it."""

    @property
    def labels(self) -> frozenset[str]:
        """Return the labels in Prometheus, but for ``job`` and ``instance``, which each series has."""
        return frozenset({*self.own_labels, *self.exporter.scraped})


NEURON = Exporter(
    "neuron-monitor",
    "neuron-monitor-prometheus.py of aws-neuronx-tools, and its guide in the AWS Neuron documentation",
    ("node",),
)
DCGM = Exporter(
    "dcgm-exporter",
    "NVIDIA/dcgm-exporter: etc/default-counters.csv, internal/pkg/rendermetrics",
    ("node",),
)
NODE = Exporter("node-exporter", "prometheus/node_exporter: README and collector/", ("node",))
EFA = Exporter(
    "efa-exporter",
    "/sys/class/infiniband/*/ports/*/hw_counters (EFA's driver), by the names of awslabs' EFA node exporter "
    "(awsome-distributed-ai, 4.validation_and_observability/3.efa-node-exporter)",
    ("node",),
)
STATE = Exporter("kube-state-metrics", "kubernetes/kube-state-metrics: docs/metrics")
KUBELET = Exporter("kubelet", "kubernetes/kubernetes: pkg/kubelet/metrics/collectors/volume_stats.go", ("node",))
API_SERVER = Exporter("apiserver", "kubernetes/kubernetes: staging/src/k8s.io/apiserver/pkg/admission/metrics")
VOLCANO = Exporter("volcano-scheduler", "volcano-sh/volcano v1.15.0: pkg/scheduler/metrics")
VOLCANO_CONTROLLERS = Exporter("volcano-controller", "volcano-sh/volcano v1.15.0: pkg/controllers/metrics, job/state")
FSX = Exporter(
    "fsx-exporter",
    "FSx for Lustre User Guide, metrics and dimensions (AWS/FSx), by the names that "
    "prometheus-community/yet-another-cloudwatch-exporter makes of them (pkg/promutil)",
    ("file_system",),
)
TRAINING = Exporter(
    "training",
    "trainium_workloads.training: global rank 0 serves them on port 9600",
    ("namespace", "pod", "job_name", "queue", "node"),
)
PROMETHEUS = Exporter("prometheus", "prometheus/prometheus: documentation of jobs and instances")
