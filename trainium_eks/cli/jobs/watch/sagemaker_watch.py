"""SageMaker's training jobs in the watching commands: listed, followed, stopped."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from trainium_eks.cli.jobs.watch.live_logs import Printer
from trainium_eks.client import notices
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure
from trainium_eks.client.logs import LogOptions, PodFilter, Shown, check_choice, since_of
from trainium_eks.client.session import Session
from trainium_eks.jobs.sagemaker.service import SageMakerJobs, SageMakerWork
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.pod_text import printable

LOOK_SECONDS = 5.0
"""Seconds between two reads of a job: SageMaker's requests are limited for the whole account."""

LIST_SECONDS = 15.0
"""Seconds between two lists of jobs in a live view."""

LATE_MS = 30_000
"""Milliseconds by which CloudWatch may show a line after a later one."""


def of_session(session: Session) -> SageMakerJobs | None:
    """Return the training jobs of the session's namespace; None for a stack without SageMaker, or a local cloud."""
    where = session.outputs.sage_maker
    if where is None or session.is_local:
        return None
    return SageMakerJobs(session.outputs.region, where, session.namespace.name)


class ListedJobs:
    """The jobs of SageMaker in a table of all jobs, read again every :data:`LIST_SECONDS`.

    Args:
        session: of the caller.
        age: of the listed jobs' end, at most.
    """

    def __init__(self, session: Session, age: timedelta) -> None:
        self._jobs, self._age = of_session(session), age
        self._read = -LIST_SECONDS
        self._found: list[SageMakerWork] = []

    def at(self, now: datetime) -> list[SageMakerWork]:
        """Return the jobs that go on or ended recently. Where AWS does not answer, a notice says so: the cluster's jobs
        are shown all the same."""
        if self._jobs is not None and time.monotonic() - self._read >= LIST_SECONDS:
            self._read = time.monotonic()
            try:
                self._found = [*self._jobs.jobs(now - self._age), *self._jobs.endpoints()]
            except ClusterError as error:
                notices.notice(f"SageMaker's jobs are not shown: {error}")
        return self._found


def find(session: Session, name: str) -> tuple[SageMakerJobs, SageMakerWork] | None:
    """Return the job of a name with its service; None where SageMaker has none.

    Raises:
        ClusterError: AWS does not answer.
    """
    jobs = of_session(session)
    job = jobs.find(name) if jobs else None
    return (jobs, job) if jobs is not None and job is not None else None


def logs(jobs: SageMakerJobs, job: SageMakerWork, options: LogOptions, cluster: ClusterOptions) -> int:
    """Print a job's log; return the exit code.

    Raises:
        Failure: an option that SageMaker's logs cannot serve, or there is no log yet.
        ClusterError: AWS does not answer.
    """
    check_choice(options)
    if options.previous:
        raise Failure(WRONG_USAGE, "--previous is for jobs on EKS: SageMaker keeps all of a job's log")
    if options.rank:
        raise Failure(WRONG_USAGE, f"--rank {options.rank}: --node N shows all ranks of a node")
    if options.node is not None and not 0 <= options.node < job.nodes:
        raise Failure(WRONG_USAGE, f"--node {options.node}: {job.name} has nodes 0 to {job.nodes - 1}")
    node = None if options.everything else options.node or 0
    since = round(since_of(options).timestamp() * 1000) if options.since is not None else 0
    if options.follow:
        return follow(jobs, job.name, node, cluster, since, timestamps=options.timestamps)
    shown: Iterable[Shown] = (
        each
        for each in (Shown(job.name, place, line) for _, place, _, line in jobs.lines(job, node, since))
        if each.line.is_of(_local_rank(options))
    )
    if options.tail is not None:
        shown = deque(shown, maxlen=options.tail)
    found = [*shown]
    if not found:
        raise Failure(FAILED, f"{job.name} has no log yet: it is {job.state}{_why(job)}")
    _printer(cluster, node, options.timestamps).write(found)
    return 0


def follow(
    jobs: SageMakerJobs,
    name: str,
    node: int | None,
    cluster: ClusterOptions,
    since_ms: int = 0,
    *,
    timestamps: bool = False,
) -> int:
    """Print lines as they come until the job has ended; return 0 when it succeeded."""
    printer, seen = _printer(cluster, node, timestamps), _Seen(since_ms)
    try:
        while True:
            # First the state: lines of a job that has ended by then are all there, or come within one more read.
            job = jobs.find(name)
            if job is None:
                raise Failure(FAILED, f"the job {name} is not there")
            printer.write(seen.new(jobs, job, node))
            if job.ended is not None:
                time.sleep(LOOK_SECONDS)
                printer.write(seen.new(jobs, job, node))
                notices.notice(f"{name} is {job.state}{_why(job)}")
                return 0 if job.state == "Completed" else FAILED
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        notices.notice(f"{name} goes on: trn logs {name} -f, trn cancel {name}")
        return INTERRUPTED


def wait(jobs: SageMakerJobs, name: str, timeout_seconds: float | None = None) -> SageMakerWork:
    """Wait until the job has ended; return it.

    Raises:
        TimeoutError: the job goes on after that time.
        Failure: it is not there.
        ClusterError: AWS does not answer.
    """
    begun = time.monotonic()
    while True:
        job = jobs.find(name)
        if job is None:
            raise Failure(FAILED, f"the job {name} is not there")
        if job.ended is not None:
            return job
        if timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
            raise TimeoutError(f"{name} has not ended after {timeout_seconds:g} s")
        time.sleep(LOOK_SECONDS)


class _Seen:
    """Lines that were shown, so that overlapping reads show each once."""

    def __init__(self, since_ms: int) -> None:
        self._from = since_ms
        self._ids: dict[str, int] = {}

    def new(self, jobs: SageMakerJobs, job: SageMakerWork, node: int | None) -> Iterator[Shown]:
        """Yield the lines that have come since the last read; late lines, too."""
        for event, place, moment, line in jobs.lines(job, node, self._from):
            if event not in self._ids:
                self._ids[event] = moment
                if node is None or line.is_of(0):
                    yield Shown(job.name, place, line)
        latest = max(self._ids.values(), default=self._from + LATE_MS)
        self._from = max(self._from, latest - LATE_MS)
        self._ids = {event: moment for event, moment in self._ids.items() if moment >= self._from}


def _local_rank(options: LogOptions) -> int | None:
    """Return the rank to show: 0, without a request for a node or for all; None for all ranks."""
    return None if options.everything or options.node is not None else 0


def _printer(cluster: ClusterOptions, node: int | None, timestamps: bool) -> Printer:
    return Printer(cluster, PodFilter(None, {}, None, {}), several=node is None, timestamps=timestamps)


def _why(job: SageMakerWork) -> str:
    return f": {printable(job.reason)}" if job.reason else ""
