"""What kube-state-metrics says of a cluster, by its own documentation (docs/metrics), from the objects as they are.

The real one is in no registry of Go modules at a version that has these series. Only what is used here, and the series
of gangs as its custom resource state makes them of ``trainium_eks.observe.series.gangs``.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.observe.series import gangs, scraping

Body = Mapping[str, Any]
Sample = tuple[str, Mapping[str, str], float]


def page(listed: Callable[[str, str], Sequence[Body]]) -> str:
    """The page. ``listed`` gives all objects of an API version and a kind."""
    samples = [
        *(sample for node in listed("v1", "Node") for sample in _node(node)),
        *(sample for pod in listed("v1", "Pod") for sample in _pod(pod)),
        *(sample for claim in listed("v1", "PersistentVolumeClaim") for sample in _claim(claim)),
        *(sample for daemons in listed("apps/v1", "DaemonSet") for sample in _daemons(daemons)),
        *(sample for group in listed("scheduling.volcano.sh/v1beta1", "PodGroup") for sample in _gang(group)),
    ]
    return "".join(f"{line}\n" for line in _lines(samples))


def _lines(samples: Sequence[Sample]) -> Iterator[str]:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    for name, those in by_name.items():
        yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
        for _, labels, value in those:
            shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
            yield f"{name}{{{shown}}} {value!r}"


def _node(node: Body) -> Iterator[Sample]:
    named = {"node": node["metadata"]["name"]}
    status, spec = node.get("status") or {}, node.get("spec") or {}
    yield "kube_node_labels", {**named, **_labels(node, scraping.NODE_LABELS)}, 1
    yield "kube_node_created", named, _time(node["metadata"]["creationTimestamp"])
    yield "kube_node_spec_unschedulable", named, float(bool(spec.get("unschedulable")))
    for taint in spec.get("taints") or ():
        yield "kube_node_spec_taint", {**named, **{key: taint.get(key, "") for key in ("key", "value", "effect")}}, 1
    for resource, asked in (status.get("capacity") or {}).items():
        labels = {**named, "resource": gangs.resource_label(resource), "unit": _unit(resource)}
        yield "kube_node_status_capacity", labels, amount(asked)
    for condition in status.get("conditions") or ():
        for each in ("true", "false", "unknown"):
            labels = {**named, "condition": condition["type"], "status": each}
            yield "kube_node_status_condition", labels, float(condition["status"].lower() == each)


def _pod(pod: Body) -> Iterator[Sample]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    named = {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}
    yield "kube_pod_info", {**named, "node": spec.get("nodeName", ""), "pod_ip": status.get("podIP", "")}, 1
    yield "kube_pod_labels", {**named, **_labels(pod, scraping.POD_LABELS)}, 1
    for phase in ("Pending", "Succeeded", "Failed", "Unknown", "Running"):
        yield "kube_pod_status_phase", {**named, "phase": phase}, float(status.get("phase") == phase)
    for container in spec["containers"]:
        for resource, asked in ((container.get("resources") or {}).get("requests") or {}).items():
            labels = {**named, "container": container["name"], "node": spec.get("nodeName", "")}
            labels |= {"resource": gangs.resource_label(resource), "unit": _unit(resource)}
            yield "kube_pod_container_resource_requests", labels, amount(asked)
    for container in status.get("containerStatuses") or ():
        labels = {**named, "container": container["name"]}
        yield "kube_pod_container_status_restarts_total", labels, container.get("restartCount", 0)


def _claim(claim: Body) -> Iterator[Sample]:
    metadata, spec = claim["metadata"], claim["spec"]
    named = {"namespace": metadata["namespace"], "persistentvolumeclaim": metadata["name"]}
    more = {"storageclass": spec.get("storageClassName", ""), "volumename": spec.get("volumeName", "")}
    yield "kube_persistentvolumeclaim_info", {**named, **more}, 1
    asked = amount(spec["resources"]["requests"]["storage"])
    yield "kube_persistentvolumeclaim_resource_requests_storage_bytes", named, asked
    for phase in ("Lost", "Bound", "Pending"):
        is_so = (claim.get("status") or {}).get("phase") == phase
        yield "kube_persistentvolumeclaim_status_phase", {**named, "phase": phase}, float(is_so)


def _daemons(daemons: Body) -> Iterator[Sample]:
    named = {"namespace": daemons["metadata"]["namespace"], "daemonset": daemons["metadata"]["name"]}
    status = daemons.get("status") or {}
    yield "kube_daemonset_status_number_unavailable", named, status.get("numberUnavailable", 0)


def _gang(group: Body) -> Iterator[Sample]:
    metadata, spec, status = group["metadata"], group["spec"], group.get("status") or {}
    owner = (metadata.get("ownerReferences") or [{"name": metadata["name"]}])[0]["name"]
    named = {"namespace": metadata["namespace"], "podgroup": metadata["name"]}
    named |= {"job_name": owner, "queue": spec.get("queue", "")}
    for phase in gangs.PHASES:
        yield "trn_gang_phase", {**named, "phase": phase}, float(status.get("phase") == phase)
    yield "trn_gang_created_timestamp_seconds", named, _time(metadata["creationTimestamp"])
    for resource, asked in (spec.get("minResources") or {}).items():
        if resource in ("aws.amazon.com/neuron", "nvidia.com/gpu"):
            yield "trn_gang_min_devices", {**named, "resource": gangs.resource_label(resource)}, amount(asked)


def _labels(of: Body, allowed: Sequence[str]) -> dict[str, str]:
    there = of["metadata"].get("labels") or {}
    return {f"label_{gangs.resource_label(label)}": there[label] for label in allowed if label in there}


def _unit(resource: str) -> str:
    return {"cpu": "core", "memory": "byte"}.get(resource, "integer" if "/" in resource else "byte")


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def amount(text: object) -> float:
    """A quantity as a number."""
    return float(quantity(text) or 0)
