"""``trn wait``: the end of a job, awaited without its log."""

from typing import Annotated

import typer

from trainium_eks.cli.shared import examine, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import Job, with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, CommandError, UsageError
from trainium_eks.client.team import open_team
from trainium_eks.jobs.observed.job_snapshot import SUCCEEDED
from trainium_eks.jobs.watch.log_lines import seconds

app = App()


@app.command(example="trn wait bert-tiny --timeout 2h && trn serve bert-tiny")
@with_cluster_options
def wait(
    job: Job,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Longest wait: 90s, 10m or 2h; default: no limit.")
    ] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Wait until a job has ended, on EKS or SageMaker. The job goes on when the wait ends before it.

    Exit code: 0 when the job has completed; 1 when it failed, was deleted, or goes on after --timeout; 2 when there is
    no such job.
    """
    with open_team(cluster) as team:
        longest = seconds(timeout) if timeout is not None else None
        if timeout is not None and longest is None:
            raise UsageError(f"--timeout {timeout}: give a duration: 90s, 10m or 2h")
        try:
            state = team.wait(job, longest)
        except TimeoutError as error:
            raise examine.with_closing(CommandError(str(error)), cluster, team.namespace, job) from None
    output.answer(cluster, {"job": job, "state": state}, f"The job {job} is {state}.")
    raise typer.Exit(0 if state == SUCCEEDED else FAILED)
