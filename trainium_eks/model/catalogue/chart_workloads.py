"""Workloads of each chart in a cluster: names, nodes, and a remedy for each that does not run.

``trn doctor`` checks a cluster against this list and the workloads of EKS add-ons (addon_records.py). Names are the
charts' names, rendered with this project's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from trainium_eks.model.config import namespaces

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
    nodes: Where
    """Nodes that run one pod each: ``all``, nodes with Neuron devices (``neuron``), with NVIDIA GPUs (``nvidia``), or
    with EFA interfaces (``efa``). ``none`` for a workload that is not tied to nodes."""
    remedy: str
    """Remedy when it is not running, in a line."""


def _deployment(namespace: str, name: str, remedy: str) -> Workload:
    return Workload("Deployment", namespace, name, "none", remedy)


CHARTS: Mapping[str, tuple[Workload, ...]] = MappingProxyType(
    {
        "neuron-helm-chart": (
            Workload(
                "DaemonSet",
                SYSTEM_NAMESPACE,
                "neuron-device-plugin",
                "neuron",
                "no job gets Neuron devices on that node: check the plugin's log, and the node's driver with neuron-ls",
            ),
        ),
        "aws-efa-k8s-device-plugin": (
            Workload(
                "DaemonSet",
                SYSTEM_NAMESPACE,
                "aws-efa-k8s-device-plugin",
                "efa",
                "no job gets EFA interfaces on that node: check that its image comes from the region's registry",
            ),
        ),
        "neuron-monitor": (
            Workload(
                "DaemonSet",
                namespaces.NEURON_MONITOR,
                "neuron-monitor",
                "neuron",
                "metrics of that node are missing, jobs are not affected: check the pod's log",
            ),
        ),
        "nvidia-device-plugin": (
            Workload(
                "DaemonSet",
                SYSTEM_NAMESPACE,
                "nvidia-device-plugin",
                "nvidia",
                "no job gets GPUs on that node: check the plugin's log, and the node's driver with nvidia-smi",
            ),
        ),
        "dcgm-exporter": (
            Workload(
                "DaemonSet",
                namespaces.DCGM_EXPORTER,
                "dcgm-exporter",
                "nvidia",
                "metrics of that node's GPUs are missing, jobs are not affected: check the pod's log",
            ),
        ),
        "cluster-autoscaler": (
            _deployment(
                namespaces.CLUSTER_AUTOSCALER,
                "cluster-autoscaler",
                "no group grows or shrinks by itself: check its log for AccessDenied; trn scale works meanwhile",
            ),
        ),
        "karpenter": (
            _deployment(
                namespaces.KARPENTER,
                "karpenter",
                "no node starts for pods that wait: check its log for UnauthorizedOperation, and the NodePools",
            ),
        ),
        "karpenter-crd": (),
        "volcano": (
            _deployment(
                namespaces.VOLCANO,
                "volcano-scheduler",
                "no job of a queue starts: check its log for an error in the scheduler's configuration",
            ),
            _deployment(
                namespaces.VOLCANO,
                "volcano-controllers",
                "jobs get no pods and queues no state: check its log",
            ),
            _deployment(
                namespaces.VOLCANO,
                "volcano-admission",
                "jobs and queues are refused while it is down: check that the release's certificate job has succeeded",
            ),
        ),
        ETCD_CHART: (
            Workload(
                "StatefulSet",
                namespaces.ETCD,
                "etcd-server",
                "none",
                "elastic jobs find no rendezvous: check its pod; a restart loses its data, so restart the jobs too",
            ),
        ),
        "training-operator": (
            _deployment(
                namespaces.TRAINING_OPERATOR,
                "training-operator",
                "PyTorchJobs get no pods: check its log; with gangs on, it exits at once if Volcano is not installed",
            ),
        ),
        "kubeflow-trainer": (
            _deployment(
                namespaces.TRAINER,
                "kubeflow-trainer-controller-manager",
                "TrainJobs get no pods: check its log, and that of JobSet's controller",
            ),
        ),
        "kube-prometheus-stack": (
            Workload(
                "DaemonSet",
                namespaces.MONITORING,
                "kube-prometheus-stack-prometheus-node-exporter",
                "all",
                "metrics of that node are missing, jobs are not affected: describe its pod",
            ),
            _deployment(
                namespaces.MONITORING,
                "kube-prometheus-stack-operator",
                "changed monitors and rules are not taken up, and new ones are refused: check its log",
            ),
            _deployment(
                namespaces.MONITORING,
                "kube-prometheus-stack-kube-state-metrics",
                "dashboards and alerts know no nodes, pods and requests: check its log",
            ),
            Workload(
                "StatefulSet",
                namespaces.MONITORING,
                "prometheus-kube-prometheus-stack-prometheus",
                "none",
                "nothing is measured and no alert fires: describe its pod; its volume ties it to the zone of one node",
            ),
        ),
        # Grafana reads the dashboards; the chart runs nothing.
        "grafana-dashboards": (),
        "efa-exporter": (
            Workload(
                "DaemonSet",
                namespaces.MONITORING,
                "efa-exporter",
                "efa",
                "EFA counters of that node are missing, jobs are not affected: check the pod's log",
            ),
        ),
        "prometheus-yet-another-cloudwatch-exporter": (
            _deployment(
                namespaces.MONITORING,
                "fsx-exporter",
                "metrics of the file system are missing: check its log, and its Pod Identity association",
            ),
        ),
        "fluent-bit": (
            Workload(
                "DaemonSet",
                namespaces.LOG_SHIPPING,
                "fluent-bit",
                "all",
                "container logs of that node stay there: check its log, and its Pod Identity association",
            ),
        ),
    }
)
"""Chart, or kustomization, to its workloads."""

HYPERNODES = _deployment(
    namespaces.VOLCANO,
    "hypernodes",
    "jobs with a network topology do not go to nodes that came since: check its log",
)
"""The controller that keeps HyperNodes. No chart makes it."""
