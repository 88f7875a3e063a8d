"""How benchmarks/faults.py draws its faults, reads its logs and judges."""

import importlib
import json
import math
import random
import statistics
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("faults")


def test_fault_times_are_those_of_the_distribution_each_time(faults: ModuleType) -> None:
    random.seed(1)
    drawn = [faults.fault_times(30.0, 20) for _ in range(3)]
    for times in drawn:
        assert statistics.mean(times) == pytest.approx(30)
        # Of an exponential distribution 63 % are below its mean, and the deviation is the mean.
        assert sum(time < 30 for time in times) in (12, 13)
        assert statistics.pstdev(times) == pytest.approx(30, rel=0.15)
        assert times[0] > 15  # there is time to read the log
    assert drawn[0] != drawn[1]
    assert sorted(drawn[0]) == pytest.approx(sorted(drawn[1]))


def test_steps_and_checkpoints_are_told_apart_in_a_log(faults: ModuleType) -> None:
    times, saved = [0.0, 0.1, 0.2, 0.8, 0.9, 1.0, 1.6], [0, 0, 0, 3, 3, 3, 6]
    log = "resumed from step 0\n" + "\n".join(
        "[default0]:" + json.dumps({"step": at, "time": time, "checkpoint_step": save})
        for at, (time, save) in enumerate(zip(times, saved, strict=True), 1)
    )
    assert faults.costs(log) == pytest.approx((0.1, 0.5))


def test_the_share_that_was_kept_is_compared_with_the_model(faults: ModuleType) -> None:
    known = faults.Calibration(0.1, 0.5, (4.0, 5.0), (0.5, 0.5))
    model = faults.expected(known, 30.0, 5.95)  # saves at the end of a step: every 6 s
    assert model == pytest.approx(6 / (34.5 * math.exp(0.5 / 30) * math.expm1(6.5 / 30)))
    assert faults.Kept(4000, 600.0).useful_fraction(0.1) == pytest.approx(2 / 3)
    assert [faults.holds(measured, model) for measured in (0.67, 0.68, 0.74, 0.75)] == [False, True, True, False]
