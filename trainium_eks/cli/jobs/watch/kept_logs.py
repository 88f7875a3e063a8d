"""``trn logs --since``: the log lines of a job's pods, deleted pods included, from the stack's log store.

On AWS the store is a CloudWatch log group, on the local cloud files of this machine. Lines of existing pods are read
from the API server, as without the option; the store adds the earlier lines.
"""

import heapq
import itertools
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainium_eks.cli.jobs.watch.live_logs import Printer, complain
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.logs import (
    LogOptions,
    PodFilter,
    Shown,
    check_choice,
    choose,
    has_begun,
    no_log,
    read_all,
    since_of,
    targets,
)
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.cluster_snapshot import moment
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.objects.identity import ROLE
from trainium_eks.jobs.watch.cloudwatch_logs import CloudWatchLogs
from trainium_eks.jobs.watch.log_lines import LogLine
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.agent import log_retention
from trainium_eks.local.runtime.output import timestamp

_BATCH = 1000
_TO_MILLISECONDS = len("2026-11-22T05:30:00.000")
"""Length of a line's time down to milliseconds, which every event in CloudWatch has."""


@dataclass(frozen=True)
class Sought:
    """A search in the log store: the job, its pods, and the start of the period."""

    job: str
    since: datetime
    wanted: PodFilter
    node: int | None = None
    """Only node of a removed job; None for all nodes."""
    until: Mapping[str, str] = field(default_factory=dict)
    """Pod to the time of its first line at the API server: only kept lines before that are shown."""

    @property
    def only_pod(self) -> str:
        """Name of the only pod in the search; empty for several, or where its name is not known."""
        return self.wanted.pods[0] if self.wanted.pods is not None and len(self.wanted.pods) == 1 else ""

    def place(self, pod: str) -> int | None:
        """Return a pod's place among the nodes; None for a pod outside the search."""
        if self.wanted.pods is not None:
            return self.wanted.places.get(pod, 0) if pod in self.wanted.pods else None
        node = node_of(self.job, pod)
        return node if node is not None and self.node in (None, node) else None

    def shown(self, pod: str, line: LogLine) -> Shown | None:
        """Return the line to show; None for a line outside the search."""
        place, until = self.place(pod), self.until.get(pod)
        is_read = until is not None and line.stamp[:_TO_MILLISECONDS] >= until[:_TO_MILLISECONDS]
        return None if place is None or is_read else Shown(pod, place, line)


def node_of(job: str, pod: str) -> int | None:
    """Return a node's number by the name that a controller gave its pod; None for a pod of another job.

    Args:
        job: as ``trn`` submits it in any form, or a Job of Kubernetes.
        pod: its name.
    """
    rest = pod.removeprefix(f"{job}-")
    # Names by Volcano in both shapes, by the Training Operator, by JobSet for a TrainJob, by a Job of Kubernetes.
    found = re.fullmatch(rf"{ROLE}-(\d+)-0|{ROLE}-(\d+)|worker-(\d+)|node-0-(\d+)-[a-z0-9]{{5}}|[a-z0-9]{{5}}", rest)
    if rest == pod or found is None:
        return None
    return int(next((each for each in found.groups() if each is not None), 0))


def run(session: Session, cluster: ClusterOptions, name: str, options: LogOptions) -> int:
    """Print the log lines of a job since a time; return the exit code.

    Raises:
        Failure: there is no such job and nothing of it is kept, or nothing can be read.
        ClusterError: the log store, or the API server, cannot be read.
    """
    found = reading.jobs(session)
    job = reading.named(found, name)
    if job is None and not reading.keeps(session):
        raise reading.no_such(session, name, found)
    since = since_of(options)
    if job is None:
        sought = _removed(name, options, since)
        printer = Printer(cluster, sought.wanted, several=sought.node is None, timestamps=options.timestamps)
        if not _print(printer, sought, [_kept(session, sought)], options):
            missing = reading.no_such(session, name, found)
            raise Failure(missing.code, f"{missing.title}; nothing that it wrote since {_second(since)} is kept")
        return 0
    # An earlier job of the same name is another job.
    return _of_job(session, cluster, job, options, max(since, job.created))


