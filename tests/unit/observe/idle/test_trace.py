"""Thirty days with the guard's own limits: little is paid for nothing, and no running job loses a node."""

import pytest
from idle_trace import arrivals, run

from trainium_eks.observe.idle.decision import Limits

# As the config has them by default, and looks as often as the CronJob's.
LIMITS = Limits(180, 300)
LOOK_SECONDS = 120.0


@pytest.mark.parametrize(("per_day", "seed"), [(3, 1), (6, 0), (6, 1)])
def test_thirty_days_idle_for_at_most_two_percent(per_day: float, seed: int) -> None:
    jobs = arrivals(seed, per_day=per_day)
    found = run(jobs, LIMITS, look_seconds=LOOK_SECONDS)
    assert not found.touched
    assert len(found.waits) == len(jobs), "each job ran"
    assert found.idle_share <= 0.02


def test_without_the_guard_most_is_idle() -> None:
    """Or the trace would show nothing."""
    jobs = arrivals(1, per_day=3)
    assert run(jobs, Limits(180, None), look_seconds=LOOK_SECONDS).idle_share > 0.5
