"""The end of a job before its time.

The object is deleted, as `torchx cancel` does, and not aborted by a Volcano Command: either way the pods go, and with
them their logs; but an aborted job keeps its name from the next one, and its script's ConfigMap (decision 41).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainium_eks.client import reading
from trainium_eks.client.session import Session
from trainium_eks.jobs.observed.watched import WatchedJob, templates
from trainium_eks.kube.cluster import Object, is_over
from trainium_eks.local import access

MARGIN_SECONDS = 30.0
"""Seconds for deleting pods, beyond their grace period."""

GRACE_SECONDS = 30
"""Kubernetes' default of ``terminationGracePeriodSeconds``."""

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class EndedJob:
    """Result of ending a job."""

    name: str
    pods_left: int
    output: str
    """Directory on the shared volume; empty for a job without one."""
    checkpoint: int | None
    """Step of the last checkpoint in its log."""
    files: tuple[str, ...]
    """Files in that directory; only on the local cloud, where the volume can be read."""
    stopping: bool = False
    """Whether SageMaker stops it, and it runs until the end of its grace period."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "podsLeft": self.pods_left,
            "output": self.output or None,
            "checkpointStep": self.checkpoint,
            "files": [*self.files],
            "stopping": self.stopping,
        }


def end(session: Session, job: WatchedJob, say: Callable[[str], object]) -> EndedJob:
    """Delete a job and wait until its pods are gone; return the result."""
    pods = reading.pods_of(session, job)
    progress = reading.progress_of(session, job, pods) if pods and job.trains else None
    grace = max((_grace_seconds(pod) for pod in pods), default=0)
    alive = sum(not is_over(pod) for pod in pods)
    if alive:
        one = alive == 1
        say(f"{alive} pod{'' if one else 's'} of {job.name} get{'s' if one else ''} SIGTERM and up to {grace} s")
    session.api.delete(session.api.reference(job.source), propagation="Background")
    left = _await_end(session, job, grace + MARGIN_SECONDS)
    directory = _output(session, job)
    return EndedJob(
        job.name,
        pods_left=left,
        output=directory,
        checkpoint=progress.checkpoint_step if progress else None,
        files=_files(session, directory),
    )


def _grace_seconds(pod: Object) -> int:
    return int((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or GRACE_SECONDS)


def _await_end(session: Session, job: WatchedJob, seconds: float) -> int:
    """Return how many of its pods are still there in the end."""
    deadline = time.monotonic() + seconds
    while True:
        left = len(reading.pods_of(session, job))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_SECONDS)


def _output(session: Session, job: WatchedJob) -> str:
    """Return the job's ``TRN_OUTPUT_DIR``; empty without one, or without a shared volume."""
    if not session.namespace.claim:
        return ""
    for template in templates(job.source) if job.trains else ():
        for container in template["spec"].get("containers") or ():
            for variable in container.get("env") or ():
                if variable.get("name") == "TRN_OUTPUT_DIR" and variable.get("value"):
                    return str(variable["value"])
    return ""


def _files(session: Session, directory: str) -> tuple[str, ...]:
    paths = session.source.paths
    if paths is None or not directory.startswith("/data/"):
        return ()
    namespace = session.namespace
    return access.list_files(paths, namespace.name, namespace.claim, directory.removeprefix("/data/"))
