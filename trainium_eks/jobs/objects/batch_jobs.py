"""Kubernetes' own Jobs, which stage data and build images: submitted with the objects that they need, and followed to
their end."""

import calendar
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.kube.errors import ClusterError

JOB_LABEL = "batch.kubernetes.io/job-name"
"""Label on the pods of a Job; the Job controller sets it."""
POLL_SECONDS = 1.0
QUIET_SECONDS = 120.0
"""Time that a log may be silent before the pod is looked at again."""
LEFT_OVER_SECONDS = 60.0
"""Time of suspension after which a Job counts as abandoned: starting it takes a tenth of a second."""
_LAST_LINES = "50"

Json = Mapping[str, Any]


def manifest(
    metadata: Json, template: Json, retries: int, for_good: Sequence[int], kept_seconds: int
) -> dict[str, Any]:
    """Return a Job that is tried again, but after an exit code of its one container that is in ``for_good``."""
    [container] = template["spec"]["containers"]
    codes = {"containerName": container["name"], "operator": "In", "values": [*for_good]}
    rules = [
        {"action": "FailJob", "onExitCodes": codes},
        # Drained nodes and preempted pods are no fault of the program.
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    spec = {
        "backoffLimit": retries,
        "ttlSecondsAfterFinished": kept_seconds,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def owner_references(owner: Json) -> dict[str, Any]:
    """Return metadata by which an object is deleted with its owner."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {"ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}


def merge(api: Api, there: Json, change: Json) -> dict[str, Any]:
    """Change an object of the API server, and return it."""
    found = api.reference(there)
    path = api.kind(found.api_version, found.kind).path(found.namespace, found.name)
    return api.request("PATCH", path, change, content_type="application/merge-patch+json")


@dataclass(frozen=True)
class End:
    """The end of a Job."""

    succeeded: bool
    message: str = ""


def end_of(job: Json) -> End | None:
    """Return the Job's end; None while it runs."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            text = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            return End(condition["type"] == "Complete", text)
    return None


def why_waiting(pod: Json) -> str:
    """Return the reason why a pod does not run yet, in one line; empty when it does."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"no node takes the pod: {condition.get('message') or condition.get('reason')}"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    return "the pod is being started" if status.get("phase") in (None, "Pending") else ""


def submit(api: Api, job: Json, needs: tuple[Json, ...]) -> None:
    """Create a Job and the objects that it needs, which are deleted with it.

    The Job comes first, suspended: so the others can name their owner as they are made, and a command that is killed in
    between leaves nothing that would stay. Nothing is left of a refused Job."""
    created = api.create({**job, "spec": {**job["spec"], "suspend": True}})
    try:
        for each in needs:
            api.create({**each, "metadata": {**each["metadata"], **owner_references(created)}})
        merge(api, job, {"spec": {"suspend": False}})
    except (ApiError, ClusterError):
        api.delete(api.reference(job), propagation="Background")
        raise


def is_left_over(job: Json, now: float) -> bool:
    """Return whether the Job was never started, because its command ended between its creation and its start."""
    made = calendar.timegm(time.strptime(job["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ"))
    return bool(job["spec"].get("suspend")) and now - made > LEFT_OVER_SECONDS


def follow(
    api: Api,
    namespace: str,
    name: str,
    container: str,
    *,
    line: Callable[[str], object],
    waiting: Callable[[str], object],
    pause: Callable[[float], object] = time.sleep,
) -> End:
    """Read a Job's log, pod after pod, until it ends. ``line`` is called with each line, after a broken connection with
    some of them again; ``waiting`` again and again with the reason why no pod runs."""
    reference = ObjectReference("batch/v1", "Job", namespace, name)
    read: set[str] = set()
    while True:
        job = api.get(reference)
        if job is None:
            return End(False, "the Job was deleted")
        pods = api.list("v1", "Pod", namespace=namespace, labels=f"{JOB_LABEL}={name}")
        newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
        if newest is not None and newest["metadata"]["uid"] not in read:
            why = why_waiting(newest)
            if why:
                waiting(why)
            elif _read_log(api, newest, container, line):
                read.add(newest["metadata"]["uid"])
                continue  # at once, for the Job is about to end
        elif newest is None:
            waiting("the Job controller makes its pod")
        end = end_of(job)
        if end is not None:
            return end
        pause(POLL_SECONDS)


def _read_log(api: Api, pod: Json, container: str, line: Callable[[str], object]) -> bool:
    """Read a pod's log until the pod ends; return whether it was read to its end."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    query = {"container": container, "follow": "true", "tailLines": _LAST_LINES}
    try:
        for each in api.lines(path, query=query, quiet_seconds=QUIET_SECONDS):
            line(each)
    except ApiError as error:
        # Not started yet, or gone already: the next look will tell. Other refusals stay refusals.
        if error.status not in (400, 404, 500, 502, 503):
            raise
        return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    except ClusterError:
        return False
    return True
