"""``trn profile``: a repeated run of a job for some steps under Neuron's profiler, and the commands that show its
result."""

import time
from typing import Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import Job, with_cluster_options
from trainium_eks.client import logs, reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say, notice, silent, unrepeated
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.observed.watched import WatchedJob, of
from trainium_eks.jobs.watch import profiling
from trainium_eks.jobs.watch.log_lines import pod_names
from trainium_eks.model.validation.problems import plural

LOOK_SECONDS = 2.0

app = App()


@app.command(example="trn profile bert-tiny")
@with_cluster_options
def profile(
    job: Job,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Rank whose node is profiled.")] = 0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of training steps to run.")] = 10,
    *,
    cluster: ClusterOptions,
) -> None:
    """Profile some training steps of a job with Neuron's profiler, into /data/profiles/<job>.

    The job is run again for that, in as many nodes: the Neuron runtime cannot start to profile a running process.
    """
    say = silent if cluster.as_json else notice
    with open_session(cluster) as session:
        found = reading.find(session, job)
        place = _place(session, found, rank)
        made = profiling.profiled(found.source, place, steps)
        name = of(session.api.create(made)).name
        say(f"{name} runs {job} again, node {place} under the profiler, for {plural(steps, 'step')}")
        try:
            done = _steps_done(session, name, steps, say)
        finally:
            session.api.delete(session.api.reference(made), propagation="Background")
    directory = f"{profiling.ROOT}/{job}"
    views = [f"neuron-explorer view -d {directory}", f"neuron-explorer view -d {directory} --output-format perfetto"]
    text = "\n".join(
        (
            f"Profiled {done or 'no'} steps: {directory} on the team's volume.",
            "Look at it where the volume is mounted and aws-neuronx-tools are installed:",
            *(f"  {view}" for view in views),
            "(neuron-profile in place of neuron-explorer before SDK 2.27; the second line makes files for "
            "ui.perfetto.dev)",
        )
    )
    document = {"directory": directory, "steps": done, "job": name, "view": views}
    output.answer(cluster, document, text)


def _place(session: Session, job: WatchedJob, rank: int) -> int:
    """Return the node of a rank, of a job that can be profiled."""
    if session.is_local:
        title = "the local cloud's Neuron devices are simulated: there is nothing to profile (py-spy shows CPU time)"
        raise CommandError(title)
    if not job.is_gang:
        raise UsageError(f"{job.name} is a {job.kind} job; a profile is of a Volcano job's ranks")
    found = profiling.problems(job.source, session.namespace.claim, is_running=job.ended is None)
    if found:
        raise CommandError(f"{job.name} cannot be profiled", found, spell=str, setting=lambda *_: "")
    wanted = logs.choose(job, logs.LogOptions(rank=rank))
    if not wanted.pods:
        raise UsageError(f"{job.name} asks for {job.nodes:,} nodes; ranks are known of at most {logs.MOST_NODES:,}")
    return pod_names(job.source, "gang").index(wanted.pods[0])


def _steps_done(session: Session, name: str, steps: int, say: Say) -> int | None:
    """Wait until the job has run the steps, or ended; return the last of them."""
    say = unrepeated(say)
    while True:
        job = reading.find(session, name)
        begun = job.state in ("Running", "Completed", "Failed")
        progress = reading.progress_of(session, job, reading.pods_of(session, job)) if begun else None
        last = progress.last if progress else None
        if job.ended is not None and job.state != "Completed" and last is None:
            raise CommandError(f"{name} {job.state.lower()} before its first step: trn status {name}")
        enough = last is not None and last.number >= min(steps, steps if last.total is None else last.total)
        if job.ended is not None or enough:
            return last.number if last else None
        waits = logs.waiting_for(session, job) if last is None else f"step {last.number}"
        say(waits and f"{name}: {waits}")
        time.sleep(LOOK_SECONDS)
