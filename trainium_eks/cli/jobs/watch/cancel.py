"""``trn cancel``: end jobs, wait until their pods are gone, name the files that remain."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from trainium_eks.cli.jobs.watch import sagemaker_watch
from trainium_eks.cli.shared import output
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.ending import Ended, end
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.room import some
from trainium_eks.jobs.explain.watched import WatchedJob
from trainium_eks.jobs.sagemaker.job import STOP_SECONDS
from trainium_eks.jobs.sagemaker.service import ENDPOINT, SageMakerJobs, SageMakerWork
from trainium_eks.kube.pod_text import printable

MOST_FILES = 12
"""Names of files that are shown; JSON has all."""


def run(cluster: ClusterOptions, name: str | None, *, everything: bool, agreed: bool) -> int:
    """End a job, or all; return the exit code.

    Args:
        cluster: options of the command.
        name: of the job.
        everything: all that have not ended.
        agreed: to ending all, without a question.
    """

    def work(session: Session) -> int:
        if (name is None) == (not everything):
            raise Failure(WRONG_USAGE, "give the name of a job, or --all")
        managed = sagemaker_watch.of_session(session)
        found = reading.jobs(session)
        if managed is not None:
            one = managed.find(name) if name is not None else None
            found = [*found, *(managed.jobs(None) if everything else [one] if one is not None else [])]
        wanted = [job for job in found if job.name == name or (everything and job.ended is None)]
        if name is not None and not wanted:
            raise reading.no_such(session, name, found)
        if everything and wanted and not agreed:
            _agree(cluster, session, wanted)
        say = (lambda _: 0) if cluster.as_json else lambda text: sys.stderr.write(f"{text}\n")
        done = [
            _stop(managed, job) if managed and isinstance(job, SageMakerWork) else end(session, job, say)
            for job in wanted
        ]
        _tell(cluster, done)
        left = [each.name for each in done if each.pods_left]
        if left and not cluster.as_json:
            from trainium_eks.cli.environment.check import examine

            sys.stderr.write(examine.closing(replace(cluster, namespace=session.namespace.name), left[0]) + "\n")
        return FAILED if left else 0

    return reading.run(cluster, work)


def _agree(cluster: ClusterOptions, session: Session, wanted: Sequence[WatchedJob]) -> None:
    names = ", ".join(job.name for job in wanted)
    question = f"End {len(wanted)} jobs of {session.namespace.name}, your colleagues' too ({names})?"
    if cluster.as_json or not sys.stdin.isatty():
        raise Failure(WRONG_USAGE, f"{question} --yes says so")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(WRONG_USAGE, "Nothing was ended.")


def _stop(managed: SageMakerJobs, job: SageMakerWork) -> Ended:
    """Stop a job of SageMaker, unless it has ended; SageMaker keeps its name."""
    if job.kind == ENDPOINT:
        raise Failure(WRONG_USAGE, f"{job.name} is an endpoint: trn serve --on sagemaker --stop {job.name} ends it")
    if job.ended is None:
        managed.stop(job)
    return Ended(job.name, 0, job.checkpoints, None, (), stopping=job.ended is None)


def _tell(cluster: ClusterOptions, done: Sequence[Ended]) -> None:
    if cluster.as_json:
        output.write_json({"schemaVersion": reading.SCHEMA_VERSION, "jobs": [each.to_json() for each in done]})
        return
    if not done:
        output.write("Nothing to end: no job is under way.\n")
    for each in done:
        output.write("".join(f"{printable(line)}\n" for line in _lines(each)))


def _lines(each: Ended) -> list[str]:
    if each.pods_left:
        return [
            f"{each.name} is deleted, but {each.pods_left} of its pods are still there after their grace period: "
            "their node may not answer (kubectl get pods -o wide)"
        ]
    if each.output.startswith("s3://"):
        how = f"is being stopped: SIGTERM, and SIGKILL after {STOP_SECONDS} s" if each.stopping else "has ended already"
        return [f"{each.name} {how}.", f"  in S3: {each.output}"]
    lines = [f"{each.name} has ended and is removed."]
    if each.output:
        step = f", checkpoint of step {each.checkpoint}" if each.checkpoint is not None else ""
        there = f": {some(each.files, MOST_FILES)}" if each.files else ""
        lines.append(f"  on the volume: {each.output}{step}{there}")
    return lines
