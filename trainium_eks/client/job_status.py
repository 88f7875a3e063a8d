"""The status of one job: why it waits, where it is, how it ended."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainium_eks.aws.sessions import Aws
from trainium_eks.client import reading
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session
from trainium_eks.diagnose import why_not_started
from trainium_eks.diagnose.reason import Reason
from trainium_eks.diagnose.why_pending import why, why_ended
from trainium_eks.jobs.objects import capacity_block
from trainium_eks.jobs.objects.identity import in_rank_order
from trainium_eks.jobs.observed.job_snapshot import FAILURES, JobSnapshot
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.endings import Exit, Restart
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.jobs.watch.useful_time import JobFigures, measure_job
from trainium_eks.kube import pod_text
from trainium_eks.kube.cluster import Object, is_bound, is_running, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.annotations import annotation

LAST_LINES = 12
"""Of the log of the pod that failed first."""


@dataclass(frozen=True)
class JobStatus:
    """All about one job at one moment."""

    job: WatchedJob
    now: datetime
    waits: Reason | None
    """Why it does not run; None for a running or ended job."""
    trouble: Reason | None
    """Problems of a running job, such as a lost node, or why Volcano gave up an ended job."""
    pods: tuple[Object, ...]
    """Its pods, in the order of ranks."""
    progress: Progress | None
    restarts: tuple[Restart, ...]
    exits: tuple[Exit, ...]
    """Of the pods that are still there, the first to end first."""
    failed_rank: int | None
    """The rank that failed first, as torchrun says; None where it does not."""
    first_error: str
    """Of the rank that failed first; empty where its log does not say it."""
    last_lines: tuple[str, ...]
    """Of the pod that failed first."""
    block_ends: datetime | None
    """End of the Capacity Block that it runs in, as its ranks know it; None without one."""
    measured: JobFigures | None = None
    """Its useful time; None where it is not known yet."""
    extended: tuple[str, str] | None = None
    """The end of the block by EC2, RFC 3339, where its ranks know an earlier one, and what tells them."""

    @property
    def failed(self) -> bool:
        """Whether the job needs attention: it failed, or stalls."""
        return self.job.state in FAILURES or (self.progress is not None and self.progress.stalled)

    @property
    def nodes(self) -> list[str]:
        """Nodes of its pods, in the order of ranks."""
        return [str(pod["spec"]["nodeName"]) for pod in self.pods if is_bound(pod)]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "job": {**self.job.to_json(), "seconds": round(self.job.seconds(self.now))},
            "pending": self.waits.to_json() if self.waits else None,
            "trouble": self.trouble.to_json() if self.trouble else None,
            "nodes": self.nodes,
            "progress": self.progress.to_json() if self.progress else None,
            "restarts": [each.to_json() for each in self.restarts],
            "exits": [each.to_json() for each in self.exits],
            "failedRank": self.failed_rank,
            "firstError": self.first_error or None,
            "lastLines": [*self.last_lines],
            "measured": self.measured.to_json() if self.measured else None,
            "capacityBlockEnds": self.block_ends.isoformat() if self.block_ends else None,
        }


def look(session: Session, name: str) -> JobStatus:
    """Return the status of one job; one of Kubernetes or of the Training Operator from its pods alone."""
    job = reading.find(session, name)
    trouble, restarts = None, list[Restart]()
    if job.is_gang:
        snapshot = reading.job_snapshot(session, job)
        pods = in_rank_order(job.source, snapshot.pods)
        waits, trouble, restarts = why(snapshot), why_ended(snapshot), endings.restarts(snapshot)
        if waits is None and job.ended is None:
            trouble = next(why_not_started.lost_nodes(snapshot), None)
        if job.ended is None:
            # Volcano's own number counts pods of nodes that are gone, too.
            job = replace(job, running=sum(map(is_running, pods)))
    else:
        pods = in_rank_order(job.source, reading.pods_of(session, job))
        snapshot = JobSnapshot(reading.now(), job.source, pods=tuple(pods))
        waiting = job.ended is None and not any(map(is_running, pods))
        waits = next(why_not_started.reasons(snapshot), None) if waiting else None
    exits = endings.exits(pods)
    first = endings.first_failure(exits) if job.state in FAILURES else None
    read = [pod for pod in pods if name_of(pod) == first.pod] if first else pods[:1] if restarts else []
    log = [line for pod in read for line in reading.log_tail(session, pod)]
    if restarts and restarts[-1].cause == endings.UNKNOWN and (before := endings.run_before(log)):
        restarts = [*restarts[:-1], replace(restarts[-1], cause=before)]
    cause = endings.root_cause("\n".join(log))
    ends, extended = _block(session, job)
    progress = reading.progress_of(session, job, pods) if any(map(is_bound, pods)) else None
    return JobStatus(
        job,
        snapshot.now,
        waits,
        trouble,
        tuple(pods),
        progress,
        tuple(restarts),
        tuple(exits),
        cause[0] if cause else None,
        endings.first_error(log) if first else "",
        tuple(log[-LAST_LINES:]) if first else (),
        pod_text.time(ends),
        measure_job(job, pods, progress, session.outputs) if progress else None,
        extended,
    )


def _block(session: Session, job: WatchedJob) -> tuple[str | None, tuple[str, str] | None]:
    """Return the end of the job's Capacity Block as its ranks know it, and EC2's where that is another one, with what
    tells the ranks: a command, or the stack's config."""
    noted, namespace = job.source["metadata"].get("annotations") or {}, session.namespace.name
    ends, block = noted.get(annotation("capacity-block-ends")), noted.get(annotation("capacity-block"))
    group = noted.get(annotation("capacity-block-group"), "")
    if not block or job.ended is not None:
        return ends, None
    # A group's next block is another one than at the submission.
    block = next((each.reservation for each in session.outputs.node_groups if each.name == group), block)
    place, key = capacity_block.kept_in(namespace, block, group)
    try:
        ends = str((session.api.get(place) or {}).get("data", {}).get(key) or ends)
        present = "" if session.is_local else Aws(session.outputs.region).capacity_ends(block)
    except ClusterError as error:
        notice(f"whether the Capacity Block was extended is not known: {error}")
        return ends, None
    if not present or present == ends:
        return ends, None
    if group:
        return ends, (present, f"set capacity.ends of {group} to it in the stack's config, and run pulumi up")
    values = f"--from-literal={capacity_block.KEY}={present} --dry-run=client -o yaml"
    tell = f"kubectl -n {namespace} create configmap {capacity_block.name(block)} {values} | kubectl apply -f -"
    return ends, (present, tell)
