"""Reads of the watching commands, as the researcher: jobs by name, the objects around a job, the end of a log."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects.identity import JOB_API, PYTORCH_API, TRAINER_API, by_process_rank
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot, of_objects
from trainium_eks.jobs.observed.watched import WatchedJob, owner_of, watched
from trainium_eks.jobs.watch.steps import Progress, parse_all, progress
from trainium_eks.kube import pod_logs
from trainium_eks.kube.api import ApiError, NoSuchKindError
from trainium_eks.kube.cluster import Object, name_of, namespace_of
from trainium_eks.kube.pod_logs import TAIL_LINES
from trainium_eks.model.annotations import annotation
from trainium_eks.model.policies.admission import SCHEDULER
from trainium_eks.model.validation.problems import nearest

THREADS = 8

QUEUES = ("scheduling.volcano.sh/v1beta1", "Queue")

_AROUND: Mapping[str, tuple[str, bool]] = {
    "PodGroup": ("scheduling.volcano.sh/v1beta1", True),
    "Pod": ("v1", True),
    "Event": ("v1", True),
    "PersistentVolumeClaim": ("v1", True),
    "Queue": ("scheduling.volcano.sh/v1beta1", False),
    "Node": ("v1", False),
    "HyperNode": ("topology.volcano.sh/v1alpha1", False),
}
"""Kinds that explain a job's state: API version, and whether they are in the namespace."""


def now() -> datetime:
    """Return the time by which ages are reckoned."""
    return datetime.now(UTC)


def jobs(session: Session) -> list[WatchedJob]:
    """Return all jobs of the namespace, the newest first."""
    volcano = _list(session, JOB_API, "Job")
    batch = _list(session, "batch/v1", "Job")
    pytorch = _list(session, PYTORCH_API, "PyTorchJob")
    if volcano is None and batch is None:
        raise UsageError(
            f"the jobs of namespace {session.namespace.name} may not be read with {session.kubeconfig}: "
            "its identity needs the team's access entry (`principals` of the namespace)"
        )
    trainer = _list(session, TRAINER_API, "TrainJob")
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
    with ThreadPoolExecutor(len(_AROUND)) as pool:
        asked = {
            kind: pool.submit(_list, session, api_version, kind, everywhere=not namespaced)
            for kind, (api_version, namespaced) in _AROUND.items()
        }
        found = {kind: answer.result() for kind, answer in asked.items()}
    # Pods of all teams that Volcano has placed: a researcher may not read them.
    others = _list(session, "v1", "Pod", everywhere=True, fields=f"spec.schedulerName={SCHEDULER}") or ()
    own = ("", session.namespace.name)
    found["Pod"] = [*(found["Pod"] or ()), *(pod for pod in others if namespace_of(pod) not in own)]
    return of_objects(
        now(),
        job.source,
        found,
        groups=session.outputs.node_groups,
        unscheduled=session.source.local.unscheduled if session.source.local else "",
        is_local=session.is_local,
    )


def in_cluster(session: Session, *kinds: tuple[str, str]) -> list[list[Object] | None]:
    """Return all objects of each kind in the whole cluster, read at the same time; None for a kind that may not be
    read."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        return [*pool.map(lambda each: _list(session, *each, everywhere=True), kinds)]


def pods_of(session: Session, job: WatchedJob) -> list[Object]:
    """Return the pods of a job of any kind."""
    api, namespace = session.api, session.namespace.name
    return [*api.list("v1", "Pod", namespace=namespace, labels=job.pod_selector)]


def in_rank_order(job: WatchedJob, pods: Sequence[Object]) -> list[Object]:
    """Return a job's pods, the pod of rank 0 first."""
    launcher = (job.source["metadata"].get("annotations") or {}).get(annotation("launcher"), "torchrun")
    try:
        return [*by_process_rank(pods, launcher)]
    except ValueError:
        return sorted(pods, key=name_of)


def log_path(session: Session, pod: str) -> str:
    """Return the path of a pod's log in the API."""
    return pod_logs.path(session.namespace.name, pod)


def log_tail(session: Session, pod: Object, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a pod's log; none where it cannot be read (not started, no kubelet, gone)."""
    return pod_logs.tail(session.api, session.namespace.name, pod, lines)


def progress_of(session: Session, job: WatchedJob, pods: Sequence[Object]) -> Progress | None:
    """Return the progress of a job, by the log of rank 0; None where that has no steps."""
    ordered = in_rank_order(job, pods)
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


def _list(
    session: Session, api_version: str, kind: str, *, everywhere: bool = False, fields: str = ""
) -> list[Object] | None:
    """Return all objects of a kind; none where the server does not serve it; None where they may not be read."""
    try:
        namespace = "" if everywhere else session.namespace.name
        return [*session.api.list(api_version, kind, namespace=namespace, fields=fields)]
    except NoSuchKindError:
        return []
    except ApiError as error:
        if error.status in (401, 403):
            return None
        raise


def keeps(session: Session) -> bool:
    """Return whether the stack keeps the log lines of deleted pods."""
    return session.source.paths is not None or bool(session.outputs.log_group)
