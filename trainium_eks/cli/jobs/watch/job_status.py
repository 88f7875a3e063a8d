"""``trn status``: one job: why it waits, where it is, how it ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.jobs.watch import job_list, render_status
from trainium_eks.cli.shared import output
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain import why_not_started
from trainium_eks.jobs.explain.cluster_snapshot import FAILURES, ClusterSnapshot, is_bound, is_running
from trainium_eks.jobs.explain.reason import Reason
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.explain.why_pending import why, why_ended
from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.endings import Exit, Restart
from trainium_eks.jobs.watch.measured import Measured, measured
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube import pod_text
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.annotations import annotation

LOOK_SECONDS = 2.0
"""Seconds between two pictures of a live view."""

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
    nodes: tuple[str, ...]
    """Nodes of its pods, in the order of ranks."""
    progress: Progress | None
    restarts: tuple[Restart, ...]
    exits: tuple[Exit, ...]
    """Of the pods that are still there, the first to end first."""
    failed_rank: int | None
    """The rank that failed first, as torchrun says; None where it does not."""
    last_lines: tuple[str, ...]
    """Of the pod that failed first."""
    block_ends: datetime | None
    """End of the Capacity Block that it runs in; None without one."""
    measured: Measured | None = None
    """Its useful time; None where it is not known yet."""

    @property
    def failed(self) -> bool:
        """Whether the job needs attention: it failed, or stalls."""
        return self.job.state in FAILURES or (self.progress is not None and self.progress.stalled)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schemaVersion": reading.SCHEMA_VERSION,
            "job": {**self.job.to_json(), "seconds": round(self.job.seconds(self.now))},
            "pending": self.waits.to_json() if self.waits else None,
            "trouble": self.trouble.to_json() if self.trouble else None,
            "nodes": [*self.nodes],
            "progress": self.progress.to_json() if self.progress else None,
            "restarts": [each.to_json() for each in self.restarts],
            "exits": [each.to_json() for each in self.exits],
            "failedRank": self.failed_rank,
            "lastLines": [*self.last_lines],
            "measured": self.measured.to_json() if self.measured else None,
            "capacityBlockEnds": self.block_ends.isoformat() if self.block_ends else None,
        }


def run(cluster: ClusterOptions, name: str, *, watch: bool) -> int:
    """Show a job; return the exit code: 0, or 1 when it failed or stalls.

    Args:
        cluster: options of the command.
        name: of the job.
        watch: repeat until it has ended.
    """

    def work(session: Session) -> int:
        found = look(session, name)
        if watch and found.job.ended is None:
            try:
                return _live(cluster, session, found)
            except KeyboardInterrupt:
                return INTERRUPTED  # that is how it is ended
        _show(cluster, found)
        return FAILED if found.failed else 0

    return reading.run(cluster, work)


def look(session: Session, name: str) -> JobStatus:
    """Return the status of one job.

    Raises:
        Failure: there is none of that name.
        ClusterError: the API server cannot be reached.
    """
    job = reading.find(session, name)
    if not job.is_gang:
        return _of_plain(session, job)
    snapshot = reading.around(session, job)
    pods = reading.in_rank_order(job, snapshot.pods)
    waits = why(snapshot)
    trouble = why_ended(snapshot)
    if waits is None and job.ended is None:
        trouble = next(why_not_started.lost_nodes(snapshot), None)
    return _status(session, job, snapshot.now, pods, waits, trouble, endings.restarts(snapshot))


def _of_plain(session: Session, job: WatchedJob) -> JobStatus:
    """Return the status of a job of Kubernetes or of the Training Operator, from its pods alone."""
    pods = reading.pods_of(session, job)
    snapshot = ClusterSnapshot(reading.now(), job.source, pods=tuple(pods))
    waiting = job.ended is None and not any(map(is_running, pods))
    waits = next(why_not_started.reasons(snapshot), None) if waiting else None
    return _status(session, job, snapshot.now, pods, waits, None, [])


def _status(
    session: Session,
    job: WatchedJob,
    now: datetime,
    pods: Sequence[Object],
    waits: Reason | None,
    trouble: Reason | None,
    restarts: Sequence[Restart],
) -> JobStatus:
    if job.is_gang and job.ended is None:
        # Volcano's own number counts pods of nodes that are gone, too.
        job = replace(job, running=sum(map(is_running, pods)))
    exits = endings.exits(pods)
    first = endings.first_failure(exits) if job.state in FAILURES else None
    log = _log_of(session, first, pods) if first else []
    cause = endings.root_cause("\n".join(log))
    ends = (job.source["metadata"].get("annotations") or {}).get(annotation("capacity-block-ends"))
    progress = reading.progress_of(session, job, pods) if any(map(is_bound, pods)) else None
    return JobStatus(
        job,
        now,
        waits,
        trouble,
        tuple(str(pod["spec"]["nodeName"]) for pod in pods if is_bound(pod)),
        progress,
        tuple(restarts),
        tuple(exits),
        cause[0] if cause else None,
        tuple(log[-LAST_LINES:]),
        pod_text.time(ends),
        measured(job, pods, progress, session.outputs) if progress else None,
    )


def _log_of(session: Session, ended: Exit, pods: Sequence[Object]) -> list[str]:
    pod = next(each for each in pods if name_of(each) == ended.pod)
    return reading.log_tail(session, pod)


def _show(cluster: ClusterOptions, found: JobStatus) -> None:
    if cluster.as_json:
        output.write_json(found.to_json())
    else:
        show_sections([render_status.status(found)], no_color=cluster.no_color)


def _live(cluster: ClusterOptions, session: Session, found: JobStatus) -> int:
    """Show the job until it has ended; in a pipe, each new state. An unreachable server is retried."""
    last: object = None
    with job_list.screen(cluster.no_color) as shown:
        while True:
            state = (found.job.state, found.job.running, found.job.restarts, found.waits, found.trouble, found.failed)
            if shown is not None and not cluster.as_json:
                shown.update(render_status.status(found))
            elif state != last:
                _write_one(cluster, found)
            last = state
            if found.job.ended is not None:
                return FAILED if found.failed else 0
            time.sleep(LOOK_SECONDS)
            try:
                found = look(session, found.job.name)
            except Failure:
                _gone(cluster, found.job.name)
                return FAILED
            except ClusterError:
                continue


def _write_one(cluster: ClusterOptions, found: JobStatus) -> None:
    if cluster.as_json:
        output.write_json(found.to_json(), indent=None)
    else:
        show_sections([render_status.status(found)], no_color=cluster.no_color)


def _gone(cluster: ClusterOptions, name: str) -> None:
    if not cluster.as_json:
        output.write(f"{name} was removed.\n")
