"""SageMaker's jobs of a team: listed, followed, awaited. They need the stack's outputs and rights of AWS, and
no cluster."""

import time
from collections.abc import Iterator

from trainium_eks.client.ending import EndedJob
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.logs import JobLog, LogOptions, PodLine, check_choice, since_of
from trainium_eks.client.notices import notice
from trainium_eks.client.sagemaker_list import jobs_of
from trainium_eks.client.session import Session
from trainium_eks.jobs.sagemaker.service import ENDPOINT, SageMakerJobs, SageMakerWork
from trainium_eks.kube.pod_text import printable

LOOK_SECONDS = 5.0
"""Seconds between two reads of a job: SageMaker's requests are limited for the whole account."""

LATE_MS = 30_000
"""Milliseconds by which CloudWatch may show a line after a later one."""


def stop(jobs: SageMakerJobs, job: SageMakerWork) -> EndedJob:
    """Stop a running or waiting job; no other job can have its name. CommandError: an endpoint, which ``trn serve``
    ends."""
    if job.kind == ENDPOINT:
        raise UsageError(f"{job.name} is an endpoint: trn serve --on sagemaker --stop {job.name} ends it")
    if job.ended is None:
        jobs.stop(job)
    return EndedJob(job.name, 0, job.checkpoints, None, (), stopping=job.ended is None)


def find(session: Session, name: str) -> "ManagedJob | None":
    """Return the job of that name; None if SageMaker has no such job."""
    jobs = jobs_of(session)
    return ManagedJob(jobs, name) if jobs is not None and jobs.find(name) is not None else None


class ManagedJob:
    """One job of the team on SageMaker."""

    def __init__(self, jobs: SageMakerJobs, name: str) -> None:
        self._jobs = jobs
        self.name = name

    def state(self) -> SageMakerWork:
        """Return the job as SageMaker has it now. CommandError: it is not there."""
        job = self._jobs.find(self.name)
        if job is None:
            raise CommandError(f"the job {self.name} is not there")
        return job

    def wait(self, timeout_seconds: float | None = None) -> str:
        """Wait until the job has ended; return its state. TimeoutError: it goes on after that time."""
        begun = time.monotonic()
        while True:
            job = self.state()
            if job.ended is not None:
                return job.state
            if timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
                raise TimeoutError(f"{self.name} has not ended after {timeout_seconds:g} s")
            time.sleep(LOOK_SECONDS)

    def log(self, options: LogOptions) -> JobLog:
        """Return the lines that the job has written; with ``follow`` those to come, too."""
        job = self.state()
        node, since = _choose_node(job, options)
        nodes = None if node is None else 1
        if options.follow:
            return JobLog(self._coming_lines(node, since), nodes, state=lambda: self.state().state)
        rank = None if options.everything or options.node is not None else 0
        lines = self._jobs.lines(job, node, since)
        found = [PodLine(job.name, place, line) for _, place, _, line in lines if line.is_of(rank)]
        if options.tail is not None:
            found = found[-options.tail :] if options.tail else []
        nothing = CommandError(f"{job.name} has no log yet: it is {job.state}{why(job)}")
        return JobLog(iter([found]), nodes, nothing=nothing)

    def _coming_lines(self, node: int | None, since_ms: int) -> Iterator[list[PodLine]]:
        """Yield the lines as they come, with late ones, until the job has ended; then a notice says how."""
        seen: dict[str, int] = {}
        is_last = False
        while True:
            # First the state: lines of a job that has ended by then are all there, or come within one more read.
            job = self.state()
            batch = []
            for event, place, moment, line in self._jobs.lines(job, node, since_ms):
                if event not in seen:
                    seen[event] = moment
                    if node is None or line.is_of(0):
                        batch.append(PodLine(job.name, place, line))
            yield batch
            if is_last:
                notice(f"{self.name} is {job.state}{why(job)}")
                return
            is_last = job.ended is not None
            since_ms = max(since_ms, max(seen.values(), default=since_ms + LATE_MS) - LATE_MS)
            seen = {event: moment for event, moment in seen.items() if moment >= since_ms}
            time.sleep(LOOK_SECONDS)


def _choose_node(job: SageMakerWork, options: LogOptions) -> tuple[int | None, int]:
    """Return the chosen node, None for all, and the start of the log in milliseconds."""
    check_choice(options)
    if options.previous:
        raise UsageError("--previous is for jobs on EKS: SageMaker keeps all of a job's log")
    if options.rank:
        raise UsageError(f"--rank {options.rank}: --node N shows all ranks of a node")
    if options.node is not None and not 0 <= options.node < job.nodes:
        raise UsageError(f"--node {options.node}: {job.name} has nodes 0 to {job.nodes - 1}")
    since = round(since_of(options).timestamp() * 1000) if options.since is not None else 0
    return None if options.everything else options.node or 0, since


def why(job: SageMakerWork) -> str:
    """Return SageMaker's reason for a job's state, after a colon; empty without one."""
    return f": {printable(job.reason)}" if job.reason else ""
