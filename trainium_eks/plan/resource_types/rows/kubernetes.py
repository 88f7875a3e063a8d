"""Kubernetes: the kinds that this library uses, and one row for all others.

Changes replace an object as in pulumi-kubernetes (its ``provider/diff.go``): every kind by its name and namespace, some
by more.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.bill import Line
from trainium_eks.model.validation.parsing import read_table
from trainium_eks.plan.backend import TIME, Answer, Call, SimulationError
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.resource_types.resource_type import (
    BilledElsewhere,
    Concern,
    Holds,
    ResourceType,
    ShownType,
    Worth,
    nothing_more,
)
from trainium_eks.plan.resource_types.rows import helm

PREFIX = "kubernetes:"

_NAME = ("metadata.namespace", "metadata.name")

ITS_NODES = BilledElsewhere("nodes")
"""Pods cost what the nodes cost that they run on."""


# --- simulated answers --------------------------------------------------------------------------------------------


def _any_kind(call: Call) -> Answer:
    """Return the answer for a kind without a row. Only the cluster knows whether a custom kind is namespaced: its
    namespace is the program's."""
    group_version, _, kind = call.resource.type.removeprefix(PREFIX).rpartition(":")
    group = group_version.partition("/")[0]
    kind = kind.removesuffix("Patch")
    return _object(call, "default" if group in BUILT_IN_GROUPS and kind not in CLUSTER_WIDE else "")


