"""Snapshot of one job and its surroundings at one moment; pure functions elsewhere interpret it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainium_eks.kube.cluster import Object, moment, name_of, when
from trainium_eks.model.outputs import NodeGroupOutput

ENDED = ("Completed", "Failed", "Aborted", "Terminated")
"""Phases of a Volcano job in which it stays (its ``pkg/apis/batch/v1alpha1``)."""

SUCCEEDED = "Completed"
"""State of a job after all its ranks have ended well."""

FAILURES = ("Failed", "Terminated")
"""The phases of a failed job: ``Terminated`` follows an error that no restart can mend, such as a missing script. A
person has aborted an ``Aborted`` one."""


@dataclass(frozen=True)
class JobSnapshot:
    """A Volcano job and its surroundings. None stands for a kind that the user may not read."""

    now: datetime
    job: Object
    podgroup: Object | None = None
    pods: tuple[Object, ...] = ()
    others: tuple[Object, ...] = ()
    """Pods of the namespace that are not its own, and as an administrator reads them other teams' pods with
    devices."""
    events: tuple[Object, ...] = ()
    """Events of its job, PodGroup and pods, the oldest first."""
    queues: tuple[Object, ...] | None = None
    nodes: tuple[Object, ...] | None = None
    hypernodes: tuple[Object, ...] | None = None
    claims: tuple[Object, ...] | None = None
    groups: tuple[NodeGroupOutput, ...] = ()
    unscheduled: str = ""
    """Reason why no Volcano runs here; empty where one should."""
    is_local: bool = False

    @property
    def name(self) -> str:
        """Return the job's name."""
        return name_of(self.job)

    @property
    def phase(self) -> str:
        """Return the job's phase, in Volcano's words; empty before its controllers have seen it."""
        return str(((self.job.get("status") or {}).get("state") or {}).get("phase") or "")

    @property
    def age_seconds(self) -> float:
        """Return the seconds since its submission."""
        return (self.now - moment(self.job["metadata"]["creationTimestamp"])).total_seconds()


def of_objects(now: datetime, job: Object, found: Mapping[str, Iterable[Object] | None], **rest: Any) -> JobSnapshot:
    """Return the snapshot of a job, from lists of its namespace and of the cluster. ``found`` has the objects by kind,
    None for a kind that may not be read."""

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
    return JobSnapshot(
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


def ended_at(job: Object) -> datetime | None:
    """Return the time when a job ended; None while it goes on."""
    state = (job.get("status") or {}).get("state") or {}
    return (
        moment(state["lastTransitionTime"]) if state.get("phase") in ENDED and "lastTransitionTime" in state else None
    )


def wanted_pods(job: Object) -> int:
    """Return the number of pods that a complete Volcano job has."""
    return sum(int(task.get("replicas", 1)) for task in job["spec"].get("tasks") or ())


def _owners(each: Object) -> set[str]:
    return {owner.get("uid", "") for owner in each["metadata"].get("ownerReferences") or ()}
