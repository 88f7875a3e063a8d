"""What was read about one job, and around it, at one moment; pure functions judge elsewhere what that means."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainium_eks.kube.cluster import Object, condition, name_of
from trainium_eks.model.outputs import NodeGroupOutput

ENDED = ("Completed", "Failed", "Aborted", "Terminated")
"""Phases of a Volcano job in which it stays (its ``pkg/apis/batch/v1alpha1``)."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """A Volcano job and what surrounds it. A kind that may not be read is None."""

    now: datetime
    job: Object
    podgroup: Object | None = None
    pods: tuple[Object, ...] = ()
    """The job's own."""
    others: tuple[Object, ...] = ()
    """Pods of the namespace that are not its own. Those of other teams may not be read."""
    events: tuple[Object, ...] = ()
    """Of its job, PodGroup and pods, the oldest first."""
    queues: tuple[Object, ...] | None = None
    nodes: tuple[Object, ...] | None = None
    hypernodes: tuple[Object, ...] | None = None
    claims: tuple[Object, ...] | None = None
    groups: tuple[NodeGroupOutput, ...] = ()
    """The stack's node groups."""
    unscheduled: str = ""
    """Why no Volcano runs here; empty where one should."""
    is_local: bool = False

    @property
    def name(self) -> str:
        """The job's."""
        return name_of(self.job)

    @property
    def phase(self) -> str:
        """The job's, in Volcano's words; empty before its controllers have seen it."""
        return str(((self.job.get("status") or {}).get("state") or {}).get("phase") or "")

    @property
    def age_seconds(self) -> float:
        """Since it was submitted."""
        return (self.now - moment(self.job["metadata"]["creationTimestamp"])).total_seconds()


def of_objects(
    now: datetime, job: Object, found: Mapping[str, Iterable[Object] | None], **rest: Any
) -> ClusterSnapshot:
    """The snapshot of a job, from lists of its namespace and of the cluster.

    Args:
        now: when they were read.
        job: a Volcano job.
        found: kind to objects: ``PodGroup``, ``Pod``, ``Event``, ``PersistentVolumeClaim``, ``Queue``, ``Node``,
            ``HyperNode``; None for what may not be read.
        rest: further fields of :class:`ClusterSnapshot`.
    """

    def of(kind: str) -> tuple[Object, ...] | None:
        objects = found.get(kind)
        return None if objects is None else tuple(objects)

    uid = job["metadata"].get("uid")
    podgroup = next((each for each in of("PodGroup") or () if uid in _owners(each)), None)
    pods = of("Pod") or ()
    own = tuple(pod for pod in pods if uid in _owners(pod))
    about = {uid, *(each["metadata"].get("uid") for each in own)}
    if podgroup is not None:
        about.add(podgroup["metadata"].get("uid"))
    name = f"{name_of(job)}-"
    events = [
        each
        for each in of("Event") or ()
        # Pods that a restart replaced are known by their names alone.
        if each["involvedObject"].get("uid") in about
        or (each["involvedObject"].get("kind") == "Pod" and str(each["involvedObject"].get("name")).startswith(name))
    ]
    return ClusterSnapshot(
        now,
        job,
        podgroup,
        own,
        tuple(pod for pod in pods if uid not in _owners(pod)),
        tuple(sorted(events, key=when)),
        of("Queue"),
        of("Node"),
        of("HyperNode"),
        of("PersistentVolumeClaim"),
        **rest,
    )


def moment(text: str) -> datetime:
    """A time as the API server writes it, with or without fractions of a second."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def when(event: Object) -> datetime:
    """When an event was seen last."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return moment(text or event["metadata"]["creationTimestamp"])


def is_bound(pod: Object) -> bool:
    """Whether a node was found for it."""
    return bool(pod.get("spec", {}).get("nodeName"))


def is_over(pod: Object) -> bool:
    """Whether it holds no devices any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_running(pod: Object) -> bool:
    """Whether its containers run and are ready."""
    return (pod.get("status") or {}).get("phase") == "Running" and condition(pod, "Ready").get("status") != "False"


def job_of(pod: Object) -> str:
    """The name of the Volcano job, or of another owner, that a pod belongs to; else its own."""
    labels = pod["metadata"].get("labels") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    return str(labels.get("volcano.sh/job-name") or next((each["name"] for each in owners), "") or name_of(pod))


def wanted_pods(job: Object) -> int:
    """How many pods a Volcano job has when it is whole."""
    return sum(int(task.get("replicas", 1)) for task in job["spec"].get("tasks") or ())


def _owners(each: Object) -> set[str]:
    return {owner.get("uid", "") for owner in each["metadata"].get("ownerReferences") or ()}
