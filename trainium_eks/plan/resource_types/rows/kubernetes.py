"""Kubernetes: the kinds that this library uses, and one row for all others.

Changes replace an object as in pulumi-kubernetes (its ``provider/diff.go``): every kind by its name and namespace, some
by more.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import TIME, Answer, Call, SimulationError
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    COUNTED,
    FREE,
    NO_DATA,
    ONE_CALL,
    BilledElsewhere,
    Brief,
    Concern,
    Free,
    Holds,
    Priced,
    ResourceType,
    Shown,
    Worth,
    nothing_more,
)
from trainium_eks.plan.resource_types.rows import helm

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
    """Return the answer for a kind without a row. Only the cluster knows whether a custom kind is namespaced: its
    namespace is the program's."""
    group_version, _, kind = call.registration.type.removeprefix(PREFIX).rpartition(":")
    group = group_version.partition("/")[0]
    kind = kind.removesuffix("Patch")
    return _object(call, "default" if group in BUILT_IN_GROUPS and kind not in CLUSTER_WIDE else "")


def _object(call: Call, namespace: str) -> Answer:
    """Return an object's id and metadata, in ``namespace`` unless the program names another; in none when empty."""
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
"""API groups of Kubernetes' built-in kinds."""

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
    yield str(value_at(resource.inputs, "metadata.name") or "")


def _size(_graph: Graph, volume: Resource) -> Iterable[str]:
    yield str(value_at(volume.inputs, "spec.capacity.storage") or "")


def _amounts(_graph: Graph, queue: Resource) -> Iterable[str]:
    spec: Mapping[str, Any] = queue.inputs.get("spec") or {}
    for field in ("capability", "guarantee"):
        amounts = spec.get(field) or {}
        if field == "guarantee" and isinstance(amounts, Mapping):
            amounts = amounts.get("resource") or {}
        shown = ", ".join(f"{amount} {str(name).rsplit('/', 1)[-1]}" for name, amount in sorted(amounts.items()))
        yield f"{field} {shown}" if shown else ""


def _balancer(_graph: Graph, service: Resource, _catalogue: Catalogue) -> Iterator[Line]:
    """Yield a load balancer for a service of that type; its price depends on its kind and traffic, so it is unknown."""
    if value_at(service.inputs, "spec.type") == "LoadBalancer":
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
    understood: tuple[str | Concern, ...] = (),
    creation: Brief = None,
    deletion: Brief = None,
) -> ResourceType:
    """Return the row of a kind. Its API server refuses no deletion: finalizers make it wait, which no plan foresees."""
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
        understood=understood,
        creation=creation,
        deletion=deletion,
    )


def _setting(
    kind: str,
    *replaced_by: str,
    namespaced: bool,
    understood: tuple[str | Concern, ...] = (),
    creation: Brief = None,
    deletion: Brief = None,
) -> ResourceType:
    """Return the row of a kind that runs nothing, stores nothing, and that a plan only counts."""
    return _row(
        kind,
        namespaced=namespaced,
        replaced_by=replaced_by,
        price=FREE,
        shown=COUNTED,
        holds=NO_DATA,
        seconds=ONE_CALL,
        understood=understood,
        creation=creation,
        deletion=deletion,
    )


def cluster_wide_kind(
    kind: str,
    *,
    price: Priced | BilledElsewhere | Free,
    shown: Shown | None,
    holds: Holds | None,
    understood: tuple[str | Concern, ...] = (),
    creation: Brief = None,
) -> ResourceType:
    """Return the row of a chart's kind, outside namespaces, that its API server changes in place."""
    return _row(
        kind,
        namespaced=False,
        replaced_by=(),
        price=price,
        shown=shown,
        holds=holds,
        seconds=ONE_CALL,
        understood=understood,
        creation=creation,
    )


def _workload(kind: str, *replaced_by: str, seconds: float, understood: tuple[str | Concern, ...] = ()) -> ResourceType:
    """Return the row of a kind that runs pods."""
    return _row(
        kind,
        namespaced=True,
        replaced_by=replaced_by,
        price=ITS_NODES,
        shown=COUNTED,
        holds=NO_DATA,
        seconds=seconds,
        understood=understood,
        creation="something new runs in the cluster",
    )


