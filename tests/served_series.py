"""The series that exporters serve: those of their pages (tests/exporter_pages), and a few that no page has."""

import re

from exporters import FOLDER, SAMPLE
from trainium_workloads import scraped

from trainium_eks.observe import rules
from trainium_eks.observe.series.gangs import resource_label
from trainium_eks.observe.series.scraping import NODE_LABELS, POD_LABELS

_ON_NO_PAGE = """
kube-state-metrics trn_gang_capacity_block_ends_timestamp_seconds namespace podgroup job_name queue
kubelet kubelet_certificate_manager_server_ttl_seconds
apiserver apiserver_admission_webhook_fail_open_count name type
prometheus up node namespace pod job_name queue
prometheus prometheus_remote_storage_samples_failed_total remote_name url
prometheus prometheus_remote_storage_queue_highest_timestamp_seconds remote_name url
prometheus prometheus_remote_storage_queue_highest_sent_timestamp_seconds remote_name url
prometheus prometheus_rule_evaluation_failures_total rule_group
"""
"""Sources: observe/series/gangs.py; kubernetes/kubernetes, pkg/kubelet and staging/src/k8s.io/apiserver/pkg/admission;
prometheus/prometheus, the documentation of jobs and instances."""

_BY_SCRAPING = {
    **dict.fromkeys(("neuron-monitor", "dcgm-exporter", "efa-exporter", "node-exporter", "kubelet"), ("node",)),
    "fsx-exporter": ("file_system",),
    "training": ("namespace", "pod", "job_name", "queue", "node", "backend", "world_size", "examples"),
}
_SHOWN = {"kube_node_labels": NODE_LABELS, "kube_pod_labels": POD_LABELS}


def _read():
    """Yield each series with its exporter and its labels, as often as a page has it."""
    for page in sorted(FOLDER.glob("*.prom")):
        for sample in filter(None, map(SAMPLE.fullmatch, page.read_text().splitlines())):
            yield sample["name"], page.stem, re.findall(r'(\w+)="', sample["labels"] or "")
    for exporter, name, *labels in map(str.split, _ON_NO_PAGE.strip().splitlines()):
        yield name, exporter, labels
    yield from ((series.name, "training", []) for series in scraped.SERIES)


EXPORTERS: dict[str, str] = {}
"""Series to its exporter, the label ``job`` of its target."""
LABELS: dict[str, set[str]] = {}
"""Series to its labels in Prometheus: its exporter's own, and those that scraping adds."""
for _name, _exporter, _labels in _read():
    EXPORTERS[_name] = _exporter
    LABELS.setdefault(_name, {"job", "instance", *_BY_SCRAPING.get(_exporter, ())}).update(
        _labels, (f"label_{resource_label(each)}" for each in _SHOWN.get(_name, ()))
    )


def unknown(server, query):
    """Series and labels of a query that are neither served nor recorded; the labels of recorded series are not looked
    at."""
    found = []
    for name, labels in server.selectors(query):
        if name in LABELS:
            found += [f"{name} has no label {label}" for label in labels if label not in LABELS[name]]
        elif name not in rules.meanings():
            found.append(f"{name}: no series of tests/served_series.py, and not recorded")
    return found
