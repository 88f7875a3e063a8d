"""How often a job is told to save, and how it is submitted."""

import math
from dataclasses import replace

import pytest
from cluster_snapshots import NEURON, group, outputs
from training_jobs import job

from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.job import Program
from trainium_eks.jobs.submit import planning, saving, submission
from trainium_eks.jobs.submit.requests import Facts, JobRequest
from trainium_eks.kube.api import Api, ApiError

IMAGE = "1.dkr.ecr.us-west-2.amazonaws.com/train:2.9.0-sdk2.30.0-ubuntu24.04"
FACTS = Facts(is_local=False, image=IMAGE, unique="x7k2f")
REQUEST = JobRequest(program=Program("train.py"))
VOLUME = {"fileSystemId": "fs-1", "dnsName": "fs-1.fsx", "mountName": "m", "capacityGib": 1200, "bucket": ""}
FAST = {**VOLUME, "writeMegabytesPerSecond": 1000}
NAMESPACE = {"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": "fsx-claim"}


def _stack(**changes):
    groups = [{**group("ng1", NEURON, 256, 2), "maxSize": 256}]
    queues = {"queues": {"test": {}}, "queueNames": ["test"]}
    return outputs(**{"nodeGroups": groups, "namespaces": [NAMESPACE], **queues, "sharedVolume": FAST, **changes})


def _plan(stack=None, **changes):
    stack = stack or _stack()
    return planning.plan(replace(REQUEST, **changes), stack, stack.namespaces[0], FACTS)


def _told(plan):
    assert plan.job is not None, plan.problems
    return environment(plan.job).get(saving.VARIABLE)


def test_a_job_is_told_the_interval_of_its_gang_and_of_its_state():
    # Of 256 nodes one fails each day: saving half as often would lose more than it saves.
    assert [_told(_plan(nodes=nodes)) for nodes in (2, 256)] == ["9960", "4140"]
    assert _plan(nodes=256).saving.useful_fraction < _plan(nodes=2).saving.useful_fraction
    stack = _stack(training={"checkpointGigabytes": 7, "failuresPerNodeYear": 0})
    bert = Program(module="trainium_workloads.bert.pretrain")
    runs = [each.saving.run for each in (_plan(), _plan(state_gb=50), _plan(program=bert), _plan(stack))]
    assert [each.checkpoint_seconds for each in runs] == [100, 50, 4, 7]  # GB, at 1 GB/s
    assert math.isinf(runs[-1].seconds_between_faults)


@pytest.mark.parametrize(
    ("stack", "changes", "told"),
    [
        (None, {"checkpoint_seconds": 90.5}, "90.5"),
        (None, {"checkpoint_seconds": 0.0}, "0"),
        (None, {"variables": {saving.VARIABLE: "77"}}, "77"),
        (None, {"variables": {saving.VARIABLE: "77"}, "checkpoint_seconds": 90}, "77"),
        (None, {"precompile": True}, None),
        (None, {"program": Program(module="trainium_workloads.gradient_sum")}, None),
        # No file system, one of a stack of an earlier release, no claim: nothing is known.
        (_stack(sharedVolume=None), {}, None),
        (_stack(sharedVolume=VOLUME), {}, None),
        (_stack(namespaces=[{**NAMESPACE, "claim": ""}]), {}, None),
    ],
)
def test_nothing_is_proposed_where_it_was_asked_for_or_nothing_is_known(stack, changes, told):
    plan = _plan(stack, **changes)
    assert (plan.saving, _told(plan)) == (None, told)


def test_what_cannot_be_is_refused_all_at_once():
    plan = _plan(checkpoint_seconds=-5.0, state_gb=math.nan, nodes=0)
    assert plan.job is None
    assert [(each.path, each.reason) for each in plan.problems] == [
        ("--nodes", "it must be 1 or more"),
        ("--checkpoint-seconds", "it must be 0 or more"),
        ("--state-gb", "it must be 0 or more"),
    ]


def test_the_interval_of_a_job_is_read_back():
    told = [{saving.VARIABLE: "90"}, {saving.VARIABLE: "soon"}, {}]
    assert [saving.interval_seconds(env) for env in told] == [90, None, None]


# --- Submission while the namespace's quota does not count the job's kind yet -----------------------------------------


NOT_COUNTED = (
    'jobs.batch.volcano.sh "bert" is forbidden: status unknown for quota: team, resources: count/jobs.batch.volcano.sh'
)


class CountingApi(Api):
    """An API server that refuses the first objects."""

    def __init__(self, refusals, message=NOT_COUNTED):
        self.left, self.message, self.made = refusals, message, []

    def create(self, manifest, *, dry_run=False):
        if self.left:
            self.left -= 1
            raise ApiError(403, "Forbidden", self.message)
        self.made.append((manifest["kind"], dry_run))
        return dict(manifest)


@pytest.fixture
def clock(monkeypatch):
    """A clock on which only pauses pass."""
    passed = [0.0]
    monkeypatch.setattr(submission.time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(submission.time, "sleep", lambda seconds: passed.append(passed.pop() + seconds))


@pytest.mark.usefixtures("clock")
def test_a_kind_that_the_quota_does_not_count_yet_is_awaited():
    wanted, lines = job("trn1.32xlarge"), list[str]()
    api = CountingApi(3)
    submission.validate(api, forms.objects(wanted), lines.append)
    api.left = 3
    submission.submit(api, wanted, forms.objects(wanted), waiting=lines.append)
    assert api.made == [("Job", True), ("Job", False)]
    assert len(lines) == 2
    assert "quota team" in lines[0]
    assert "count/jobs.batch.volcano.sh" in lines[0]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("refusals", "message", "said"),
    [
        (10_000, NOT_COUNTED, "kubectl describe resourcequota team"),
        (1, "exceeded quota: team", "exceeded quota"),
    ],
)
def test_a_quota_that_never_counts_is_named_and_another_refusal_not_awaited(refusals, message, said):
    api = CountingApi(refusals, message)
    with pytest.raises(ApiError, match=said):
        submission.validate(api, forms.objects(job("trn1.32xlarge")))
    assert not api.made
