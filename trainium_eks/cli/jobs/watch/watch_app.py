"""Commands that watch and their options: jobs, status, wait, logs, top, tensorboard, profile, cancel, compare."""

from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.cli.shared.command import JOBS, App
from trainium_eks.cli.shared.with_cluster_options import Json, NoColor, with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions

app = App(panel=JOBS)

Job = Annotated[str, typer.Argument(help="Name of the job, as `trn jobs` shows it.", show_default=False)]


@app.command(example="trn jobs --namespace training")
@with_cluster_options
def jobs(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that ended over an hour ago.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes as they happen, until Ctrl-C.")] = False,
    all_teams: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Jobs of all teams whose jobs you may read, team by team.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List your team's jobs, or all teams': state, nodes and ranks, restarts, last step.

    With --watch --json, one document a line for each change; with --all-namespaces one for each team.
    """
    from trainium_eks.cli.jobs.watch import job_list

    if all_teams:
        if watch or cluster.namespace:
            raise typer.BadParameter(f"--all-namespaces goes without --{'watch' if watch else 'namespace'}")
        raise typer.Exit(job_list.run_all(cluster, everything=everything))
    raise typer.Exit(job_list.run(cluster, everything=everything, watch=watch))


@app.command(example="trn status bert-tiny")
@with_cluster_options
def status(
    job: Annotated[
        str | None,
        typer.Argument(help="Name of the job, as `trn jobs` shows it; default: the environment.", show_default=False),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again until it has ended, or Ctrl-C.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show one job: the reason and remedy while it is pending, its progress, or its end. Without a job: the
    environment's present cost, and its idle accelerators.

    Exit code: 0; 1 when the job failed, or stalls; 2 when there is no such job.
    """
    from trainium_eks.cli.jobs.watch import environment_status, job_status

    if job is None:
        if watch:
            raise typer.BadParameter("--watch needs a job")
        raise typer.Exit(environment_status.run(cluster))
    raise typer.Exit(job_status.run(cluster, job, watch=watch))


@app.command(example="trn wait bert-tiny --timeout 2h && trn serve bert-tiny")
@with_cluster_options
def wait(
    job: Job,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Longest wait: 90s, 10m or 2h; default: to the job's end.")
    ] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Wait until a job has ended, on EKS or SageMaker. The job goes on when the wait ends before it.

    Exit code: 0 when the job has completed; 1 when it failed, was deleted, or goes on after --timeout; 2 when there is
    no such job.
    """
    from trainium_eks.cli.jobs.watch import wait

    raise typer.Exit(wait.run(cluster, job, timeout))


@app.command(example="trn cancel bert-tiny")
@with_cluster_options
def cancel(
    job: Annotated[str | None, typer.Argument(help="Name of the job.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs of the namespace that have not ended.")] = False,
    agreed: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """End a job: its processes get SIGTERM and their grace period, then it is removed. Its output stays.

    Exit code: 0; 1 when pods are still there after their grace period; 2 when there is no such job.
    """
    from trainium_eks.cli.jobs.watch import cancel

    raise typer.Exit(cancel.run(cluster, job, everything=everything, agreed=agreed))


@app.command(example="trn logs bert-tiny --follow")
@with_cluster_options
def logs(
    job: Job,
    rank: Annotated[int | None, typer.Option("--rank", "-r", help="This rank of all; default: 0.")] = None,
    node: Annotated[int | None, typer.Option("--node", help="All ranks of this node, counted from 0.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All nodes, each line with its node.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on, over restarts too, until the job ends.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Of the last 90s, 10m, 2h, or from a time on; also of pods that are gone."),
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only the last lines of each node.")] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the container before it was restarted in its pod.")
    ] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="The time of each line before it.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show a job's output: rank 0, another rank, or all. With --since also of deleted pods and removed jobs.

    Exit code: 0; 1 when there is no log, and with --follow when the job did not succeed; 2 for wrong usage.
    """
    from trainium_eks.cli.jobs.watch import logs
    from trainium_eks.client.logs import LogOptions

    options = LogOptions(rank, node, everything, follow, since, tail, previous, timestamps)
    raise typer.Exit(logs.run(cluster, job, options))


@app.command(example="trn top bert-tiny")
@with_cluster_options
def top(
    job: Annotated[
        str | None, typer.Argument(help="Name of the job; default: the newest that runs.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One picture, not a live view.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show how busy a job's nodes are, live: each NeuronCore or GPU, device memory, host.

    Runs neuron-monitor (or nvidia-smi) in the job's pods. Exit code: 0; 1 when no node could be read.
    """
    from trainium_eks.cli.jobs.watch import device_use

    raise typer.Exit(device_use.run(cluster, job, once=once))


@app.command(example="trn tensorboard bert-tiny")
@with_cluster_options
def tensorboard(
    job: Job,
    image: Annotated[
        str | None, typer.Option("--image", help="With TensorBoard in it; default: the job's own.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of this machine; default: a free one.")] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the pod for the next call; it ends after 12 hours.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Open TensorBoard on a job's logs, <output directory>/tensorboard, at a port of this machine, until Ctrl-C.

    It runs as a pod of the team on the CPU pool; on the local cloud, where the volume is a directory, here.
    """
    from trainium_eks.cli.jobs.watch import tensorboard

    raise typer.Exit(tensorboard.run(cluster, job, image=image, port=port, keep=keep))


@app.command(example="trn profile bert-tiny")
@with_cluster_options
def profile(
    job: Job,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Its node is profiled.")] = 0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps that are run.")] = 10,
    *,
    cluster: ClusterOptions,
) -> None:
    """Profile some training steps of a job with Neuron's profiler, into /data/profiles/<job>.

    The job is run again for that, in as many nodes: the Neuron runtime cannot be told to profile a process that runs.
    """
    from trainium_eks.cli.jobs.watch import profile

    raise typer.Exit(profile.run(cluster, job, rank=rank, steps=steps))


@app.command(example="trn compare --run mine=1.7:trn1.32xlarge --run theirs=1.9:p4d.24xlarge")
def compare(
    own: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="NAME=HOURS:INSTANCE[:COUNT]", help="A run of yours; may be repeated."),
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option("--jobs", metavar="FILE", help="Output of `trn jobs --all --json`: completed jobs.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="INSTANCE=USD", help="Price of an hour, in place of the catalogue's."),
    ] = None,
    as_json: Json = False,
    no_color: NoColor = False,
) -> None:
    """Compare costs of trainings: AWS' benchmark of Trn1 against P4d, then and now, its claims, and your runs.

    Prices of EC2 are the catalogue's; for ml.* types an estimate with SageMaker's surcharge, if --price names none.

    Exit code: 0; 2 for a run or a price that cannot be read.
    """
    from trainium_eks.cli.jobs.watch import compare

    asked = compare.CompareOptions(tuple(own or ()), jobs, tuple(price or ()), as_json=as_json, no_color=no_color)
    raise typer.Exit(compare.run(asked))
