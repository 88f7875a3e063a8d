"""How much of a gang's time is useful: the closed form against published figures and those of a simulation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_eks.model.sizing import goodput
from trainium_eks.model.sizing.goodput import ModelRun

DAY = 86_400.0
HOUR = 3600.0
MINUTE = 60.0


SIMULATED = [
    (ModelRun(24 * HOUR, 280, 680, 500), 7000, 0.9093),
    (ModelRun(2.8 * HOUR, 3, 0, 600), 240, 0.9198),
    (ModelRun(HOUR, 60, 300, 300), 600, 0.7038),
    (ModelRun(600, 60, 200, 300), 250, 0.2804),
    (ModelRun(300, 100, 0, 300), 600, 0.0813),
    (ModelRun(30, 0.5, 5, 0), 6, 0.7093),
    (ModelRun(600, 10, 200, 300, beside_seconds=200), 250, 0.2519),
    (ModelRun(60, 0, 0, 10, beside_seconds=20), 20, 0.5122),
]
"""A run, its interval, and what was useful of one that was played through, event by event, until 20,000 faults."""


@pytest.mark.parametrize(("run", "interval_seconds", "useful"), SIMULATED)
def test_the_closed_form_agrees_with_a_simulation(run, interval_seconds, useful):
    assert goodput.useful_fraction(run, interval_seconds) == pytest.approx(useful, abs=0.003)


@pytest.mark.parametrize(("mean_minutes", "interval_minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_best_interval_equals_dalys(mean_minutes, interval_minutes):
    """Figures 3 to 5 of the paper: a restart of 10 minutes, a checkpoint of 5."""
    run = ModelRun(mean_minutes * MINUTE, 5 * MINUTE, 0, 10 * MINUTE)
    # His figures are estimates, within 1 % of the optimum and printed with two or three digits.
    assert goodput.best_seconds(run) / MINUTE == pytest.approx(interval_minutes, rel=0.011)


def test_wait_after_a_fault_explains_a_published_uptime():
    """HLAT (2024): 98.81 % job uptime on 4096 Trainium, 256 nodes. Uptime counts neither checkpoints nor lost steps."""
    rate = goodput.failure_rate("Trainium")
    run = goodput.run_on_lustre(256, rate.per_node_year, 0, 1)
    waiting = run.down_seconds + run.restart_seconds
    assert 1 - waiting / (run.seconds_between_faults + waiting) == pytest.approx(0.9881, abs=0.005)


def test_fault_rates_are_published_or_assumed_and_the_users_override_them():
    """2048 nodes of RSC-1's kind fail each 1.8 hours, as its authors reckon; Llama 3's each 3.1."""
    a100, h100, trainium = (goodput.failure_rate(kind) for kind in ("A100-40", "H100", "Trainium2"))
    assert goodput.seconds_between_faults(2048, a100.per_node_year) / HOUR == pytest.approx(1.8, abs=0.05)
    assert goodput.seconds_between_faults(2048, h100.per_node_year) / HOUR == pytest.approx(54 * 24 / 419)
    assert [a100.is_assumed, h100.is_assumed, trainium.is_assumed] == [False, False, True]
    assert trainium.per_node_year == h100.per_node_year
    own = goodput.failure_rate("Trainium2", 0.0)
    assert (own.per_node_year, own.is_assumed) == (0.0, False)
    assert goodput.seconds_between_faults(4, 1) == goodput.seconds_between_faults(2, 1) / 2
    assert goodput.seconds_between_faults(0, 1) == goodput.seconds_between_faults(1, 0) == math.inf


SECONDS = st.floats(0, 1e5)


@given(st.builds(ModelRun, st.floats(10, 1e9), SECONDS, SECONDS, SECONDS, SECONDS), st.floats(0.5, 2))
def test_proposed_interval_is_optimal_for_any_run(run, factor):
    if best := goodput.best_seconds(run):
        most = goodput.useful_fraction(run, best)
        assert goodput.useful_fraction(run, best * factor) <= most * (1 + 1e-9)
    found = goodput.expect(run)
    assert found.interval_seconds >= max(goodput.LEAST_INTERVAL_SECONDS, run.save_seconds)
    assert found.interval_seconds <= max(goodput.MOST_INTERVAL_SECONDS, math.ceil(run.save_seconds))
    assert 0 <= found.useful_fraction <= 1


def test_without_faults_only_checkpoints_cost_time():
    """Two nodes would save each five hours; each 25 minutes takes 1 % of the time, and no failure costs an
    afternoon."""
    run = ModelRun(130 * DAY, 15, 600, 300)
    assert goodput.best_seconds(run) > 5 * HOUR
    assert goodput.expect(run).interval_seconds == 25 * MINUTE
    run = ModelRun(math.inf, 200, 500, 500)
    assert goodput.best_seconds(run) == math.inf
    assert goodput.expect(run).interval_seconds == goodput.MOST_INTERVAL_SECONDS
    assert goodput.useful_fraction(run, 1800) == 0.9
    assert goodput.Goodput(ModelRun(math.inf, 0, 0, 0), 60, 0.8).usd_per_useful_hour(40) == 50
    # A checkpoint longer than the time between faults gets nearly nothing done.
    run = ModelRun(HOUR, 10 * HOUR, 0, 0)
    assert goodput.best_seconds(run) == pytest.approx(HOUR, rel=1e-4)
    assert goodput.useful_fraction(run, HOUR) < 1e-4
    assert goodput.useful_fraction(ModelRun(1, 1e6, 0, 0), 60) == 0
    assert goodput.expect(ModelRun(1, 1e6, 0, 0)).usd_per_useful_hour(10) == math.inf


def test_all_invalid_values_of_a_run_are_reported_at_once():
    wrong = ModelRun(0, -1, math.inf, math.nan, -2)
    assert [*goodput.validate(wrong)] == [
        "seconds_between_faults must be above 0, not 0",
        "checkpoint_seconds must be 0 or more, and finite, not -1",
        "down_seconds must be 0 or more, and finite, not inf",
        "restart_seconds must be 0 or more, and finite, not nan",
        "beside_seconds must be 0 or more, and finite, not -2",
    ]
    with pytest.raises(ValueError, match="above 0, not 0; checkpoint_seconds"):
        goodput.expect(wrong)
    with pytest.raises(ValueError, match="interval_seconds must be above 0"):
        goodput.useful_fraction(ModelRun(1, 1, 1, 1), 0)
    assert [*goodput.validate(ModelRun(math.nan, 0, 0, 0))] == ["seconds_between_faults must be above 0, not nan"]
