"""Logs of existing pods: the choice of pods and ranks, and their lines."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from trainium_eks.client import reading
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import Session
from trainium_eks.diagnose.why_pending import why
from trainium_eks.jobs.objects.identity import launcher_of
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.watch.endings import exits, first_failure
from trainium_eks.jobs.watch.log_lines import LogLine, parse, pod_names, seconds
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.cluster import Object, name_of

MOST_NODES = 10_000
"""Most nodes of a job for which ranks have names. A job may ask for thousands of millions."""


@dataclass(frozen=True)
class LogOptions:
    """The options of one call."""

    rank: int | None = None
    node: int | None = None
    """All ranks of the node at this place."""
    everything: bool = False
    """All nodes."""
    follow: bool = False
    since: str | None = None
    tail: int | None = None
    previous: bool = False

    @property
    def reads_store(self) -> bool:
        """Whether the stack's log store is read, too, which has the lines of deleted pods."""
        return self.since is not None and not self.follow and not self.previous


@dataclass(frozen=True)
class PodFilter:
    """Choice of pods and ranks for the log."""

    pods: tuple[str, ...] | None
    """Names; None for all pods that the job has."""
    places: dict[str, int]
    local_rank: int | None
    """One rank of its node; None for all."""
    query: dict[str, str]
    """Parameters of the API's logs."""

    @property
    def nodes(self) -> int | None:
        """Number of the chosen nodes; None for all pods that the job has."""
        return len(self.pods) if self.pods is not None else None


@dataclass(frozen=True)
class PodLine:
    """A line with its pod."""

    pod: str
    place: int
    line: LogLine


@dataclass(frozen=True)
class JobLog:
    """The chosen lines of a job, from its pods, the log store, or SageMaker."""

    batches: Iterator[Sequence[PodLine]]
    """Lines in the order of time; of a followed log as they come, and empty batches while none come."""
    nodes: int | None = None
    """Number of nodes that the lines are of; None where the names of the pods do not tell it."""
    troubles: list[str] = field(default_factory=list)
    """Errors of logs that could not be read."""
    nothing: CommandError | None = None
    """The failure if there are no lines; None where the job has lines, of other ranks."""
    job: WatchedJob | None = None
    """The job on the cluster; None for a removed one, and for one of SageMaker."""
    state: Callable[[], str] = str
    """Returns the state in which a followed job has ended; empty for a removed one."""

    def lines(self) -> Iterator[PodLine]:
        """Yield the lines one by one."""
        for batch in self.batches:
            yield from batch


BATCH_LINES = 1000


def batches(lines: Iterator[PodLine]) -> Iterator[Sequence[PodLine]]:
    """Yield lines in batches, each as it is read."""
    while batch := [*itertools.islice(lines, BATCH_LINES)]:
        yield batch


def choose(job: WatchedJob, options: LogOptions) -> PodFilter:
    """Return the pods and ranks that the options choose."""
    check_choice(options)
    if options.previous and options.follow:
        raise UsageError("the previous container writes no more: give --previous without --follow")
    query = _query(options)
    if not job.names_its_pods or job.nodes > MOST_NODES:
        return PodFilter(None, {}, None, query)
    names = pod_names(job.source, launcher_of(job.source))
    if not names:  # a job without tasks, which Volcano refuses and its CRD allows
        return PodFilter(None, {}, None, query)
    places = {name: place for place, name in enumerate(names)}
    if options.everything:
        return PodFilter(tuple(names), places, None, query)
    place, local_rank = _place(job, options, len(names))
    return PodFilter((names[place],), places, local_rank, query)


def check_choice(options: LogOptions) -> None:
    """Refuse more than one of ``--rank``, ``--node`` and ``--all``."""
    chosen = [each for each, given in (("--rank", options.rank), ("--node", options.node)) if given is not None]
    if options.everything:
        chosen.append("--all")
    if len(chosen) > 1:
        raise UsageError(f"give one of {' and '.join(chosen)}")


def _place(job: WatchedJob, options: LogOptions, nodes: int) -> tuple[int, int | None]:
    """Return the node's place, and the rank on it."""
    if options.node is not None:
        if not 0 <= options.node < nodes:
            raise UsageError(f"--node {options.node}: {job.name} has nodes 0 to {nodes - 1}")
        return options.node, None
    rank = options.rank or 0
    each = job.ranks_per_node
    if each is None:
        if rank == 0:
            return 0, 0
        title = f"--rank {rank}: {job.name} does not say how many ranks a node has; --node N shows all of a node"
        raise UsageError(title)
    if not 0 <= rank < nodes * each:
        raise UsageError(f"--rank {rank}: {job.name} has ranks 0 to {nodes * each - 1}")
    return divmod(rank, each)


def _query(options: LogOptions) -> dict[str, str]:
    query = {"timestamps": "true"}
    if options.since is not None:
        ago = seconds(options.since)
        query |= {"sinceSeconds": str(ago)} if ago else {"sinceTime": f"{since_of(options):%Y-%m-%dT%H:%M:%SZ}"}
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.previous:
        query["previous"] = "true"
    return query


