"""Submission while the namespace's quota does not count the job's kind yet."""

import pytest
from training_jobs import job

from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.submit import submission
from trainium_eks.kube.api import Api, ApiError

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


def test_kind_not_yet_counted_by_the_quota_is_awaited(clock):
    wanted, lines, api = job(), [], CountingApi(3)
    submission.validate(api, forms.objects(wanted), lines.append)
    api.left = 3
    submission.submit(api, wanted, forms.objects(wanted), waiting=lines.append)
    assert api.made == [("Job", True), ("Job", False)]
    assert [("quota team" in each, "count/jobs.batch.volcano.sh" in each) for each in lines] == [(True, True)] * 2
    # One that never counts is named, and another refusal is not awaited.
    for api, said in (
        (CountingApi(10_000), "kubectl describe resourcequota team"),
        (CountingApi(1, "exceeded quota: team"), "exceeded quota"),
    ):
        with pytest.raises(ApiError, match=said):
            submission.validate(api, forms.objects(job()))
        assert not api.made
