"""What a running job shows of its useful time."""

import json

import pytest
from cluster_snapshots import outputs
from training_jobs import job

from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.observed.watched import of
from trainium_eks.jobs.watch.steps import parse_all, progress
from trainium_eks.jobs.watch.useful_time import JobFigures, measure_job
from trainium_eks.kube.cluster import moment

CREATED, RAN, AGAIN = "2026-11-22T05:00:00Z", "2026-11-22T06:00:00Z", "2026-11-22T06:40:00Z"


def _submitted(told):
    """The job, as Volcano has it, and its first pod, whose script may know an interval."""
    made = volcano_job.manifest(job(env={"TRN_CHECKPOINT_SECONDS": told} if told else {}))
    made["metadata"]["creationTimestamp"] = CREATED
    changes = ((CREATED, "Pending"), (RAN, "Running"), (AGAIN, "Restarting"), (AGAIN, "Running"))
    conditions = [{"lastTransitionTime": at, "status": status} for at, status in changes]
    return of({**made, "status": {"conditions": conditions}}), made["spec"]["tasks"][0]["template"]


def _measured(*, last=300, after=4000, told="14400", **values):
    """Of a run whose steps take 10 s, after so many seconds since it first ran."""
    end = moment(RAN).timestamp() + after
    lines = [json.dumps({"step": last - at, "time": end - 10 * at, **values}) for at in (3, 2, 1, 0)]
    where = progress(parse_all(lines), end)
    run, pod = _submitted(told)
    return measure_job(run, [pod], where, outputs())


@pytest.mark.parametrize(
    ("told", "step", "seconds", "better"),
    [
        # An hour in the queue does not count, and a restart does: 300 steps of 10 s in 4000 s.
        *(("14400", {}, None, None), ("14400", {"checkpoint_step": 290}, 20.0, 1980.0)),
        # An interval that is near enough stays; so it does where the job was told none: its script decides.
        *(("1980", {}, 20.0, None), ("2400", {}, 20.0, None), ("14400", {}, 400.0, None), (None, {}, 20.0, None)),
        ("1980", {"checkpoint_beside_seconds": 400.0}, 4.0, 3960.0),
    ],
)
def test_useful_share_and_a_better_interval_are_computed(told, step, seconds, better):
    saved = {"checkpoint_seconds": seconds} if seconds else {}
    found = _measured(told=told, **step, **saved)
    assert found == JobFigures(0.75, seconds, float(told) if told else None, better)
    names = ("usefulFraction", "saveSeconds", "intervalSeconds", "betterIntervalSeconds")
    assert [found.to_json()[each] for each in names] == [0.75, seconds, found.interval_seconds, better]


def test_useful_time_is_unknown_too_early_and_for_another_jobs_steps():
    assert _measured(last=5, after=50) is None
    assert _measured(last=1000, after=4000) is None
