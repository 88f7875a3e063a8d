"""Scraped targets, and the labels of each series.

Node agents (node-exporter, neuron-monitor, dcgm-exporter, EFA) carry ``node``, the node's name in Kubernetes, and
nothing of the agent's own pod: where an agent knows which pod uses a device, ``pod`` and ``namespace`` are that pod's.
Trainings carry ``namespace``, ``pod``, ``node``, ``job_name`` (as `trn jobs` has it) and ``queue``; series of the file
system carry ``file_system``, its id. ``job`` is the name of the entry here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trainium_eks.model import scraping as trainings
from trainium_eks.model.config import namespaces

API_VERSION = "monitoring.coreos.com/v1"

NODE_LABELS = (
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/instance-type",
    "topology.k8s.aws/zone-id",
    "topology.kubernetes.io/zone",
    "trainium-eks/pool",
)
"""Node labels that kube-state-metrics shows (``kube_node_labels``): which group, type and zone a node is of."""

POD_LABELS = (
    "volcano.sh/job-name",
    "volcano.sh/queue-name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
)
"""Pod labels that it shows (``kube_pod_labels``): the training that a pod is of."""

Relabelling = Mapping[str, Any]
"""One step, as the operator's kinds have it."""


def _from(label: str, target: str) -> Relabelling:
    """Return a step that copies a label of the service discovery to ``target``, where it is not empty."""
    return {"sourceLabels": [label], "regex": "(.+)", "targetLabel": target, "replacement": "$1"}


NODE: Relabelling = _from("__meta_kubernetes_pod_node_name", "node")
"""The node that a target's pod is on."""

_NOT_ITS_OWN: Relabelling = {"action": "labeldrop", "regex": "pod|namespace|container|endpoint"}
"""Labels of the exporter's own pod, which would stand in the way of the labels in its answer."""

_AGENT: tuple[Relabelling, ...] = (NODE, _NOT_ITS_OWN)

_JOB_NAMES = (
    "volcano_sh_job_name",
    "training_kubeflow_org_job_name",
    "jobset_sigs_k8s_io_jobset_name",
    "batch_kubernetes_io_job_name",
)
"""Labels of a training's pods, in relabelling's spelling. The first that a pod has counts: a JobSet's pods are a batch
Job's, too."""

_NUMBERS = (
    "volcano_sh_task_index",
    "training_kubeflow_org_replica_index",
    "batch_kubernetes_io_job_completion_index",
)
"""Labels with a pod's number, of which it has one. In TorchX's shape each task has one pod, with the number 0."""

_ONLY_RANK_0: Relabelling = {
    "action": "keep",
    "sourceLabels": [f"__meta_kubernetes_pod_label_{label}" for label in _NUMBERS],
    "separator": ";",
    "regex": "0?;0?;0?",
}
"""Rank 0 alone serves metrics. Where all nodes have one template its label is on every pod, and each of the others
would be a target that is down."""

_TRAINING: tuple[Relabelling, ...] = (
    _ONLY_RANK_0,
    NODE,
    *(_from(f"__meta_kubernetes_pod_label_{label}", "job_name") for label in reversed(_JOB_NAMES)),
    # Volcano's controller sets it on its own jobs' pods. A PyTorchJob's pod has its launcher's label.
    _from("__meta_kubernetes_pod_annotation_volcano_sh_queue_name", "queue"),
    _from("__meta_kubernetes_pod_label_volcano_sh_queue_name", "queue"),
)


_BOUNDS: Mapping[str, int | str] = {
    "bodySizeLimit": "1MB",
    "labelLimit": 32,
    "labelNameLengthLimit": 128,
    "labelValueLengthLimit": 1024,
    "sampleLimit": 64,
}
"""The most that one training may answer: its team writes the answer, and all teams share one Prometheus. A training of
ours has 10 series. An answer beyond a bound is dropped whole. No bound on the number of targets: Prometheus would then
drop those of all teams (Prometheus, ``scrape_config``)."""


@dataclass(frozen=True)
class Scrape:
    """Pods that Prometheus scrapes, by themselves (``PodMonitor``) or as endpoints of a service."""

    name: str
    """Label ``job`` of its series, and name of the object."""
    kind: Literal["PodMonitor", "ServiceMonitor"]
    namespace: str
    """Namespace of the pods; empty for every namespace."""
    selector: Mapping[str, str]
    port: str
    relabelings: tuple[Relabelling, ...] = ()
    metric_relabelings: tuple[Relabelling, ...] = ()
    bounds: Mapping[str, int | str] = field(default_factory=dict)
    """Bounds of an answer, by the names of the object's ``spec``; empty for no bounds."""

    def spec(self) -> dict[str, Any]:
        """Return the object's ``spec``."""
        named: Relabelling = {"targetLabel": "job", "replacement": self.name}
        endpoint: dict[str, Any] = {"port": self.port}
        endpoint["relabelings"] = [dict(each) for each in (named, *self.relabelings)]
        if self.metric_relabelings:
            endpoint["metricRelabelings"] = [dict(each) for each in self.metric_relabelings]
        where = {"matchNames": [self.namespace]} if self.namespace else {"any": True}
        return {
            "namespaceSelector": where,
            "selector": {"matchLabels": dict(self.selector)},
            **self.bounds,
            ("podMetricsEndpoints" if self.kind == "PodMonitor" else "endpoints"): [endpoint],
        }


NEURON_MONITOR = Scrape(
    "neuron-monitor",
    "PodMonitor",
    namespaces.NEURON_MONITOR,
    {"app.kubernetes.io/name": "neuron-monitor"},
    "metrics",
    _AGENT,
)
DCGM_EXPORTER = Scrape(
    "dcgm-exporter",
    "PodMonitor",
    namespaces.DCGM_EXPORTER,
    {"app.kubernetes.io/name": "dcgm-exporter"},
    "metrics",
    _AGENT,
)
EFA_EXPORTER = Scrape(
    "efa-exporter",
    "PodMonitor",
    namespaces.MONITORING,
    {"app.kubernetes.io/name": "efa-exporter"},
    "metrics",
    _AGENT,
)
# Volcano's pods declare no ports: only its services name them.
VOLCANO_SCHEDULER = Scrape(
    "volcano-scheduler", "ServiceMonitor", namespaces.VOLCANO, {"app": "volcano-scheduler"}, "metrics"
)
VOLCANO_CONTROLLER = Scrape(
    "volcano-controller", "ServiceMonitor", namespaces.VOLCANO, {"app": "volcano-controller"}, "metrics"
)
FSX_EXPORTER = Scrape(
    "fsx-exporter",
    "PodMonitor",
    namespaces.MONITORING,
    {"app.kubernetes.io/instance": "fsx-exporter"},
    "http",
    (_NOT_ITS_OWN,),
    (_from("dimension_FileSystemId", "file_system"),),
)
TRAININGS = Scrape(
    "training", "PodMonitor", "", {trainings.LABEL: "true"}, trainings.PORT_NAME, _TRAINING, bounds=_BOUNDS
)

SCRAPES: Sequence[Scrape] = (
    NEURON_MONITOR,
    DCGM_EXPORTER,
    EFA_EXPORTER,
    VOLCANO_SCHEDULER,
    VOLCANO_CONTROLLER,
    FSX_EXPORTER,
    TRAININGS,
)
"""Targets beside the ones of kube-prometheus-stack itself (node-exporter, kube-state-metrics, the kubelet with its
containers, the API server, CoreDNS)."""