def since_of(options: LogOptions) -> datetime:
    """Return the start of ``--since``, in UTC."""
    text = options.since or ""
    ago = seconds(text)
    if ago:
        return reading.now() - timedelta(seconds=ago)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageError(f"--since {text}: give a time such as 90s, 10m or 2h, or when it was: 2026-11-22T05:30:00Z")
    return at.astimezone(UTC)


def targets(pods: Sequence[Object], wanted: PodFilter) -> list[Object]:
    """Return the chosen pods, in the order of their places."""
    found = [pod for pod in pods if wanted.pods is None or name_of(pod) in wanted.pods]
    return sorted(found, key=lambda pod: (wanted.places.get(name_of(pod), 0), name_of(pod)))


def read(session: Session, job: WatchedJob, wanted: PodFilter) -> JobLog:
    """Return the lines of the chosen pods and rank."""
    there = reading.pods_of(session, job)
    chosen = targets(there, wanted)
    pods = [pod for pod in chosen if has_begun(pod)]
    if not pods:
        reason = no_log(session, job, chosen, there)
        return JobLog(iter(()), wanted.nodes, nothing=CommandError(reason), job=job)
    answers, troubles = read_all(session, wanted, pods)
    merged = heapq.merge(*answers, key=lambda each: each.line.stamp)
    lines = (each for each in merged if each.line.is_of(wanted.local_rank))
    nothing = CommandError(troubles[0]) if troubles else None
    return JobLog(batches(lines), wanted.nodes, troubles, nothing, job)


def read_all(session: Session, wanted: PodFilter, pods: Sequence[Object]) -> tuple[list[list[PodLine]], list[str]]:
    """Return the lines of each pod, with all its ranks, and the errors of unreadable logs."""

    def read(pod: Object) -> tuple[list[PodLine], str]:
        place = wanted.places.get(name_of(pod), 0)
        try:
            text = session.api.text("GET", reading.log_path(session, name_of(pod)), query=_of(pod, wanted.query))
        except ApiError as error:
            return [], _why_none(pod, wanted, error)
        lines = (parse(line) for line in text.removesuffix("\n").split("\n") if text)
        return [PodLine(name_of(pod), place, line) for line in lines], ""

    with ThreadPoolExecutor(reading.THREADS) as pool:
        answers = [*pool.map(read, pods)]
    return [lines for lines, _ in answers], list(dict.fromkeys(trouble for _, trouble in answers if trouble))


def _of(pod: Object, query: dict[str, str]) -> dict[str, str]:
    """Return the parameters, with the container of a pod that has several: the first is the training."""
    containers = (pod.get("spec") or {}).get("containers") or []
    return {**query, "container": containers[0]["name"]} if len(containers) > 1 else query


def has_begun(pod: Object) -> bool:
    """Return whether a container of the pod has run. Of a pod without a node the API server gives an empty log, and no
    error."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in state or "terminated" in state for state in (each.get("state") or {} for each in statuses))


def no_log(session: Session, job: WatchedJob, chosen: Sequence[Object], there: Sequence[Object]) -> str:
    """Return the reason why there is no log, and other places to look."""
    if job.ended is not None and not chosen:
        return f"{job.name} is {job.state.lower()}: {_explain_missing_pods(session, job, there)}"
    return f"{job.name} has no log yet: {waiting_for(session, job) or 'its containers are being made'}"


def _explain_missing_pods(session: Session, job: WatchedJob, there: Sequence[Object]) -> str:
    which = "that pod is gone" if there else "the pods are gone"
    left = f"what is left: trn logs {job.name} --all" if there else "what it wrote is on the volume"
    if reading.keeps(session):
        since = f"{job.created.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return f"{which}; what was written since its beginning is kept: trn logs {job.name} --since {since}"
    return f"{which}, and the log too (observability.logs of the stack's config would keep it); {left}"


def waiting_for(session: Session, job: WatchedJob) -> str:
    """Return the reason why the job has not begun, with its remedy; empty when it has."""
    reason = why(reading.job_snapshot(session, job)) if job.is_gang else None
    if reason is None:
        return ""
    return f"{reason.sentence}\n  → {reason.fix}" if reason.fix else reason.sentence


def first_failed(session: Session, job: WatchedJob) -> str:
    """Return which node of a failed job ended first and how, with the command that shows its log; empty where no pod
    is left that tells."""
    first = first_failure(exits(reading.pods_of(session, job)))
    if first is None:
        return ""
    places = choose(job, LogOptions(everything=True)).places
    shows = f"\n  → trn logs {job.name} --node {places[first.pod]}" if first.pod in places else ""
    node = f"node {first.node} ({first.pod})" if first.node is not None else first.pod
    return f"{node} ended first with {first.meaning}{shows}"


def _why_none(pod: Object, wanted: PodFilter, error: Exception) -> str:
    if "previous" in wanted.query:
        return (
            f"{name_of(pod)} has no previous log: its container has not been restarted in its pod. A gang that "
            "restarts gets new pods, and the logs of the old ones go with them (trn logs --follow shows them in time)"
        )
    return f"the log of {name_of(pod)} cannot be read: {error}"
