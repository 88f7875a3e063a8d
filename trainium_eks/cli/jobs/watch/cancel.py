"""``trn cancel``: end jobs, wait until their pods are gone, name the files that remain.

The object is deleted, as `torchx cancel` does, and not aborted by a Volcano Command: either way the pods go, and with
them their logs; but an aborted job keeps its name from the next one, and its script's ConfigMap (decision 41).
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainium_eks.cli.jobs.watch import reading, sagemaker_watch
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.cli.shared.session import Session
from trainium_eks.jobs.explain.room import some
from trainium_eks.jobs.explain.watched import WatchedJob, templates
from trainium_eks.jobs.sagemaker.job import STOP_SECONDS
from trainium_eks.jobs.sagemaker.service import SageMakerJobs, SageMakerTraining
from trainium_eks.kube.cluster import Object
from trainium_eks.kube.pod_text import printable
from trainium_eks.local.runtime import beneath
from trainium_eks.model.validation.problems import nearest

MARGIN_SECONDS = 30.0
"""Seconds for deleting pods, beyond their grace period."""

GRACE_SECONDS = 30
"""Kubernetes' default of ``terminationGracePeriodSeconds``."""

LOOK_SECONDS = 0.5

MOST_FILES = 12
"""Names of files that are shown; JSON has all."""


@dataclass(frozen=True)
class Ended:
    """Result of ending a job."""

    name: str
    was_there: bool
    pods_left: int
    output: str
    """Directory on the shared volume; empty for a job without one."""
    checkpoint: int | None
    """Step of the last checkpoint in its log."""
    files: tuple[str, ...]
    """Files in that directory; only on the local cloud, where the volume can be read."""
    stopping: bool = False
    """Whether SageMaker was told to stop it, and goes on for its grace period."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "wasThere": self.was_there,
            "podsLeft": self.pods_left,
            "output": self.output or None,
            "checkpointStep": self.checkpoint,
            "files": [*self.files],
            "stopping": self.stopping,
        }


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
        if everything and wanted and not agreed:
            _agree(cluster, session, wanted)
        done = [
            _stop(managed, job) if managed and isinstance(job, SageMakerTraining) else _end(session, job, cluster)
            for job in wanted
        ]
        if name is not None and not done:
            done = [Ended(name, was_there=False, pods_left=0, output="", checkpoint=None, files=())]
        _tell(cluster, done, [job.name for job in found])
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


def _stop(managed: SageMakerJobs, job: SageMakerTraining) -> Ended:
    """Stop a training job of SageMaker, unless it has ended; SageMaker keeps its name."""
    if job.ended is None:
        managed.stop(job.name)
    return Ended(job.name, True, 0, job.checkpoints, None, (), stopping=job.ended is None)


def _end(session: Session, job: WatchedJob, cluster: ClusterOptions) -> Ended:
    pods = reading.pods_of(session, job)
    progress = reading.progress_of(session, job, pods) if pods and job.trains else None
    grace = max((_grace_seconds(pod) for pod in pods), default=0)
    if pods and not cluster.as_json:
        waits = f"{len(pods)} pod{'' if len(pods) == 1 else 's'} of {job.name} get SIGTERM and up to {grace} s"
        sys.stderr.write(f"{waits}\n")
    session.api.delete(session.api.reference(job.source), propagation="Background")
    left = _await_end(session, job, grace + MARGIN_SECONDS)
    directory = _output(session, job)
    return Ended(
        job.name,
        was_there=True,
        pods_left=left,
        output=directory,
        checkpoint=progress.checkpoint_step if progress else None,
        files=_files(session, directory),
    )


def _grace_seconds(pod: Object) -> int:
    return int((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or GRACE_SECONDS)


def _await_end(session: Session, job: WatchedJob, seconds: float) -> int:
    """Return how many of its pods are still there in the end."""
    deadline = time.monotonic() + seconds
    while True:
        left = len(reading.pods_of(session, job))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_SECONDS)


def _output(session: Session, job: WatchedJob) -> str:
    """Return the job's ``TRN_OUTPUT_DIR``; empty without one, or without a shared volume."""
    if not session.namespace.claim:
        return ""
    for template in templates(job.source) if job.trains else ():
        for container in template["spec"].get("containers") or ():
            for variable in container.get("env") or ():
                if variable.get("name") == "TRN_OUTPUT_DIR" and variable.get("value"):
                    return str(variable["value"])
    return ""


def _files(session: Session, directory: str) -> tuple[str, ...]:
    paths = session.source.paths
    if paths is None or not directory.startswith("/data/"):
        return ()
    # Neither the variable that names the directory nor a link in it may lead out of the claim.
    claim = paths.claims / session.namespace.name / session.namespace.claim
    try:
        found = beneath.opened(claim, directory.removeprefix("/data/"), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return ()
    try:
        return tuple(sorted(os.listdir(found)))
    finally:
        os.close(found)


def _tell(cluster: ClusterOptions, done: Sequence[Ended], names: Sequence[str]) -> None:
    if cluster.as_json:
        output.write_json({"schemaVersion": reading.SCHEMA_VERSION, "jobs": [each.to_json() for each in done]})
        return
    if not done:
        output.write("Nothing to end: no job is under way.\n")
    for each in done:
        output.write("".join(f"{printable(line)}\n" for line in _lines(each, names)))


def _lines(each: Ended, names: Sequence[str]) -> list[str]:
    if not each.was_there:
        near = nearest(each.name, names)
        return [f"There is no job {each.name}{f' (did you mean {near}?)' if near else ''}: nothing to end."]
    if each.pods_left:
        return [
            f"{each.name} is deleted, but {each.pods_left} of its pods are still there after their grace period: "
            "their node may not answer (kubectl get pods -o wide)"
        ]
    if each.output.startswith("s3://"):
        how = f"is being stopped: SIGTERM, and SIGKILL after {STOP_SECONDS} s" if each.stopping else "has ended already"
        return [f"{each.name} {how}.", f"  checkpoints: {each.output}"]
    lines = [f"{each.name} has ended and is removed."]
    if each.output:
        step = f", checkpoint of step {each.checkpoint}" if each.checkpoint is not None else ""
        there = f": {some(each.files, MOST_FILES)}" if each.files else ""
        lines.append(f"  on the volume: {each.output}{step}{there}")
    return lines
