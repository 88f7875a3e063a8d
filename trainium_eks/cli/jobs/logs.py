"""``trn logs``: the output of a job's ranks, once or as it comes."""

import dataclasses
import functools
from typing import Annotated

import typer

from trainium_eks.cli.shared import log_lines
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.log_lines import Printer
from trainium_eks.cli.shared.with_cluster_options import Job, with_cluster_options
from trainium_eks.client import kept_logs, reading, sagemaker
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, CommandError
from trainium_eks.client.follow import Follower
from trainium_eks.client.logs import LogOptions, PodFilter, choose, first_failed, read
from trainium_eks.client.notices import notice, say
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.observed.job_snapshot import FAILURES
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.sagemaker.service import SageMakerJobs, SageMakerWork
from trainium_eks.kube.pod_text import printable

app = App()


@app.command(example="trn logs bert-tiny --follow")
@with_cluster_options
def logs(
    job: Job,
    rank: Annotated[int | None, typer.Option("--rank", "-r", help="Rank to show; default: 0.")] = None,
    node: Annotated[int | None, typer.Option("--node", help="Show all ranks of this node, counted from 0.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all nodes, each line with its node.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends, across restarts.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Show lines since 90s, 10m or 2h ago, or since a time; includes deleted pods."),
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Show only the last lines of each node.")] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Show the container before its last restart in the same pod.")
    ] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Show a timestamp before each line.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show a job's log: rank 0, another rank, or all. With --since also of deleted pods and jobs.

    Exit code: 0; 1 when there is no log, and with --follow when the job did not succeed; 2 for wrong usage.
    """
    options = LogOptions(rank, node, everything, follow, since, tail, previous)
    with open_session(cluster) as session:
        if (managed := sagemaker.find(session, job)) is not None:
            raise typer.Exit(_of_sagemaker(*managed, options, cluster, timestamps=timestamps))
        printed = functools.partial(log_lines.Printer, cluster, timestamps=timestamps)
        if since is not None and not follow and not previous:
            kept = kept_logs.read(session, job, options)
            if not printed(kept.wanted, is_one_node=kept.is_one_node).write_all(kept.lines) and kept.nothing:
                raise kept.nothing
            _complain(kept.troubles)
            return
        found = reading.jobs(session)
        there = reading.named(found, job)
        if there is None:
            failure = reading.missing_job_error(session, job, found)
            offer = f". What a removed job wrote: trn logs {job} --since 24h" if reading.keeps(session) else ""
            raise CommandError(failure.code, f"{failure.title}{offer}")
        wanted = choose(there, options)
        if follow:
            raise typer.Exit(follow_job(session, there, wanted, printed(wanted)))
        lines, troubles = read(session, there, wanted)
        if not printed(wanted).write_all(lines) and troubles:
            raise CommandError(FAILED, troubles[0])
        _complain(troubles)


def follow_job(session: Session, job: WatchedJob, wanted: PodFilter, printer: Printer) -> int:
    """Print lines as they come until the job has ended; return 0 when it succeeded."""
    follower = Follower(session, job, wanted, notice)
    try:
        for lines in follower.batches():
            printer.write(lines)
    except KeyboardInterrupt:
        return INTERRUPTED  # that is how it is ended
    if follower.state in FAILURES:
        explain(session, job, printer.cluster)
    return 0 if follower.state == "Completed" else FAILED


def explain(session: Session, job: WatchedJob, cluster: ClusterOptions) -> None:
    """Print on stderr why a job failed: the node that ended first, the doctor's findings, and where more stands."""
    from trainium_eks.cli.shared.examine import closing

    if first := first_failed(session, job):
        notice(f"{job.name}: {first}")
    if said := closing(dataclasses.replace(cluster, namespace=session.namespace.name), job.name, checks=False):
        say(said)


def _of_sagemaker(
    jobs: SageMakerJobs, job: SageMakerWork, options: LogOptions, cluster: ClusterOptions, *, timestamps: bool
) -> int:
    node, since = sagemaker.chosen(job, options)
    if options.follow:
        return log_lines.follow_sagemaker(jobs, job.name, cluster, node, since, timestamps=timestamps)
    lines = sagemaker.lines(jobs, job, options)
    log_lines.Printer(cluster, None, is_one_node=node is not None, timestamps=timestamps).write(lines)
    return 0


def _complain(troubles: list[str]) -> None:
    for trouble in troubles:
        say(printable(trouble))
