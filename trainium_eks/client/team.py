"""A team's training jobs from Python, for schedulers, pipelines and studies: what ``trn train``, ``wait``, ``logs``,
``status`` and ``cancel`` do, with the rights of the team's researcher.

.. code-block:: python

    from trainium_eks.client.team import TrainOptions, connect

    with connect(stack="local") as team:
        job = team.find("trial-7") or team.submit(TrainOptions(script="train.py", nodes=2, name="trial-7"))
        if job.wait(timeout_seconds=3600) == "Completed":
            print(job.metrics().last.loss)

A job goes on when the Python process ends; ``find`` with its name leads back to it. All calls block; a session and its
jobs may be used by several threads.

Errors, of all calls: :class:`~trainium_eks.client.failure.CommandError` (``title``, ``problems``) where the request
cannot be served, :class:`~trainium_eks.kube.errors.ClusterError` where the cluster refuses or does not answer.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_eks.client import ending, kept_logs, reading, sagemaker
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.ending import EndedJob
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.follow import follow
from trainium_eks.client.logs import JobLog, LogOptions, choose, read
from trainium_eks.client.notices import Say, notice
from trainium_eks.client.sagemaker_list import jobs_of
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.objects.identity import in_rank_order
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.observed.watched import of as watched_job
from trainium_eks.jobs.sagemaker.service import SageMakerWork
from trainium_eks.jobs.watch.steps import Progress, TrainingStep, parse, parse_all
from trainium_eks.kube.api import ApiError, ObjectReference
from trainium_eks.kube.errors import ClusterError

if TYPE_CHECKING:
    from trainium_eks.jobs.submit.requests import Submission

__all__ = ["EndedJob", "Job", "Progress", "Team", "TrainOptions", "TrainingStep", "WatchedJob", "connect"]

AWAY_SECONDS = 600.0
"""Longest time without an answer of the API server that a wait outlives."""

LOOK_SECONDS = 0.5

STEP_LINES = 5_000
"""Last lines of rank 0's log that are searched for steps. Lines of more than 800 bytes on average exceed the limit of a
reading (4 MiB), and the newest are missing."""


class Team:
    """One namespace of a stack, opened by :func:`connect`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        """The open connection, as the team's researcher."""

    @property
    def namespace(self) -> str:
        """Name of the team's namespace."""
        return self.session.namespace.name

    def submit(self, options: TrainOptions) -> "Job":
        """Validate and submit a job, as ``trn train --detach``; return the job.

        Args:
            options: the options of ``trn train``. ``detach``, ``wait`` and ``dry_run`` mean nothing here.

        Raises:
            CommandError: refused, with all problems; a job of that name exists; or ``on`` and ``torchx``, which only
                the command has.
        """
        if options.on != "eks" or options.torchx:
            raise UsageError("only `trn train` submits to SageMaker and by TorchX")
        return self.create(self.plan(options))

    def plan(self, options: TrainOptions, say: Say = notice) -> "Submission":
        """Return the job of the options, with all that belongs to it.

        Raises:
            CommandError: refused, with all problems.
        """
        from trainium_eks.client import submitting

        return submitting.plan(options, self.session, say)

    def create(self, submission: "Submission", say: Say = notice) -> "Job":
        """Let the API server validate the job, scale its node group up, and create it, or let TorchX do so."""
        from trainium_eks.client import submitting

        return Job(self.session, submitting.create(submission, self.session, say))

    def find(self, name: str) -> "Job | None":
        """Return the job of that name, ended or not; None without one."""
        found = reading.find_named(self.jobs(), name)
        return Job.of(self.session, found) if found else None

    def jobs(self) -> list[WatchedJob]:
        """Return the state of all jobs of the namespace on EKS, the newest first."""
        return reading.jobs(self.session)

    def log(self, name: str, options: LogOptions) -> JobLog:
        """Return the log of a job on EKS or SageMaker; with ``since`` also of a removed one.

        Raises:
            CommandError: no such job, or options that do not go together.
        """
        if (managed := sagemaker.find(self.session, name)) is not None:
            return managed.log(options)
        found = self.jobs()
        if (job := reading.find_named(found, name)) is not None:
            return _log(self.session, job, options)
        missing, keeps = reading.missing_job_error(self.session, name, found), reading.keeps(self.session)
        if options.reads_store:
            if not keeps:
                raise missing
            return kept_logs.read_removed(self.session, name, options, missing)
        offer = f". What a removed job wrote: trn logs {name} --since 24h" if keeps else ""
        raise UsageError(f"{missing.title}{offer}")

    def wait(self, name: str, timeout_seconds: float | None = None) -> str:
        """Wait for the end of a job on EKS or SageMaker, as :meth:`Job.wait`; return its state.

        Raises:
            TimeoutError: the job goes on after that time.
            CommandError: no such job, or it was deleted.
        """
        if (managed := sagemaker.find(self.session, name)) is not None:
            return managed.wait(timeout_seconds)
        return Job.of(self.session, reading.find(self.session, name)).wait(timeout_seconds)

    def jobs_to_cancel(self, name: str | None) -> list[WatchedJob]:
        """Return the job of that name on EKS or SageMaker; for None all that have not ended.

        Raises:
            CommandError: no such job.
        """
        found, managed = self.jobs(), jobs_of(self.session)
        if managed is not None:
            found += managed.jobs(None) if name is None else filter(None, [managed.find(name)])
        if name is None:
            return [each for each in found if each.ended is None]
        if wanted := [each for each in found if each.name == name]:
            return wanted
        raise reading.missing_job_error(self.session, name, found)

    def cancel(self, job: WatchedJob, say: Say = notice) -> EndedJob:
        """Delete a job and wait until its pods are gone; a job of SageMaker is stopped, and keeps its name.

        Raises:
            CommandError: an endpoint of SageMaker.
        """
        managed = jobs_of(self.session)
        if managed is not None and isinstance(job, SageMakerWork):
            return sagemaker.stop(managed, job)
        return ending.end(self.session, job, say)


