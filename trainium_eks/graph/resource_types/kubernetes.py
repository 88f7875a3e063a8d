"""Kubernetes: the kinds that this library uses, and one row for all others.

What replaces an object is what pulumi-kubernetes replaces (its ``provider/diff.go``): every kind by its name and
namespace, some by more.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.recording.backend import TIME, Answer, Call, SimulationError
from trainium_eks.graph.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    COUNTED,
    FREE,
    NO_DATA,
    ONE_CALL,
    BilledElsewhere,
    Free,
    Holds,
    Priced,
    ResourceType,
    Shown,
    Worth,
    nothing_more,
)
from trainium_eks.model.bill import Line
from trainium_eks.model.instances import Catalogue

PREFIX = "kubernetes:"

_NAME = ("metadata.namespace", "metadata.name")

ITS_NODES = BilledElsewhere("nodes")
"""Pods cost what the nodes cost that they run on."""


# --- simulated answers --------------------------------------------------------------------------------------------


def _namespaced(call: Call) -> Answer:
    return _object(call, "default")


def _cluster_wide(call: Call) -> Answer:
    return _object(call, "")


def _any_kind(call: Call) -> Answer:
    """A kind without a row. Whether a custom kind is namespaced is known to the cluster alone: its namespace is what
    the program says."""
    group_version, _, kind = call.registration.type.removeprefix(PREFIX).rpartition(":")
    group = group_version.partition("/")[0]
    kind = kind.removesuffix("Patch")
    return _object(call, "default" if group in BUILT_IN_GROUPS and kind not in CLUSTER_WIDE else "")


def _object(call: Call, namespace: str) -> Answer:
    """An object's id and metadata, in ``namespace`` unless its program says another; in none when it is empty."""
    inputs = call.inputs
    missing = [field for field in ("apiVersion", "kind") if not inputs.get(field)]
    if missing:
        raise SimulationError(f"{call.registration.type} has no {' and no '.join(missing)}")
    metadata = dict(call.mapping("metadata"))
    prefix = metadata.get("generateName") or f"{call.registration.name}-"
    metadata.setdefault("name", f"{prefix}sim-{call.digest}")
    if namespace:
        metadata.setdefault("namespace", namespace)
    metadata["uid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, call.registration.urn))
    metadata["creationTimestamp"] = TIME
    within = metadata.get("namespace")
    identity = f"{within}/{metadata['name']}" if within else str(metadata["name"])
    return identity, {"metadata": metadata}


BUILT_IN_GROUPS = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "auditregistration.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "core",
        "discovery.k8s.io",
        "events.k8s.io",
        "extensions",
        "flowcontrol.apiserver.k8s.io",
        "lifecycle.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "settings.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    }
)
"""API groups whose kinds Kubernetes itself brings."""

CLUSTER_WIDE = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "DeviceClass",
        "FlowSchema",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
    }
)
"""Built-in kinds that live outside namespaces (``kubectl api-resources --namespaced=false``)."""


# --- what a plan says of them -------------------------------------------------------------------------------------


def _named(_graph: Graph, resource: Resource) -> Iterable[str]:
    yield str((resource.inputs.get("metadata") or {}).get("name", ""))


def _size(_graph: Graph, volume: Resource) -> Iterable[str]:
    yield str((volume.inputs.get("spec", {}).get("capacity") or {}).get("storage", ""))


def _amounts(_graph: Graph, queue: Resource) -> Iterable[str]:
    spec: Mapping[str, Any] = queue.inputs.get("spec") or {}
    for field in ("capability", "guarantee"):
        amounts = spec.get(field) or {}
        if field == "guarantee" and isinstance(amounts, Mapping):
            amounts = amounts.get("resource") or {}
        shown = ", ".join(f"{amount} {str(name).rsplit('/', 1)[-1]}" for name, amount in sorted(amounts.items()))
        yield f"{field} {shown}" if shown else ""


def _balancer(_graph: Graph, service: Resource, _catalogue: Catalogue) -> Iterator[Line]:
    """A service of type LoadBalancer makes one; its price depends on its kind and traffic, so none is given."""
    if (service.inputs.get("spec") or {}).get("type") == "LoadBalancer":
        yield Line("load balancer", 1, 1, None)


# --- the rows -----------------------------------------------------------------------------------------------------


def _row(
    kind: str,
    *,
    namespaced: bool,
    replaced_by: tuple[str, ...],
    price: Priced | BilledElsewhere | Free,
    shown: Shown | None,
    holds: Holds | None,
    seconds: float,
) -> ResourceType:
    """A kind. Its API server refuses no deletion: finalizers make it wait, which no plan foresees."""
    return ResourceType(
        token=f"{PREFIX}{kind}",
        simulated=_namespaced if namespaced else _cluster_wide,
        named_by=_NAME,
        tagged=False,
        replaced_by=(*_NAME, *replaced_by),
        seconds=seconds,
        price=price,
        shown=shown,
        holds=holds,
        refuses_deletion=ALWAYS_DELETABLE,
        local="object",
    )


def _setting(kind: str, *replaced_by: str, namespaced: bool) -> ResourceType:
    """A kind that runs nothing, stores nothing, and that a plan only counts."""
    return _row(
        kind,
        namespaced=namespaced,
        replaced_by=replaced_by,
        price=FREE,
        shown=COUNTED,
        holds=NO_DATA,
        seconds=ONE_CALL,
    )


