"""``trn logs``: the output of a job's ranks, once or as it comes."""

from typing import Annotated

import typer

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.log_lines import follow_log, print_log
from trainium_eks.cli.shared.with_cluster_options import Job, with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.logs import LogOptions
from trainium_eks.client.notices import say
from trainium_eks.client.team import open_team
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
    with open_team(cluster) as team:
        log = team.log(job, options)
        if follow:
            raise typer.Exit(follow_log(log, cluster, team, timestamps=timestamps))
        if not print_log(log, cluster, timestamps=timestamps) and log.nothing:
            raise log.nothing
        for trouble in log.troubles:
            say(printable(trouble))
