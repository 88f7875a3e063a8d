"""Reads of the watching commands, as the researcher: jobs by name, the objects around a job, the end of a log."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import Session
from trainium_eks.diagnose.cluster_state import TEAM_KINDS
from trainium_eks.jobs.objects.identity import JOB_API, PYTORCH_API, TRAINER_API, in_rank_order
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot, of_objects
from trainium_eks.jobs.observed.watched import WatchedJob, owner_of, watched
from trainium_eks.jobs.watch.steps import Progress, parse_all, progress
from trainium_eks.kube import pod_logs
from trainium_eks.kube.api import list_kinds, readable
from trainium_eks.kube.cluster import Object, namespace_of
from trainium_eks.kube.pod_logs import TAIL_LINES
from trainium_eks.model.policies.admission import SCHEDULER
from trainium_eks.model.validation.problems import nearest

THREADS = 8

_AROUND = ("PodGroup", "Pod", "Event", "PersistentVolumeClaim", "Queue", "Node", "HyperNode")
"""Kinds that explain a job's state."""


def now() -> datetime:
    """Return the time by which ages are reckoned."""
    return datetime.now(UTC)


def jobs(session: Session) -> list[WatchedJob]:
    """Return all jobs of the namespace, the newest first."""
    kinds = ((JOB_API, "Job"), ("batch/v1", "Job"), (PYTORCH_API, "PyTorchJob"), (TRAINER_API, "TrainJob"))
    volcano, batch, pytorch, trainer = map(readable, list_kinds(session.api, kinds, session.namespace.name))
    if volcano is None and batch is None:
        raise UsageError(
            f"the jobs of namespace {session.namespace.name} may not be read with {session.kubeconfig}: "
            "its identity needs the team's access entry (`principals` of the namespace)"
        )
    return watched(volcano or (), batch or (), pytorch or (), trainer or ())


def find(session: Session, name: str) -> WatchedJob:
    """Return the job of that name."""
    found = jobs(session)
    job = find_named(found, name)
    if job is None:
        raise missing_job_error(session, name, found)
    return job


def find_named(found: Sequence[WatchedJob], name: str) -> WatchedJob | None:
    """Return the job of that name; None without one."""
    return next((job for job in found if job.name == name), None)


def missing_job_error(session: Session, name: str, found: Sequence[WatchedJob]) -> CommandError:
    """Return the failure for an unknown name of a job."""
    names = [job.name for job in found]
    near = nearest(name, names)
    meant = f"did you mean {near}?" if near else f"there {_are(names)}; `trn jobs` lists them"
    return UsageError(f"namespace {session.namespace.name} has no job {name!r}: {meant}")


def _are(names: Sequence[str]) -> str:
    if not names:
        return "is none"
    shown = ", ".join(names[:5])
    return f"is {shown}" if len(names) == 1 else f"are {shown}{' and more' if len(names) > 5 else ''}"


def job_snapshot(session: Session, job: WatchedJob) -> JobSnapshot:
    """Return a snapshot of a Volcano job and the objects around it, read at the same time."""
    own = session.namespace.name
    answers = list_kinds(session.api, [(TEAM_KINDS[kind], kind) for kind in _AROUND], own)
    found = dict(zip(_AROUND, map(readable, answers), strict=True))
    # Pods of all teams that Volcano has placed: a researcher may not read them.
    [others] = list_kinds(session.api, [("v1", "Pod")], fields=f"spec.schedulerName={SCHEDULER}")
    theirs = (pod for pod in readable(others) or () if namespace_of(pod) not in ("", own))
    found["Pod"] = [*(found["Pod"] or ()), *theirs]
    return of_objects(
        now(),
        job.source,
        found,
        groups=session.outputs.node_groups,
        unscheduled=session.source.local.unscheduled if session.source.local else "",
        is_local=session.is_local,
    )


def pods_of(session: Session, job: WatchedJob) -> list[Object]:
    """Return the pods of a job of any kind."""
    api, namespace = session.api, session.namespace.name
    return [*api.list("v1", "Pod", namespace=namespace, labels=job.pod_selector)]


def log_path(session: Session, pod: str) -> str:
    """Return the path of a pod's log in the API."""
    return pod_logs.path(session.namespace.name, pod)


def log_tail(session: Session, pod: Object, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a pod's log; none where it cannot be read (not started, no kubelet, gone)."""
    return pod_logs.tail(session.api, session.namespace.name, pod, lines)


def progress_of(session: Session, job: WatchedJob, pods: Sequence[Object]) -> Progress | None:
    """Return the progress of a job, by the log of rank 0; None where that has no steps."""
    ordered = in_rank_order(job.source, pods)
    if not ordered:
        return None
    steps = parse_all(log_tail(session, ordered[0]))
    return progress(steps, now().timestamp(), running=job.ended is None)


def progress_of_all(session: Session, found: Sequence[WatchedJob]) -> dict[str, Progress]:
    """Return the progress of each gang that has begun, by job."""
    begun = [job for job in found if job.trains and job.state in ("Running", "Completed", "Failed")]
    if not begun:
        return {}
    pods: dict[str, list[Object]] = {}
    for pod in session.api.list("v1", "Pod", namespace=session.namespace.name):
        pods.setdefault(owner_of(pod), []).append(pod)
    with ThreadPoolExecutor(THREADS) as pool:
        said = [*pool.map(lambda job: progress_of(session, job, pods.get(job.name, [])), begun)]
        return {job.name: where for job, where in zip(begun, said, strict=True) if where is not None}


def keeps(session: Session) -> bool:
    """Return whether the stack keeps the log lines of deleted pods."""
    return session.source.paths is not None or bool(session.outputs.log_group)