_ENFORCED = "metadata.labels.pod-security.kubernetes.io"
_LEVELS = ("privileged", "baseline", "restricted")


def _lower(before: Any, after: Any) -> bool:
    """Return whether pods may do more; an unknown level, or none, enforces nothing."""
    old, new = (_LEVELS.index(each) if each in _LEVELS else 0 for each in (before, after))
    return new < old


NAMESPACE = _row(
    "core/v1:Namespace",
    namespaced=False,
    replaced_by=(),
    price=FREE,
    shown=Shown(_named),
    holds=NO_DATA,
    seconds=ONE_CALL,
    understood=(
        f"{_ENFORCED}/audit",
        f"{_ENFORCED}/warn",
        Concern(f"{_ENFORCED}/enforce", _lower, "pods may do more"),
    ),
    creation="",
    deletion="everything in it goes, what runs too",
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
    understood=(
        "spec.capacity",
        Concern(
            "spec.persistentVolumeReclaimPolicy",
            concerns.no_longer("Retain"),
            "the volume's data goes with its claim",
        ),
    ),
    creation="",
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
    understood=("spec.resources",),
    creation="",
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


def _more_sources(before: Any, after: Any) -> str:
    """Return the ranges that reach a service only after a change; no given range means every address."""
    return access.reached_from_more(before or ["0.0.0.0/0"], after or ["0.0.0.0/0"])


def _service_made(service: Resource) -> str:
    kind = (service.inputs.get("spec") or {}).get("type", "ClusterIP")
    return "" if kind == "ClusterIP" else "reached from outside the cluster"


SERVICE = _row(
    "core/v1:Service",
    namespaced=True,
    replaced_by=("spec.clusterIP",),
    price=_balancer,
    shown=COUNTED,
    holds=NO_DATA,
    seconds=ONE_CALL,
    understood=(Concern("spec.loadBalancerSourceRanges", _more_sources, "more addresses reach it"),),
    creation=_service_made,
)

_SHARES = ("spec.weight", "spec.deserved", "spec.reclaimable")


def _reclaims(graph: Graph, _queue: Resource) -> bool:
    """Return whether Volcano ends running pods of one queue for another."""
    return any("reclaim" in helm.scheduler_actions(each) for each in graph.of_type(helm.RELEASE.token))


QUEUE = _row(
    "scheduling.volcano.sh/v1beta1:Queue",
    namespaced=False,
    replaced_by=(),
    price=FREE,
    shown=Shown(_amounts),
    holds=NO_DATA,
    seconds=ONE_CALL,
    understood=(
        # Shares decide which waiting job is next, and with `reclaim` which running one ends.
        *(
            Concern(path, concerns.changed, "queues take from running jobs by other shares", of=_reclaims)
            for path in _SHARES
        ),
        *_SHARES,
        Concern("spec.guarantee", concerns.changed, "what is kept free for a team is another", new=True),
        Concern("spec.capability", concerns.grows, "may use more of the pool"),
        Concern("spec.capability", concerns.shrinks, "a job that needs more never starts"),
    ),
    creation="",
)


def _owners_changed(before: Any, after: Any) -> str:
    """Return the teams with another user id than their directories, by the arguments (``<namespace>=<user id>``) of
    the job that makes directories: it does not change the owner of existing ones."""
    old, new = _owners(before), _owners(after)
    moved = [f"{team}: {old[team]} → {user}" for team, user in new.items() if old.get(team, user) != user]
    way_out = "keep the number, or hand the files over: docs/deploying.md, Another user id"
    return f"{', '.join(moved)}; {way_out}" if moved else ""


def _owners(containers: Any) -> dict[str, str]:
    arguments = [argument for each in containers or () for argument in each.get("args") or ()]
    return dict(each.split("=", 1) for each in arguments if re.fullmatch(r"[a-z0-9-]+=[0-9]+", str(each)))


JOB = _workload(
    "batch/v1:Job",
    "spec.completions",
    "spec.parallelism",
    "spec.selector",
    "spec.template",
    seconds=30,
    understood=(
        Concern(
            "spec.template.spec.containers",
            _owners_changed,
            "a team's files stay its former user's: it cannot write them",
            loses=True,
        ),
    ),
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
"""Every kind without its own row: custom kinds, which any chart may bring. An API server changes them in place or
refuses to, and pulumi-kubernetes replaces them by name and namespace alone."""

DEFINITION = _row(
    "apiextensions.k8s.io/v1:CustomResourceDefinition",
    namespaced=False,
    replaced_by=(),
    price=FREE,
    shown=COUNTED,
    holds=Holds("every object of its kind", Worth.WORK),
    seconds=ONE_CALL,
    creation="",
)

UNSEEN_DIRECTORY = _row(
    "kustomize/v2:Directory",
    namespaced=False,
    replaced_by=(),
    price=ITS_NODES,
    shown=COUNTED,
    holds=Holds("the objects of its manifests; with definitions among them every object of their kinds", Worth.WORK),
    seconds=ONE_CALL,
    creation="objects that no plan shows: read the manifests",
)
"""Manifests that the provider reads while it runs: a plan sees the directory and none of its objects."""

_COPIES = (Concern("spec.replicas", concerns.alone, "a single copy is left, or none"),)

_RIGHTS = (Concern("rules", access.lists_more, "a role's rights change"),)


def _bound(words: str) -> tuple[Concern, ...]:
    return (
        Concern("roleRef.name", concerns.changed, words, new=True),
        Concern("subjects", lambda before, after: before and access.lists_more(before, after), "more subjects"),
    )


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
    _workload("apps/v1:Deployment", "spec.selector", seconds=ONE_CALL, understood=_COPIES),
    _workload(
        "apps/v1:StatefulSet",
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
        seconds=ONE_CALL,
        understood=_COPIES,
    ),
    DEFINITION,
    UNSEEN_DIRECTORY,
    *(
        _setting(
            f"admissionregistration.k8s.io/v1:{kind}",
            namespaced=False,
            understood=(Concern("spec", concerns.changed, "what is let in or refused is another"),),
            creation="may refuse what was let in",
            deletion="what it refused is let in",
        )
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    ),
    _setting("core/v1:ConfigMap", "data", "binaryData", namespaced=True, creation=""),
    _setting("core/v1:LimitRange", namespaced=True, creation="pods get limits that they had not"),
    _setting(
        "core/v1:ResourceQuota",
        "spec.scopes",
        namespaced=True,
        understood=(
            Concern("spec.hard", concerns.grows, "the namespace may take more"),
            Concern("spec.hard", concerns.shrinks, "pods beyond it are refused when they start again"),
        ),
        creation="pods beyond it are refused",
        deletion="the namespace's limit",
    ),
    _setting("core/v1:Secret", "type", "stringData", "data", namespaced=True, creation=""),
    _setting(
        "core/v1:ServiceAccount",
        namespaced=True,
        understood=(Concern("automountServiceAccountToken", concerns.no_longer_false, "its pods get an API token"),),
        creation="",
    ),
    _setting("monitoring.coreos.com/v1:PodMonitor", namespaced=True, creation=""),
    _setting(
        "monitoring.coreos.com/v1:PrometheusRule",
        namespaced=True,
        understood=(Concern("spec", concerns.changed, "what fires an alert is another"),),
        creation="",
        deletion="its alerts",
    ),
    _setting("monitoring.coreos.com/v1:ServiceMonitor", namespaced=True, creation=""),
    _setting(
        "networking.k8s.io/v1:NetworkPolicy",
        namespaced=True,
        understood=(Concern("spec", concerns.changed, "who may talk to whom is another"),),
        creation="pods may be cut off from others",
        deletion="what it kept apart can talk",
    ),
    _setting("policy/v1:PodDisruptionBudget", namespaced=True, creation=""),
    _setting("rbac.authorization.k8s.io/v1:ClusterRole", namespaced=False, understood=_RIGHTS, creation=""),
    _setting(
        "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
        "roleRef",
        namespaced=False,
        understood=_bound("rights in the whole cluster"),
        creation="",
    ),
    _setting("rbac.authorization.k8s.io/v1:Role", namespaced=True, understood=_RIGHTS, creation=""),
    _setting(
        "rbac.authorization.k8s.io/v1:RoleBinding",
        "roleRef",
        namespaced=True,
        understood=_bound("rights in a namespace"),
        creation="",
    ),
    # The provider does not know that its value cannot change: the API server refuses an update of it.
    _setting("scheduling.k8s.io/v1:PriorityClass", namespaced=False),
)
