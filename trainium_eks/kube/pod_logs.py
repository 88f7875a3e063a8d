"""The last lines of a pod's log."""

from urllib.parse import quote

from trainium_eks.kube import pod_text
from trainium_eks.kube.api import Api
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError

TAIL_LINES = 200
"""Lines of a log that are searched: all ranks of a node write into it."""


def path(namespace: str, pod: str) -> str:
    """Return the path of a pod's log in the API."""
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"


def tail(api: Api, namespace: str, pod: Object, lines: int = TAIL_LINES, *, previous: bool = False) -> list[str]:
    """Return the last lines of a log (``previous``: of the container before its last restart); none where it cannot be
    read (not started, no kubelet, gone)."""
    query = {"tailLines": str(lines), "limitBytes": str(pod_text.TAIL_BYTES)}
    if previous:
        query["previous"] = "true"
    containers = (pod.get("spec") or {}).get("containers") or []
    if len(containers) > 1:
        query["container"] = containers[0]["name"]
    for name in _failed(pod, previous=previous)[:1]:
        query["container"] = name
    try:
        return pod_text.lines(api.text("GET", path(namespace, name_of(pod)), query=query, timeout_seconds=15))
    except ClusterError:
        return []


def _failed(pod: Object, *, previous: bool) -> list[str]:
    """Return the names of failed containers that ended their pod or hold it, init containers first."""
    status = pod.get("status") or {}
    stopped = [each for each in status.get("initContainerStatuses") or () if not each.get("ready")]
    if previous or status.get("phase") == "Failed":
        stopped += status.get("containerStatuses") or ()
    last = "lastState" if previous else "state"
    return [each["name"] for each in stopped if ((each.get(last) or {}).get("terminated") or {}).get("exitCode")]
