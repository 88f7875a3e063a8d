"""Stand-ins for the workloads of EKS add-ons: objects with the real names, places and requests, and nothing in them.

AWS installs add-ons behind its own API, with images that only it serves. Here their DaemonSets and Deployments are made
from their records (:mod:`trainium_eks.model.catalogue.addon_records`), so that nodes have the same pods and as much
room for jobs as on EKS. Each pod has one container, which requests the sum of the real containers' requests. Images are
named and never pulled.

Left out on purpose: metrics-server's APIService (without a server behind it, every discovery would fail) and CoreDNS'
Service (no name is resolved here).
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.nodes.node_pools import SIMULATED
from trainium_eks.local.objects.apply import ObjectReference, Objects
from trainium_eks.local.objects.awaits import readiness
from trainium_eks.local.patience import Patience
from trainium_eks.model.catalogue.addon_records import AddonWorkload, Pod
from trainium_eks.model.catalogue.chart_workloads import SYSTEM_NAMESPACE
from trainium_eks.model.catalogue.instances import CATALOGUE, DEVICE_RESOURCES, INSTANCE_TYPE_LABEL
from trainium_eks.model.catalogue.regions import eks_image_registry
from trainium_eks.model.config import addons

TIMEOUT_SECONDS = 1200.0
"""The AWS provider's time limit for an add-on."""

REPLICAS = 2
"""Replicas of every Deployment among the add-ons, as in EKS."""

DAEMON_SETS = "/apis/apps/v1/daemonsets"
UNMOVED_SECONDS = 15.0
"""Limit without any progress, after which the wait ends: pods that nothing can start must not hold up an ``up``."""

_PUBLIC = "public.ecr.aws"


class AddonWorkloads:
    """The stand-ins of all add-ons. Safe to use from many threads, each with another add-on."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def apply(self, addon: str, version: str, region: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> ApplyResult:
        """Make the workloads of an add-on, and wait until they run.

        An unknown add-on is reported as not installed; an empty version is the newest.
        """
        made = manifests(addon, version, region)
        if not made:
            return ApplyResult(Change.CREATED, not_installed=f"add-on {addon}: it is not known what EKS runs for it")
        try:
            changes = {self._objects.apply(each, timeout_seconds=timeout_seconds).change for each in made}
        except ClusterError as error:
            raise LocalCloudError(f"add-on {addon}: {error}") from error
        return ApplyResult(changes.pop() if len(changes) == 1 else Change.UPDATED)

    def delete(self, addon: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Delete the workloads of an add-on; no error when they do not exist."""
        for each in reversed(manifests(addon, "", "")):
            metadata = each["metadata"]
            reference = ObjectReference(
                each["apiVersion"], each["kind"], metadata.get("namespace", ""), metadata["name"]
            )
            self._objects.delete(reference, timeout_seconds=timeout_seconds)


def await_daemon_sets(get: Callable[[str], Mapping[str, Any]], progress: Callable[[str], None]) -> list[str]:
    """Wait until the pods of all DaemonSets run, or there is no more progress: the last wait of an ``up``.

    As on EKS, a node group is done when its nodes are Ready, and DaemonSets' pods follow. A command right after an
    ``up``, such as ``trn doctor``, should find the cluster complete. Return a line for each that does not run.
    """
    patience = Patience(UNMOVED_SECONDS, progress)
    before: list[str] = []
    while waiting := _unready(get(DAEMON_SETS)["items"]):
        if waiting != before:
            before = waiting
            patience.renew()
        if not patience.wait(f"Waiting for the agents of the nodes: {waiting[0]}"):
            break
    return [f"still not running: {each}" for each in waiting]


def _unready(daemon_sets: list[Mapping[str, Any]]) -> list[str]:
    # A list's items do not say their kind.
    states = [
        (each["metadata"], readiness({"apiVersion": "apps/v1", "kind": "DaemonSet", **each})) for each in daemon_sets
    ]
    return [f"DaemonSet {of['namespace']}/{of['name']}: {state.reason}" for of, state in states if not state.ready]


def manifests(addon: str, version: str, region: str) -> list[dict[str, Any]]:
    """Return the stand-ins for an add-on, in the order to make them; empty for an unknown add-on."""
    record = addons.addon_record(addon)
    accounts = sorted({each.pod.service_account for each in record.workloads} - {"default"})
    made = [_object("v1", "ServiceAccount", name) for name in accounts]
    if driver := record.driver:
        spec = dict(driver.spec)
        made.append({**_object("storage.k8s.io/v1", "CSIDriver", driver.name, namespace=""), "spec": spec})
    return made + [_workload(each, version, region) for each in record.workloads]


def _object(api_version: str, kind: str, name: str, namespace: str = SYSTEM_NAMESPACE) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "annotations": {SIMULATED: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _workload(workload: AddonWorkload, version: str, region: str) -> dict[str, Any]:
    """Return a DaemonSet or Deployment. Pods of the same Deployment prefer different nodes."""
    pod = workload.pod
    labels = dict(pod.labels)
    spec: dict[str, Any] = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": {SIMULATED: "true"}},
            "spec": _pod_spec(workload, version, region),
        },
    }
    if workload.kind == "Deployment":
        spec["replicas"] = REPLICAS
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        affinity = spec["template"]["spec"].setdefault("affinity", {})
        affinity["podAntiAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
        }
    else:
        spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    made = _object("apps/v1", workload.kind, workload.name)
    made["metadata"]["labels"] = labels
    return {**made, "spec": spec}


def _pod_spec(workload: AddonWorkload, version: str, region: str) -> dict[str, Any]:
    pod = workload.pod
    container: dict[str, Any] = {"name": pod.container, "image": _image(pod, version, region)}
    asked = {
        "cpu": f"{pod.millicpu}m" if pod.millicpu else "",
        "memory": f"{pod.memory_mib}Mi" if pod.memory_mib else "",
    }
    if requests := {resource: amount for resource, amount in asked.items() if amount}:
        container["resources"] = {"requests": requests}
    spec: dict[str, Any] = {
        "serviceAccountName": pod.service_account,
        # No program uses the token, and its volume makes a pod cost 64 ms of processor time instead of 38 (measured on
        # 300 nodes, all processes together). There are six of these pods on each node.
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical" if workload.kind == "DaemonSet" else "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
    }
    if pod.host_network:
        spec["hostNetwork"] = True
    if pod.tolerates == "everything":
        spec["tolerations"] = [{"operator": "Exists"}]
    elif pod.tolerates == "critical":
        spec["tolerations"] = [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ]
    if pod.tolerates == "accelerator":
        key = DEVICE_RESOURCES[workload.nodes]
        spec["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
        types = sorted(name for name, instance in CATALOGUE.items() if instance.family == workload.nodes)
        terms = [{"matchExpressions": [{"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": types}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return spec


def _image(pod: Pod, version: str, region: str) -> str:
    """Return the name of the add-on's image. Public images have the version without EKS' build."""
    repository = pod.image.format(registry=eks_image_registry(region))
    tag = version or "newest"
    return f"{repository}:{tag.partition('-')[0] if repository.startswith(_PUBLIC) else tag}"
