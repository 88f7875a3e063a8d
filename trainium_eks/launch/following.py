"""Following a job: rank 0's log, over restarts of the gang, until the job has ended. Asks the API server."""

import time
from collections.abc import Callable
from typing import Any

from trainium_eks.launch.cluster_facts import phase
from trainium_eks.launch.identity import JOB_API, node_rank, pod_selector
from trainium_eks.launch.requests import FINISHED
from trainium_eks.local.changes import LocalError
from trainium_eks.local.objects.api import Api, ApiError, ObjectReference

SUCCEEDED = "Completed"
"""Phase of a job whose ranks have all ended well."""

PAUSE_SECONDS = 0.5
_LOG_QUIET_SECONDS = 3600.0


def follow(
    api: Api,
    namespace: str,
    name: str,
    line: Callable[[str], None] | None,
    status: Callable[[str], None] = lambda _: None,
    timeout_seconds: float = float("inf"),
) -> str:
    """Waits for a job's end; returns its last phase.

    Args:
        api: the API server.
        namespace: of the job.
        name: of the job.
        line: told each line of rank 0's log; None to wait only.
        status: told when the job's phase changes.
        timeout_seconds: how long, at most.

    Raises:
        LocalError: the job is gone, or the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    reference = ObjectReference(JOB_API, "Job", namespace, name)
    before, read = "", set[str]()
    while True:
        job = api.get(reference)
        if job is None:
            raise LocalError(f"the job {name} was deleted")
        now = phase(job)
        if now != before:
            status(now)
            before = now
        if line is not None:
            _read_new_logs(api, namespace, name, line, read)
        if now in FINISHED:
            return now
        if time.monotonic() > deadline:
            raise LocalError(f"the job {name} has not ended after {timeout_seconds:g} s; it is {now or 'new'}")
        time.sleep(PAUSE_SECONDS)


def _read_new_logs(api: Api, namespace: str, name: str, line: Callable[[str], None], read: set[str]) -> None:
    """The logs of node 0's pods that have started and were not read yet, each to its end."""
    for pod in api.list("v1", "Pod", namespace=namespace, labels=pod_selector(name)):
        metadata = pod["metadata"]
        if node_rank(pod) != 0 or metadata["uid"] in read or not _has_started(pod):
            continue
        path = f"/api/v1/namespaces/{namespace}/pods/{metadata['name']}/log"
        try:
            for text in api.lines(path, query={"follow": "true"}, quiet_seconds=_LOG_QUIET_SECONDS):
                line(text)
        except ApiError as error:
            if error.status not in (400, 404):  # the container has just not started, or the pod has just gone
                raise
            continue
        read.add(metadata["uid"])


def _has_started(pod: dict[str, Any]) -> bool:
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    return bool(states) and all("running" in state or "terminated" in state for state in states)