def cluster_wide_kind(
    kind: str, *, price: Priced | BilledElsewhere | Free, shown: Shown | None, holds: Holds | None
) -> ResourceType:
    """A kind of a chart's, outside namespaces, that its API server changes in place."""
    return _row(kind, namespaced=False, replaced_by=(), price=price, shown=shown, holds=holds, seconds=ONE_CALL)


def _workload(kind: str, *replaced_by: str, seconds: float) -> ResourceType:
    """A kind that runs pods."""
    return _row(
        kind,
        namespaced=True,
        replaced_by=replaced_by,
        price=ITS_NODES,
        shown=COUNTED,
        holds=NO_DATA,
        seconds=seconds,
    )


NAMESPACE = _row(
    "core/v1:Namespace",
    namespaced=False,
    replaced_by=(),
    price=FREE,
    shown=Shown(_named),
    holds=NO_DATA,
    seconds=ONE_CALL,
)

_VOLUME_SOURCES = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)

PERSISTENT_VOLUME = _row(
    "core/v1:PersistentVolume",
    namespaced=False,
    replaced_by=tuple(f"spec.{source}" for source in _VOLUME_SOURCES),
    price=BilledElsewhere("file systems and volumes"),
    shown=Shown(_size),
    holds=Holds("its tie to the files", Worth.TIE),
    seconds=ONE_CALL,
)

PERSISTENT_VOLUME_CLAIM = _row(
    "core/v1:PersistentVolumeClaim",
    namespaced=True,
    # Not `spec.resources`: a claim grows in place.
    replaced_by=("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    price=BilledElsewhere("volumes that workloads claim"),
    shown=Shown(_named),
    holds=Holds("its tie to the files", Worth.TIE),
    seconds=ONE_CALL,
)

STORAGE_CLASS = _row(
    "storage.k8s.io/v1:StorageClass",
    namespaced=False,
    replaced_by=("parameters", "provisioner"),
    price=FREE,
    shown=Shown(nothing_more),
    holds=NO_DATA,
    seconds=ONE_CALL,
)

SERVICE = _row(
    "core/v1:Service",
    namespaced=True,
    replaced_by=("spec.clusterIP",),
    price=_balancer,
    shown=COUNTED,
    holds=NO_DATA,
    seconds=ONE_CALL,
)

QUEUE = _row(
    "scheduling.volcano.sh/v1beta1:Queue",
    namespaced=False,
    replaced_by=(),
    price=FREE,
    shown=Shown(_amounts),
    holds=NO_DATA,
    seconds=ONE_CALL,
)

JOB = _workload(
    "batch/v1:Job",
    "spec.completions",
    "spec.parallelism",
    "spec.selector",
    "spec.template",
    seconds=30,
)

OTHER_KIND = ResourceType(
    token=f"{PREFIX}*",
    simulated=_any_kind,
    named_by=_NAME,
    tagged=False,
    replaced_by=_NAME,
    seconds=ONE_CALL,
    price=ITS_NODES,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="object",
)
"""Every kind without a row of its own: custom kinds, which any chart may bring. An API server changes them in place or
refuses to, and pulumi-kubernetes replaces them by name and namespace alone."""

TYPES = (
    NAMESPACE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    SERVICE,
    QUEUE,
    JOB,
    _workload("batch/v1:CronJob", seconds=ONE_CALL),
    _workload("apps/v1:DaemonSet", "spec.selector", seconds=ONE_CALL),
    _workload("apps/v1:Deployment", "spec.selector", seconds=ONE_CALL),
    _workload(
        "apps/v1:StatefulSet",
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
        seconds=ONE_CALL,
    ),
    _setting("admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy", namespaced=False),
    _setting("admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding", namespaced=False),
    _setting("core/v1:ConfigMap", "data", "binaryData", namespaced=True),
    _setting("core/v1:LimitRange", namespaced=True),
    _setting("core/v1:ResourceQuota", "spec.scopes", namespaced=True),
    _setting("core/v1:Secret", "type", "stringData", "data", namespaced=True),
    _setting("core/v1:ServiceAccount", namespaced=True),
    _setting("monitoring.coreos.com/v1:PodMonitor", namespaced=True),
    _setting("monitoring.coreos.com/v1:PrometheusRule", namespaced=True),
    _setting("monitoring.coreos.com/v1:ServiceMonitor", namespaced=True),
    _setting("networking.k8s.io/v1:NetworkPolicy", namespaced=True),
    _setting("policy/v1:PodDisruptionBudget", namespaced=True),
    _setting("rbac.authorization.k8s.io/v1:ClusterRole", namespaced=False),
    _setting("rbac.authorization.k8s.io/v1:ClusterRoleBinding", "roleRef", namespaced=False),
    _setting("rbac.authorization.k8s.io/v1:Role", namespaced=True),
    _setting("rbac.authorization.k8s.io/v1:RoleBinding", "roleRef", namespaced=True),
    # The provider does not know that its value cannot change: the API server refuses an update of it.
    _setting("scheduling.k8s.io/v1:PriorityClass", namespaced=False),
)
