"""``trn cancel``: end jobs, wait until their pods are gone, name the files that remain."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.ending import EndedJob
from trainium_eks.client.failure import FAILED, UsageError
from trainium_eks.client.notices import say, silent
from trainium_eks.client.team import open_team
from trainium_eks.jobs.observed.free_capacity import name_some
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.sagemaker.job import STOP_SECONDS
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.validation.problems import plural

MOST_FILES = 12
"""Names of files that are shown; JSON has all."""

app = App()


@app.command(example="trn cancel bert-tiny")
@with_cluster_options
def cancel(
    job: Annotated[str | None, typer.Argument(help="Name of the job.", show_default=False)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel all running and waiting jobs of the namespace.")
    ] = False,
    agreed: Annotated[bool, typer.Option("--yes", "-y", help="With --all: skip the confirmation.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Cancel a job: its processes get SIGTERM and their grace period, then it is deleted. Its output stays.

    Exit code: 0; 1 when pods are still there after their grace period; 2 when there is no such job.
    """
    if (job is None) == (not everything):
        raise UsageError("give the name of a job, or --all")
    with open_team(cluster) as team:
        wanted = team.jobs_to_cancel(job)
        if everything and wanted and not agreed:
            _agree(cluster, team.namespace, wanted)
        done = [team.cancel(each, silent if cluster.as_json else say) for each in wanted]
        text = "\n".join(map(_text, done)) if done else "Nothing to end: no job is under way."
        output.answer(cluster, {"jobs": [each.to_json() for each in done]}, text)
        left = [each.name for each in done if each.pods_left]
        if left and not cluster.as_json:
            # Only pods that stay need the doctor's modules.
            from trainium_eks.cli.shared import examine

            say(examine.closing(replace(cluster, namespace=team.namespace), left[0]))
    raise typer.Exit(FAILED if left else 0)


def _agree(cluster: ClusterOptions, namespace: str, wanted: Sequence[WatchedJob]) -> None:
    names = ", ".join(job.name for job in wanted)
    question = f"End {plural(len(wanted), 'job')} of {namespace}, your colleagues' too ({names})?"
    if cluster.as_json or not sys.stdin.isatty():
        raise UsageError(f"{question} --yes confirms it")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("Nothing was ended.")


def _text(each: EndedJob) -> str:
    if each.pods_left:
        return printable(
            f"{each.name} is deleted, but {each.pods_left} of its pods are still there after their grace period: "
            "their node may not answer (kubectl get pods -o wide)"
        )
    if each.output.startswith("s3://"):
        how = f"is being stopped: SIGTERM, and SIGKILL after {STOP_SECONDS} s" if each.stopping else "has ended already"
        return f"{printable(f'{each.name} {how}.')}\n{printable(f'  in S3: {each.output}')}"
    if not each.output:
        return printable(f"{each.name} has ended and is removed.")
    step = f", checkpoint of step {each.checkpoint}" if each.checkpoint is not None else ""
    there = f": {name_some(each.files, MOST_FILES)}" if each.files else ""
    where = printable(f"  on the volume: {each.output}{step}{there}")
    return f"{printable(each.name)} has ended and is removed.\n{where}"
