"""``trn profile``: a repeated run of a job for some steps under Neuron's profiler, and the commands that show its
result."""

import time

from trainium_eks.cli.shared import output
from trainium_eks.client import logs, notices, reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.watched import WatchedJob, of
from trainium_eks.jobs.watch import profiling
from trainium_eks.jobs.watch.log_lines import pod_names
from trainium_eks.jobs.watch.steps import Progress

LOOK_SECONDS = 2.0


def run(cluster: ClusterOptions, name: str, *, rank: int, steps: int) -> int:
    """Profile a job; return the exit code.

    Args:
        cluster: options of the command.
        name: of the job.
        rank: its node is profiled.
        steps: of training that are run.
    """

    def work(session: Session) -> int:
        job = reading.find(session, name)
        place = _place(session, job, rank)
        made = profiling.profiled(job.source, place, steps)
        profile = of(session.api.create(made))
        directory = f"{profiling.ROOT}/{name}"
        _say(cluster, f"{profile.name} runs {name} again, node {place} under the profiler, for {steps} steps")
        try:
            progress = _until(cluster, session, profile, steps)
        finally:
            session.api.delete(session.api.reference(made), propagation="Background")
        _tell(cluster, profile, directory, progress)
        return 0

    return reading.run(cluster, work)


def _place(session: Session, job: WatchedJob, rank: int) -> int:
    """Return the node of a rank.

    Raises:
        Failure: the job cannot be profiled, or has no such rank.
    """
    if session.is_local:
        title = "the local cloud's Neuron devices are simulated: there is nothing to profile (py-spy shows CPU time)"
        raise Failure(FAILED, title)
    if not job.is_gang:
        raise Failure(WRONG_USAGE, f"{job.name} is a {job.kind} job; a profile is of a Volcano job's ranks")
    found = profiling.problems(job.source, session.namespace.claim, is_running=job.ended is None)
    if found:
        raise Failure(FAILED, f"{job.name} cannot be profiled", found, spell=str, setting=_nothing)
    wanted = logs.choose(job, logs.LogOptions(rank=rank))
    if not wanted.pods:
        title = f"{job.name} asks for {job.nodes:,} nodes; ranks of more than {logs.MOST_NODES:,} are not told apart"
        raise Failure(WRONG_USAGE, title)
    return pod_names(job.source, "gang").index(wanted.pods[0])


def _nothing(*_: object) -> str:
    return ""


def _until(cluster: ClusterOptions, session: Session, profile: WatchedJob, steps: int) -> Progress | None:
    """Wait until the job has run the steps, or ended; return its progress.

    Raises:
        Failure: it failed before its first step.
    """
    said = ""
    while True:
        job = reading.find(session, profile.name)
        pods = reading.pods_of(session, job)
        progress = reading.progress_of(session, job, pods) if job.state in ("Running", "Completed", "Failed") else None
        if job.ended is not None and job.state != "Completed" and progress is None:
            title = f"{job.name} {job.state.lower()} before its first step: trn status {job.name}"
            raise Failure(FAILED, title)
        if job.ended is not None or (progress is not None and progress.last.number >= _first(progress, steps)):
            return progress
        waits = logs.waiting_for(session, job) if progress is None else f"step {progress.last.number}"
        if waits and waits != said:
            said = waits
            _say(cluster, f"{job.name}: {waits}")
        time.sleep(LOOK_SECONDS)


def _first(progress: Progress, steps: int) -> int:
    """Return the step at which enough were run."""
    return min(steps, progress.last.total) if progress.last.total is not None else steps


def _say(cluster: ClusterOptions, notice: str) -> None:
    if not cluster.as_json:
        notices.notice(notice)


def _tell(cluster: ClusterOptions, profile: WatchedJob, directory: str, progress: Progress | None) -> None:
    steps = progress.last.number if progress else None
    views = [f"neuron-explorer view -d {directory}", f"neuron-explorer view -d {directory} --output-format perfetto"]
    if cluster.as_json:
        document = {"directory": directory, "steps": steps, "job": profile.name, "view": views}
        output.write_json({"schemaVersion": reading.SCHEMA_VERSION, **document})
        return
    lines = (
        f"Profiled {steps or 'no'} steps: {directory} on the team's volume.",
        "Look at it where the volume is mounted and aws-neuronx-tools are installed:",
        *(f"  {view}" for view in views),
        "(neuron-profile in place of neuron-explorer before SDK 2.27; the second line makes files for ui.perfetto.dev)",
    )
    output.write("".join(f"{line}\n" for line in lines))