def _of_job(session: Session, cluster: ClusterOptions, job: WatchedJob, options: LogOptions, since: datetime) -> int:
    """Print the kept lines of a job's pods, and then the lines of its existing pods; return the exit code."""
    wanted, there = choose(job, options), reading.pods_of(session, job)
    chosen = targets(there, wanted)
    live, troubles = read_all(session, wanted, [pod for pod in chosen if has_begun(pod)])
    sought = Sought(job.name, since, wanted, until={lines[0].pod: lines[0].line.stamp for lines in live if lines})
    before: Iterator[Shown] = iter(())
    if reading.keeps(session) and not _are_all_there(job, chosen, sought):
        try:
            before = _begun(_kept(session, sought))
        except ClusterError as error:
            if not any(live):
                raise
            troubles.append(str(error))
    if not _print(Printer(cluster, wanted, timestamps=options.timestamps), sought, [before, *live], options):
        if troubles:
            raise Failure(FAILED, troubles[0])
        if not live:
            nothing = f"{job.name} wrote nothing since {_second(since)} that is kept"
            has_ended = job.ended is not None and reading.keeps(session)
            raise Failure(FAILED, nothing if has_ended else no_log(session, job, chosen, there))
    complain(troubles)
    return 0


def _removed(name: str, options: LogOptions, since: datetime) -> Sought:
    """Return the search for a removed job. Its numbers of nodes and ranks are gone with its object."""
    check_choice(options)
    if options.rank:
        title = f"--rank {options.rank}: {name} was removed, and how many ranks its nodes had; --node N shows a node"
        raise Failure(WRONG_USAGE, title)
    if options.everything:
        return Sought(name, since, PodFilter(None, {}, None, {}))
    return Sought(name, since, PodFilter(None, {}, 0 if options.node is None else None, {}), options.node or 0)


def _are_all_there(job: WatchedJob, pods: Sequence[Object], sought: Sought) -> bool:
    """Return whether all pods of the search exist, and are older than its period: then no deleted pod can have lines in
    it."""
    older = {name_of(pod) for pod in pods if moment(pod["metadata"]["creationTimestamp"]) < sought.since}
    names = sought.wanted.pods
    return older.issuperset(names) if names is not None else len(older) >= job.nodes


def _second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


# --- Log stores -------------------------------------------------------------------------------------------------------


def _kept(session: Session, sought: Sought) -> Iterator[Shown]:
    paths, group = session.source.paths, session.outputs.log_group
    lines = _in_files(session, sought) if paths is not None or group is None else _in_cloudwatch(session, group, sought)
    return (shown for pod, line in lines if (shown := sought.shown(pod, line)) is not None)


def _in_cloudwatch(session: Session, group: str, sought: Sought) -> Iterator[tuple[str, LogLine]]:
    pod = sought.only_pod
    prefix = f"{session.namespace.name}/{pod}/" if pod else f"{session.namespace.name}/{sought.job}-"
    return CloudWatchLogs(session.outputs.region, group).lines(prefix, sought.since)


def _in_files(session: Session, sought: Sought) -> Iterator[tuple[str, LogLine]]:
    assert session.source.paths is not None
    place, namespace = session.source.paths.kept, session.namespace.name
    pods = [pod for pod in log_retention.pods(place, namespace) if sought.place(pod) is not None]
    since = timestamp(sought.since.timestamp())
    logs = (log_retention.lines(place, namespace, pod, since) for pod in pods)
    merged = heapq.merge(*logs, key=lambda line: line.stamp)
    return ((line.pod, LogLine(line.stamp, line.text)) for line in merged)


def _begun(lines: Iterator[Shown]) -> Iterator[Shown]:
    """Return the same lines, with the first already read: where that fails, the other lines can still be shown."""
    first = [*itertools.islice(lines, 1)]
    return itertools.chain(first, lines)


# --- Output -----------------------------------------------------------------------------------------------------------


def _print(printer: Printer, sought: Sought, parts: Sequence[Iterable[Shown]], options: LogOptions) -> int:
    """Print the lines in the order of time; return their number."""
    lines: Iterable[Shown] = heapq.merge(*parts, key=lambda each: each.line.stamp)
    if options.tail is not None:
        lines = _last(lines, options.tail)
    asked = (each for each in lines if each.line.is_of(sought.wanted.local_rank))
    count = 0
    while batch := [*itertools.islice(asked, _BATCH)]:
        printer.write(batch)
        count += len(batch)
    return count


def _last(lines: Iterable[Shown], count: int) -> Iterator[Shown]:
    """Return the last lines of each node."""
    of_each: defaultdict[int, deque[Shown]] = defaultdict(lambda: deque(maxlen=count))
    for each in lines:
        of_each[each.place].append(each)
    return heapq.merge(*of_each.values(), key=lambda each: each.line.stamp)
