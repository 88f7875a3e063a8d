"""What a running job shows of its useful time."""

import json

import pytest
from cluster_snapshots import outputs

from trainium_eks.jobs.explain.cluster_snapshot import moment
from trainium_eks.jobs.explain.watched import of
from trainium_eks.jobs.watch.measured import JobFigures, measured
from trainium_eks.jobs.watch.steps import parse_all, progress

CREATED, RAN, AGAIN = "2026-11-22T05:00:00Z", "2026-11-22T06:00:00Z", "2026-11-22T06:40:00Z"


def _job(nodes=2):
    conditions = [
        {"lastTransitionTime": at, "status": status}
        for at, status in ((CREATED, "Pending"), (RAN, "Running"), (AGAIN, "Restarting"), (AGAIN, "Running"))
    ]
    source = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "run", "namespace": "training", "creationTimestamp": CREATED},
        "spec": {"queue": "test", "minAvailable": nodes, "tasks": [{"replicas": nodes, "template": {"spec": {}}}]},
        "status": {"conditions": conditions, "state": {"phase": "Running"}, "running": nodes},
    }
    return of(source)


def _pod(told="14400"):
    env = [{"name": "TRN_CHECKPOINT_SECONDS", "value": told}] if told else []
    env.append({"name": "TRN_ATTEMPT", "valueFrom": {}})
    selector = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}
    return {"spec": {"nodeSelector": selector, "containers": [{"name": "trainer", "env": env}]}}


def _measured(*, last=300, after=4000, told="14400", **values):
    """Of a run whose steps take 10 s, after so many seconds since it first ran."""
    end = moment(RAN).timestamp() + after
    lines = [json.dumps({"step": last - at, "time": end - 10 * at, **values}) for at in (3, 2, 1, 0)]
    where = progress(parse_all(lines), end)
    assert where is not None
    return measured(_job(), [_pod(told)], where, outputs())


def test_the_useful_share_is_of_the_time_since_the_gang_first_ran():
    """An hour in the queue does not count, and a restart does: 300 steps of 10 s in 4000 s."""
    found = _measured()
    assert found == JobFigures(0.75, None, 14400, None)


def test_a_better_interval_follows_from_what_a_checkpoint_takes():
    found = _measured(checkpoint_step=290, checkpoint_seconds=20.0)
    assert found.to_json() == {
        "usefulFraction": 0.75,
        "saveSeconds": 20.0,
        "intervalSeconds": 14400.0,
        "betterIntervalSeconds": 1980.0,
    }


@pytest.mark.parametrize(("told", "seconds"), [("1980", 20.0), ("2400", 20.0), ("14400", 400.0), (None, 20.0)])
def test_an_interval_that_is_near_enough_stays(told, seconds):
    """Also where the job was told none: its script decides."""
    found = _measured(told=told, checkpoint_seconds=seconds)
    assert found.better_seconds is None


def test_nothing_is_said_too_early_or_of_another_jobs_steps():
    assert _measured(last=5, after=50) is None
    assert _measured(last=1000, after=4000) is None
