"""Objects of Kubernetes: names, labels, conditions, times, and whether a pod runs."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]

GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS puts it on every node of a managed group; its value is the group's name in EKS."""


def name_of(each: Object) -> str:
    """Return an object's name."""
    return str(each["metadata"]["name"])


def namespace_of(each: Object) -> str:
    """Return an object's namespace, or an empty string."""
    return str(each["metadata"].get("namespace", ""))


def labels_of(each: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return each["metadata"].get("labels") or {}


def condition(each: Object, type_: str) -> Mapping[str, Any]:
    """Return a condition of an object's status, or an empty dictionary."""
    conditions = each.get("status", {}).get("conditions") or ()
    return next((found for found in conditions if found.get("type") == type_), {})


def is_ready(node: Object) -> bool:
    """Return whether a node takes pods as far as its kubelet is concerned."""
    return condition(node, "Ready").get("status") == "True"


def moment(text: str) -> datetime:
    """Return a time as the API server writes it, with or without fractions of a second."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def when(event: Object) -> datetime:
    """Return the time when an event was seen last."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return moment(text or event["metadata"]["creationTimestamp"])


def is_bound(pod: Object) -> bool:
    """Return whether a pod has a node."""
    return bool(pod.get("spec", {}).get("nodeName"))


def is_over(pod: Object) -> bool:
    """Return whether a pod holds no devices any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_running(pod: Object) -> bool:
    """Return whether a pod's containers run and are ready."""
    return (pod.get("status") or {}).get("phase") == "Running" and condition(pod, "Ready").get("status") != "False"


def minor(version: str) -> tuple[int, int]:
    """Return the major and minor of ``v1.35.4`` or ``v1.35.4-eks-1a2b3c4``; ValueError for other text."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"{version!r} is not a version")
    return int(found.group(1)), int(found.group(2))


def find_volume_users(pods: Iterable[Object], claim_name: str) -> list[Object]:
    """Return the pods of a namespace for which Kubernetes keeps one of its claims: from their binding to a node until
    their deletion, finished pods too (kube-controller-manager, ``pvcprotection``, ``podUsesPVC``)."""
    return [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") and _mounts(pod, claim_name)]


def _mounts(pod: Object, claim_name: str) -> bool:
    volumes = pod["spec"].get("volumes") or ()
    return any((each.get("persistentVolumeClaim") or {}).get("claimName") == claim_name for each in volumes)