def _object(call: Call, namespace: str) -> Answer:
    """Return an object's id and metadata, in ``namespace`` unless the program names another; in none when empty."""
    inputs = call.inputs
    missing = [field for field in ("apiVersion", "kind") if not inputs.get(field)]
    if missing:
        raise SimulationError(f"{call.resource.type} has no {' and no '.join(missing)}")
    metadata = dict(call.mapping("metadata"))
    prefix = metadata.get("generateName") or f"{call.resource.name}-"
    metadata.setdefault("name", f"{prefix}sim-{call.digest}")
    if namespace:
        metadata.setdefault("namespace", namespace)
    metadata["uid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, call.resource.urn))
    metadata["creationTimestamp"] = TIME
    within = metadata.get("namespace")
    identity = f"{within}/{metadata['name']}" if within else str(metadata["name"])
    return identity, {"metadata": metadata}


_LISTS = read_table(Path(__file__).with_suffix(".yaml"))

BUILT_IN_GROUPS = frozenset(_LISTS["builtInGroups"])
"""API groups of Kubernetes' built-in kinds."""

CLUSTER_WIDE = frozenset(_LISTS["clusterWide"])
"""Built-in kinds that live outside namespaces (``kubectl api-resources --namespaced=false``)."""


# --- what a plan says of them -------------------------------------------------------------------------------------


def _named(_graph: Graph, resource: Resource) -> Iterable[str]:
    yield str(value_at(resource.inputs, "metadata.name") or "")


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


def kind(token: str, *replaced_by: str, namespaced: bool, **facts: Any) -> ResourceType:
    """Return the row of a kind; ``facts`` are its other columns. Its API server refuses no deletion: finalizers make it
    wait, which no plan foresees."""
    return ResourceType(
        token=f"{PREFIX}{token}",
        simulated=lambda call: _object(call, "default" if namespaced else ""),
        named_by=_NAME,
        tagged=False,
        replaced_by=(*_NAME, *replaced_by),
        local="object",
        **facts,
    )


def _workload(token: str, *replaced_by: str, **facts: Any) -> ResourceType:
    """Return the row of a kind that runs pods."""
    runs = "something new runs in the cluster"
    return kind(token, *replaced_by, namespaced=True, price=ITS_NODES, creation=runs, **facts)


_ENFORCED = "metadata.labels.pod-security.kubernetes.io"
_LEVELS = ("privileged", "baseline", "restricted")


def _lower(before: Any, after: Any) -> bool:
    """Return whether pods may do more; an unknown level, or none, enforces nothing."""
    old, new = (_LEVELS.index(each) if each in _LEVELS else 0 for each in (before, after))
    return new < old


NAMESPACE = kind(
    "core/v1:Namespace",
    namespaced=False,
    shown=ShownType(_named),
    understood=(
        f"{_ENFORCED}/audit",
        f"{_ENFORCED}/warn",
        Concern(f"{_ENFORCED}/enforce", _lower, "pods may do more"),
    ),
    creation="",
    deletion="everything in it goes, what runs too",
)

PERSISTENT_VOLUME = kind(
    "core/v1:PersistentVolume",
    *(f"spec.{source}" for source in _LISTS["volumeSources"]),
    namespaced=False,
    price=BilledElsewhere("file systems and volumes"),
    shown=ShownType(lambda _graph, volume: [str(value_at(volume.inputs, "spec.capacity.storage") or "")]),
    holds=Holds("its tie to the files", Worth.TIE),
    understood=(
        "spec.capacity",
        Concern(
            "spec.persistentVolumeReclaimPolicy",
            concerns.no_longer("Retain"),
            "the volume's data is deleted with its claim",
        ),
    ),
    creation="",
)

PERSISTENT_VOLUME_CLAIM = kind(
    "core/v1:PersistentVolumeClaim",
    # Not `spec.resources`: a claim grows in place.
    *("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    namespaced=True,
    price=BilledElsewhere("volumes that workloads claim"),
    shown=ShownType(_named),
    holds=Holds("its tie to the files", Worth.TIE),
    understood=("spec.resources",),
    creation="",
)

STORAGE_CLASS = kind(
    "storage.k8s.io/v1:StorageClass",
    "parameters",
    "provisioner",
    namespaced=False,
    shown=ShownType(nothing_more),
)


def _more_sources(before: Any, after: Any) -> str:
    """Return the ranges that reach a service only after a change; no given range means every address."""
    return access.reached_from_more(before or ["0.0.0.0/0"], after or ["0.0.0.0/0"])


def _service_made(service: Resource) -> str:
    kind = (service.inputs.get("spec") or {}).get("type", "ClusterIP")
    return "" if kind == "ClusterIP" else "reached from outside the cluster"


SERVICE = kind(
    "core/v1:Service",
    "spec.clusterIP",
    namespaced=True,
    price=_balancer,
    understood=(Concern("spec.loadBalancerSourceRanges", _more_sources, "more addresses reach it"),),
    creation=_service_made,
)

_SHARES = ("spec.weight", "spec.deserved", "spec.reclaimable")


def _reclaims(graph: Graph, _queue: Resource) -> bool:
    """Return whether Volcano ends running pods of one queue for another."""
    return any("reclaim" in helm.scheduler_actions(each) for each in graph.of_type(helm.RELEASE.token))


QUEUE = kind(
    "scheduling.volcano.sh/v1beta1:Queue",
    namespaced=False,
    shown=ShownType(_amounts),
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
    price=ITS_NODES,
    local="object",
)
"""Every kind without its own row: custom kinds, which any chart may bring. An API server changes them in place or
refuses to, and pulumi-kubernetes replaces them by name and namespace alone."""

DEFINITION = kind(
    "apiextensions.k8s.io/v1:CustomResourceDefinition",
    namespaced=False,
    holds=Holds("every object of its kind", Worth.WORK),
    creation="",
)

UNSEEN_DIRECTORY = kind(
    "kustomize/v2:Directory",
    namespaced=False,
    price=ITS_NODES,
    holds=Holds("the objects of its manifests; with definitions among them every object of their kinds", Worth.WORK),
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
    _workload("batch/v1:CronJob"),
    _workload("apps/v1:DaemonSet", "spec.selector"),
    _workload("apps/v1:Deployment", "spec.selector", understood=_COPIES),
    _workload(
        "apps/v1:StatefulSet",
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
        understood=_COPIES,
    ),
    *(
        kind(
            f"admissionregistration.k8s.io/v1:{each}",
            namespaced=False,
            understood=(Concern("spec", concerns.changed, "what is let in or refused is another"),),
            creation="may refuse what was let in",
            deletion="what it refused is let in",
        )
        for each in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    ),
    *(
        kind(
            f"flowcontrol.apiserver.k8s.io/v1:{each}",
            namespaced=False,
            understood=(Concern("spec", concerns.changed, "other requests wait, or wait longer"),),
            creation="requests wait that did not",
            deletion="requests that it made wait slow others down",
        )
        for each in ("PriorityLevelConfiguration", "FlowSchema")
    ),
    kind("core/v1:ConfigMap", "data", "binaryData", namespaced=True, creation=""),
    kind("core/v1:LimitRange", namespaced=True, creation="pods get limits that they had not"),
    kind(
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
    kind("core/v1:Secret", "type", "stringData", "data", namespaced=True, creation=""),
    kind(
        "core/v1:ServiceAccount",
        namespaced=True,
        understood=(Concern("automountServiceAccountToken", concerns.no_longer_false, "its pods get an API token"),),
        creation="",
    ),
    kind("monitoring.coreos.com/v1:PodMonitor", namespaced=True, creation=""),
    kind(
        "monitoring.coreos.com/v1:PrometheusRule",
        namespaced=True,
        understood=(Concern("spec", concerns.changed, "what fires an alert is another"),),
        creation="",
        deletion="its alerts",
    ),
    kind("monitoring.coreos.com/v1:ServiceMonitor", namespaced=True, creation=""),
    kind(
        "networking.k8s.io/v1:NetworkPolicy",
        namespaced=True,
        understood=(Concern("spec", concerns.changed, "who may talk to whom is another"),),
        creation="pods may be cut off from others",
        deletion="what it kept apart can talk",
    ),
    kind("policy/v1:PodDisruptionBudget", namespaced=True, creation=""),
    kind("rbac.authorization.k8s.io/v1:ClusterRole", namespaced=False, understood=_RIGHTS, creation=""),
    kind(
        "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
        "roleRef",
        namespaced=False,
        understood=_bound("rights in the whole cluster"),
        creation="",
    ),
    kind("rbac.authorization.k8s.io/v1:Role", namespaced=True, understood=_RIGHTS, creation=""),
    kind(
        "rbac.authorization.k8s.io/v1:RoleBinding",
        "roleRef",
        namespaced=True,
        understood=_bound("rights in a namespace"),
        creation="",
    ),
    # The provider does not know that its value cannot change: the API server refuses an update of it.
    kind("scheduling.k8s.io/v1:PriorityClass", namespaced=False),
)
