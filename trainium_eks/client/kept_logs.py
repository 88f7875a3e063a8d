"""The log lines of a job's pods since a time, deleted pods included, from the stack's log store.

On AWS the store is a CloudWatch log group, on the local cloud files of this machine. Lines of existing pods are read
from the API server, as without a time; the store adds the earlier lines.
"""

import heapq
import itertools
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainium_eks.client import logs, reading
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.logs import JobLog, LogOptions, PodFilter, PodLine
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects.identity import ROLE
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.watch.cloudwatch_logs import CloudWatchLogs
from trainium_eks.jobs.watch.log_lines import LogLine
from trainium_eks.kube.cluster import Object, moment, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.kept_logs import read_kept_logs

_TO_MILLISECONDS = len("2026-11-22T05:30:00.000")
"""Length of a line's time down to milliseconds, which every event in CloudWatch has."""


@dataclass(frozen=True)
class _Search:
    """A search in the log store: the job, its pods, and the start of the period."""

    job: str
    since: datetime
    wanted: PodFilter
    node: int | None = None
    """Only node of a removed job; None for all nodes."""
    until: Mapping[str, str] = field(default_factory=dict)
    """Pod to the time of its first line at the API server: only kept lines before that are shown."""

    def place(self, pod: str) -> int | None:
        """Return a pod's place among the nodes; None for a pod outside the search."""
        if self.wanted.pods is not None:
            return self.wanted.places.get(pod, 0) if pod in self.wanted.pods else None
        node = node_of(self.job, pod)
        return node if node is not None and self.node in (None, node) else None

    def shown(self, pod: str, line: LogLine) -> PodLine | None:
        """Return the line to show; None for a line outside the search."""
        place, until = self.place(pod), self.until.get(pod)
        is_read = until is not None and line.stamp[:_TO_MILLISECONDS] >= until[:_TO_MILLISECONDS]
        return None if place is None or is_read else PodLine(pod, place, line)


def node_of(job: str, pod: str) -> int | None:
    """Return a node's number by the name that a controller gave its pod; None for a pod of another job."""
    rest = pod.removeprefix(f"{job}-")
    # Names by Volcano in both shapes, by the Training Operator, by JobSet for a TrainJob, by a Job of Kubernetes.
    found = re.fullmatch(rf"{ROLE}-(\d+)-0|{ROLE}-(\d+)|worker-(\d+)|node-0-(\d+)-[a-z0-9]{{5}}|[a-z0-9]{{5}}", rest)
    if rest == pod or found is None:
        return None
    return int(next((each for each in found.groups() if each is not None), 0))


def read_removed(session: Session, name: str, options: LogOptions, missing: CommandError) -> JobLog:
    """Return the lines of a removed job since ``options.since``; ``missing`` is the failure for its unknown name."""
    logs.check_choice(options)
    if options.rank:  # the job's numbers of nodes and ranks are gone with its object
        title = f"--rank {options.rank}: {name} was removed, and how many ranks its nodes had; --node N shows a node"
        raise UsageError(title)
    rank = None if options.everything or options.node is not None else 0
    node = None if options.everything else options.node or 0
    sought = _Search(name, logs.since_of(options), PodFilter(None, {}, rank, {}), node)
    title = f"{missing.title}; nothing that it wrote since {_second(sought.since)} is kept"
    lines = _in_order([_kept(session, sought)], sought, options)
    # The names of its pods are not known, but the only node is.
    return JobLog(logs.batches(lines), None if sought.node is None else 1, nothing=UsageError(title))


def read(session: Session, job: WatchedJob, options: LogOptions) -> JobLog:
    """Return the lines of a job since ``options.since``: kept ones, and then the lines of its existing pods."""
    # An earlier job of the same name is another job.
    since = max(logs.since_of(options), job.created)
    wanted, there = logs.choose(job, options), reading.pods_of(session, job)
    chosen = logs.targets(there, wanted)
    live, troubles = logs.read_all(session, wanted, [pod for pod in chosen if logs.has_begun(pod)])
    sought = _Search(job.name, since, wanted, until={lines[0].pod: lines[0].line.stamp for lines in live if lines})
    before: Iterator[PodLine] = iter(())
    if reading.keeps(session) and not _are_all_there(job, chosen, sought):
        try:
            kept = _kept(session, sought)
            # The first is read here: where that fails, the other lines can still be shown.
            before = itertools.chain([*itertools.islice(kept, 1)], kept)
        except ClusterError as error:
            if not any(live):
                raise
            troubles.append(str(error))
    nothing = None
    if troubles:
        nothing = CommandError(troubles[0])
    elif not live and job.ended is not None and reading.keeps(session):
        nothing = CommandError(f"{job.name} wrote nothing since {_second(since)} that is kept")
    elif not live:
        nothing = CommandError(logs.no_log(session, job, chosen, there))
    lines = _in_order([before, *live], sought, options)
    return JobLog(logs.batches(lines), wanted.nodes, troubles, nothing, job)


def _are_all_there(job: WatchedJob, pods: Sequence[Object], sought: _Search) -> bool:
    """Return whether all pods of the search exist, and are older than its period: then no deleted pod can have lines in
    it."""
    older = {name_of(pod) for pod in pods if moment(pod["metadata"]["creationTimestamp"]) < sought.since}
    names = sought.wanted.pods
    return older.issuperset(names) if names is not None else len(older) >= job.nodes


def _second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _kept(session: Session, sought: _Search) -> Iterator[PodLine]:
    paths, group, namespace = session.source.paths, session.outputs.log_group, session.namespace.name
    lines: Iterable[tuple[str, LogLine]]
    if paths is not None:
        found = read_kept_logs(paths, namespace, sought.since, lambda pod: sought.place(pod) is not None)
        lines = ((line.pod, LogLine(line.stamp, line.text)) for line in found)
    else:
        assert group is not None
        pods = [*(sought.wanted.pods or ())]
        prefix = f"{namespace}/{pods[0]}/" if len(pods) == 1 else f"{namespace}/{sought.job}-"
        lines = CloudWatchLogs(session.outputs.region, group).lines(prefix, sought.since)
    return (shown for pod, line in lines if (shown := sought.shown(pod, line)) is not None)


def _in_order(parts: Sequence[Iterable[PodLine]], sought: _Search, options: LogOptions) -> Iterator[PodLine]:
    """Return the lines of the chosen rank in the order of time; with ``tail`` the last ones of each node."""
    lines: Iterable[PodLine] = heapq.merge(*parts, key=lambda each: each.line.stamp)
    if options.tail is not None:
        of_each: defaultdict[int, deque[PodLine]] = defaultdict(lambda: deque(maxlen=options.tail))
        for each in lines:
            of_each[each.place].append(each)
        lines = heapq.merge(*of_each.values(), key=lambda each: each.line.stamp)
    return (each for each in lines if each.line.is_of(sought.wanted.local_rank))
