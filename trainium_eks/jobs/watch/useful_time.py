"""Measured useful time of a running job, beside its expected one (:mod:`.saving`). Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.jobs.objects.environment import checkpoint_seconds
from trainium_eks.jobs.observed.watched import WatchedJob
from trainium_eks.jobs.watch.steps import Progress
from trainium_eks.kube.cluster import Object, moment
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.sizing import goodput
from trainium_eks.model.sizing.goodput import ModelRun

LEAST_SECONDS = 60.0
"""Least seconds of a run before its share means anything."""

WORTH_A_CHANGE = 1.5
"""Factor by which another interval must be longer or shorter to be proposed."""


@dataclass(frozen=True)
class JobFigures:
    """Measurements of one job, until its last step."""

    useful_fraction: float
    """Time in steps that count, over the time since its gang first ran; 0 to 1."""
    save_seconds: float | None
    interval_seconds: float | None
    """Interval given to the job, by ``TRN_CHECKPOINT_SECONDS``."""
    better_seconds: float | None
    """Better interval by the real duration of a checkpoint; None where it is about the same."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "usefulFraction": round(self.useful_fraction, 4),
            "saveSeconds": self.save_seconds,
            "intervalSeconds": self.interval_seconds,
            "betterIntervalSeconds": self.better_seconds,
        }


def measure_job(
    job: WatchedJob, pods: Sequence[Object], progress: Progress, outputs: StackOutputs
) -> JobFigures | None:
    """Return the measurements in the job's lines; None where they allow none: too early, no pace, or steps that another
    job made."""
    seconds = progress.last.time - _begun(job)
    if progress.seconds_per_step is None or seconds < LEAST_SECONDS or not pods:
        return None
    useful = progress.last.number * progress.seconds_per_step / seconds
    if useful > 1:
        return None  # it went on from checkpoints that were there before it
    interval = checkpoint_seconds(_environment(pods[0]))
    better = _better(job, pods[0], progress, outputs)
    same = interval and better and 1 / WORTH_A_CHANGE <= better / interval <= WORTH_A_CHANGE
    return JobFigures(useful, progress.save_seconds, interval, None if same or not interval else better)


def _begun(job: WatchedJob) -> float:
    """Return the time when its gang first ran, as far as Volcano says; else of the job's creation. Seconds since
    1970."""
    conditions = (job.source.get("status") or {}).get("conditions") or ()
    ran = (moment(each["lastTransitionTime"]) for each in conditions if each.get("status") == "Running")
    return next(ran, job.created).timestamp()


def _better(job: WatchedJob, pod: Object, progress: Progress, outputs: StackOutputs) -> float | None:
    if progress.save_seconds is None:
        return None
    instance = outputs.catalogue.get((pod["spec"].get("nodeSelector") or {}).get(INSTANCE_TYPE_LABEL, ""))
    accelerator = instance.accelerator if instance else ""
    rate = goodput.failure_rate(accelerator, outputs.training.failures_per_node_year)
    between = goodput.seconds_between_faults(job.nodes, rate.per_node_year)
    pause, beside = (max(each, 0.0) for each in (progress.save_seconds, progress.beside_seconds))
    return goodput.proposed_seconds(ModelRun(between, pause, 0.0, 0.0, beside))


def _environment(pod: Object) -> Mapping[str, str]:
    containers = pod["spec"].get("containers") or [{}]
    return {each["name"]: each["value"] for each in containers[0].get("env") or () if "value" in each}
