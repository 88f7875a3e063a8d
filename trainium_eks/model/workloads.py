"""What runs in a cluster on behalf of each EKS add-on and each chart: names, where, and what to do when it does not.

The one list that the local cloud makes its stand-ins from and that ``trn verify`` checks a cluster against. Names are
those of EKS' add-ons (their charts: amazon-vpc-cni-k8s, aws-ebs-csi-driver 1.46, aws-fsx-csi-driver 1.10,
eks-node-monitoring-agent 1.7, eks-pod-identity-agent; and what a public 1.36 cluster listed), and of the charts as they
render with this project's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from trainium_eks.model import namespaces

Kind = Literal["DaemonSet", "Deployment", "StatefulSet"]
Where = Literal["all", "neuron", "nvidia", "efa", "none"]

SYSTEM_NAMESPACE = "kube-system"

EBS_DRIVER = "ebs.csi.aws.com"
FSX_DRIVER = "fsx.csi.aws.com"
CSI_DRIVERS: Mapping[str, str] = MappingProxyType({"aws-ebs-csi-driver": EBS_DRIVER, "aws-fsx-csi-driver": FSX_DRIVER})
"""Add-on to the storage driver that its DaemonSet registers on every node."""


@dataclass(frozen=True)
class Workload:
    """One DaemonSet, Deployment or StatefulSet."""

    kind: Kind
    """Of ``apps/v1``."""
    namespace: str
    name: str
    nodes: Where
    """Which nodes carry a pod of it each: ``all``, those with Neuron devices (``neuron``), with NVIDIA GPUs
    (``nvidia``), or with EFA interfaces (``efa``). ``none`` where it does not go by nodes."""
    remedy: str
    """What to do when it is not running, in a line."""

    def expected_on(self, family: str, *, has_efa: bool) -> bool:
        """Whether a node carries a pod of it.

        Args:
            family: the node type's, ``neuron``, ``nvidia`` or ``cpu``.
            has_efa: whether the node has EFA interfaces.
        """
        return self.nodes == "all" or self.nodes == family or (self.nodes == "efa" and has_efa)


def _addon(kind: Kind, name: str, nodes: Where, remedy: str) -> Workload:
    return Workload(kind, SYSTEM_NAMESPACE, name, nodes, remedy)


ADDONS: Mapping[str, tuple[Workload, ...]] = MappingProxyType(
    {
        "vpc-cni": (
            _addon(
                "DaemonSet",
                "aws-node",
                "all",
                "nodes stay NotReady without it: check its Pod Identity association and that subnets have free "
                "addresses",
            ),
        ),
        "kube-proxy": (
            _addon(
                "DaemonSet",
                "kube-proxy",
                "all",
                "check that its version is not newer than the nodes' Kubernetes (`aws eks describe-addon`)",
            ),
        ),
        "eks-pod-identity-agent": (
            _addon(
                "DaemonSet",
                "eks-pod-identity-agent",
                "all",
                "without it no pod gets its role: check the node role's eks-auth:AssumeRoleForPodIdentity",
            ),
        ),
        "coredns": (
            _addon(
                "Deployment",
                "coredns",
                "none",
                "needs a Ready node without an accelerator's taint: check the system node group",
            ),
        ),
        "aws-ebs-csi-driver": (
            _addon(
                "Deployment",
                "ebs-csi-controller",
                "none",
                "check the system nodes, and the Pod Identity association of ebs-csi-controller-sa",
            ),
            _addon(
                "DaemonSet",
                "ebs-csi-node",
                "all",
                "pods with EBS volumes cannot start on that node: `kubectl -n kube-system describe pod -l "
                "app=ebs-csi-node`",
            ),
        ),
        "aws-fsx-csi-driver": (
            _addon(
                "Deployment",
                "fsx-csi-controller",
                "none",
                "check the system nodes, and the Pod Identity association of fsx-csi-controller-sa",
            ),
            _addon(
                "DaemonSet",
                "fsx-csi-node",
                "all",
                "pods with the shared file system cannot start on that node: `kubectl -n kube-system describe pod -l "
                "app=fsx-csi-node`",
            ),
        ),
        "metrics-server": (
            _addon(
                "Deployment",
                "metrics-server",
                "none",
                "`kubectl top` and autoscaling by load fail without it: check the system nodes",
            ),
        ),
        "eks-node-monitoring-agent": (
            _addon(
                "DaemonSet",
                "eks-node-monitoring-agent",
                "all",
                "EKS repairs no faulty accelerator node without it: `aws eks describe-addon` says why it is degraded",
            ),
            _addon(
                "DaemonSet",
                "dcgm-server",
                "nvidia",
                "without it the node monitoring agent calls the node's GPUs broken: the add-on's configuration must "
                "tolerate the nodes' taints (dcgmAgent.tolerations)",
            ),
        ),
    }
)
"""EKS add-on (the keys of ``versions.ADDONS``) to what it runs."""

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
                "metrics of that node are missing, jobs run on: check the pod's log",
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
                "metrics of that node's GPUs are missing, jobs run on: check the pod's log",
            ),
        ),
        "volcano": (
            Workload(
                "Deployment",
                namespaces.VOLCANO,
                "volcano-scheduler",
                "none",
                "no job of a queue starts: check its log for an error in the scheduler's configuration",
            ),
            Workload(
                "Deployment",
                namespaces.VOLCANO,
                "volcano-controllers",
                "none",
                "jobs get no pods and queues no state: check its log",
            ),
            Workload(
                "Deployment",
                namespaces.VOLCANO,
                "volcano-admission",
                "none",
                "jobs and queues are refused while it is down: check that the release's certificate job has succeeded",
            ),
        ),
        "torchx-etcd": (
            Workload(
                "StatefulSet",
                namespaces.ETCD,
                "etcd-server",
                "none",
                "elastic jobs find no rendezvous: check its pod; a restart loses what it knew, so restart the jobs too",
            ),
        ),
        "training-operator": (
            Workload(
                "Deployment",
                namespaces.TRAINING_OPERATOR,
                "training-operator",
                "none",
                "PyTorchJobs get no pods: check its log; with gangs on it ends at once while Volcano is not installed",
            ),
        ),
    }
)
"""Chart, or kustomization, to what it runs."""