class Job:
    """One job of the team; it need not have begun."""

    def __init__(self, session: Session, reference: ObjectReference) -> None:
        self._session = session
        self._reference = reference

    @classmethod
    def of(cls, session: Session, state: WatchedJob) -> "Job":
        """Return the job of a state."""
        return cls(session, session.api.reference(state.source))

    @property
    def name(self) -> str:
        """Name of the job."""
        return self._reference.name

    def state(self) -> WatchedJob:
        """Return the job as the cluster has it now.

        Raises:
            CommandError: the job was deleted.
        """
        return reading.find(self._session, self.name)

    def wait(self, timeout_seconds: float | None = None) -> str:
        """Wait for the job's end; return its state: ``Completed``, or ``Failed``, ``Aborted``, ``Terminated``.

        An API server that does not answer is asked again for up to :data:`AWAY_SECONDS`.

        Args:
            timeout_seconds: longest wait; None for no end.

        Raises:
            TimeoutError: the job goes on after that time.
            CommandError: the job was deleted.
        """
        begun = answered = time.monotonic()
        while True:
            try:
                found = self._session.api.get(self._reference)
            except ApiError:
                raise
            except ClusterError:
                if time.monotonic() - answered >= AWAY_SECONDS:
                    raise
            else:
                answered = time.monotonic()
                if found is None:
                    raise CommandError(f"the job {self.name} was deleted")
                seen = watched_job(found)
                if seen.ended is not None:
                    return seen.state
            if timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
                raise TimeoutError(f"{self.name} has not ended after {timeout_seconds:g} s")
            time.sleep(LOOK_SECONDS)

    def log(self, options: LogOptions) -> JobLog:
        """Return the job's log, as :meth:`Team.log`."""
        return _log(self._session, self.state(), options)

    def logs(self, *, rank: int | None = None, everything: bool = False, follow: bool = False) -> Iterator[str]:
        """Yield the lines of existing pods.

        Args:
            rank: global rank; None for rank 0.
            everything: of all nodes, in the order of their times.
            follow: go on with coming lines until the job has ended, over restarts and broken connections.

        Raises:
            CommandError: no such rank, both arguments, or more nodes than can be followed.
        """
        log = self.log(LogOptions(rank=rank, everything=everything, follow=follow))
        if log.troubles:
            raise ClusterError(log.troubles[0])
        for each in log.lines():
            yield each.line.text

    def steps(self) -> list[TrainingStep]:
        """Return the steps in the last :data:`STEP_LINES` lines of rank 0's log, in the order of their lines; none
        before the first."""
        job = self.state()
        pods = in_rank_order(job.source, reading.pods_of(self._session, job))
        return parse_all(reading.log_tail(self._session, pods[0], STEP_LINES)) if pods else []

    def follow_steps(self) -> Iterator[TrainingStep]:
        """Yield each step that rank 0 reports, from its first to the end of the job, as ``logs(follow=True)``.

        A gang that starts again repeats the steps after its last checkpoint; a job that has ended yields all.
        """
        for line in self.logs(follow=True):
            if (step := parse(line)) is not None:
                yield step

    def metrics(self, wait_seconds: float = 0.0) -> Progress | None:
        """Return the last step with its loss, pace and checkpoint; None before the first step.

        Args:
            wait_seconds: longest time to read again while there is no step. The log of a job that has ended cannot be
                read while the agent of its node starts again.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            job = self.state()
            measured = reading.progress_of(self._session, job, reading.pods_of(self._session, job))
            if measured is not None or time.monotonic() >= deadline:
                return measured
            time.sleep(LOOK_SECONDS)

    def cancel(self) -> EndedJob | None:
        """Delete the job and wait until its pods are gone; None where no such job was there."""
        found = reading.find_named(reading.jobs(self._session), self.name)
        return ending.end(self._session, found, notice) if found else None


def _log(session: Session, job: WatchedJob, options: LogOptions) -> JobLog:
    if options.reads_store:
        return kept_logs.read(session, job, options)
    wanted = choose(job, options)
    return follow(session, job, wanted, notice) if options.follow else read(session, job, wanted)


@contextmanager
def connect(
    stack: str = "local",
    *,
    namespace: str | None = None,
    outputs: Path | None = None,
    kubeconfig: Path | None = None,
    directory: Path | None = None,
) -> Iterator[Team]:
    """Open a team's namespace of a stack, as the options of the same names do for every command.

    Args:
        stack: name of the stack; ``local`` for the local cloud.
        namespace: None for the one of the kubeconfig, else the stack's first.
        outputs: file with the stack's outputs, for users without access to Pulumi.
        kubeconfig: file in place of the kubeconfig in the outputs.
        directory: the Pulumi project; None for the nearest from here upwards.

    Raises:
        CommandError: no stack, no such namespace, or no way to the cluster.
    """
    with open_team(ClusterOptions(stack, namespace, outputs, kubeconfig, directory)) as team:
        yield team


@contextmanager
def open_team(options: ClusterOptions) -> Iterator[Team]:
    """Open a team's namespace, as :func:`connect` does."""
    with open_session(options) as session:
        yield Team(session)
