"""Every series that dashboards, recording rules and alerts may use, by the names that its exporter gives it.

A test compares all queries with this catalogue, so that none asks for a series that no exporter serves. ``labels`` are
the labels in Prometheus: the exporter's own, and labels that :mod:`trainium_eks.observe.series.scraping` adds.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainium_eks.observe.series.cluster_metrics import CLUSTER_METRICS
from trainium_eks.observe.series.device_metrics import DEVICE_METRICS
from trainium_eks.observe.series.exporters import Metric

METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in (*DEVICE_METRICS, *CLUSTER_METRICS)}
)
"""Metrics by name."""
