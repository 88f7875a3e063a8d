"""Step lines: what they say, and when a run stands still."""

import json
import math

import pytest

from trainium_eks.jobs.watch.steps import FIRST_STALL_SECONDS, Step, parse, parse_all, progress

START = 1_763_000_000.0


def run(*times: float, first: int = 1, **rest: object) -> list[Step]:
    lines = [json.dumps({"step": first + at, "time": START + time, **rest}) for at, time in enumerate(times)]
    return parse_all(lines)


@pytest.mark.parametrize("prefix", ["", "[default0]:", "[0]:", "2026-11-22 05:00:00 INFO "])
def test_a_step_is_found_behind_whatever_stands_before_it(prefix: str) -> None:
    line = prefix + '{"step": 12, "time": 1763000000.1, "loss": 0.5, "steps": 100, "checkpoint_step": 10}'
    assert parse(line) == Step(12, 1763000000.1, 0.5, 100, None, 10, None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 12",
        '{"time": 1.0}',
        '{"step": 12}',
        '{"step": -1, "time": 1.0}',
        '{"step": true, "time": 1.0}',
        '{"step": 12, "time": NaN}',
        '{"step": 12, "time": 1.0',
        '["step"]',
        '{"step": 1e400, "time": 1.0}',
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert parse(line) is None


def test_pace_and_what_is_left_come_from_the_median() -> None:
    # One slow step (a checkpoint) does not count.
    found = progress(run(0, 2, 4, 30, 32, 34, steps=16), START + 35)
    assert found is not None
    assert (found.seconds_per_step, found.left_seconds, found.quiet_seconds) == (2.0, 20.0, 1.0)
    assert not found.stalled


def test_steps_that_are_told_in_tens_have_the_pace_of_one() -> None:
    lines = [json.dumps({"step": 10 * at, "time": START + 20 * at}) for at in range(5)]
    found = progress(parse_all(lines), START + 100)
    assert found is not None
    assert found.seconds_per_step == 2.0


@pytest.mark.parametrize(
    ("gap", "quiet", "stalled"),
    [(1.0, 60.0, False), (1.0, 60.5, True), (10.0, 99.0, False), (10.0, 101.0, True)],
)
def test_a_run_stalls_after_a_minute_and_ten_of_its_lines(gap: float, quiet: float, stalled: bool) -> None:
    steps = run(*(gap * at for at in range(30)))
    found = progress(steps, steps[-1].time + quiet)
    assert found is not None
    assert found.stalled is stalled
    ended = progress(steps, steps[-1].time + quiet, running=False)
    assert ended is not None
    assert not ended.stalled


def test_the_second_step_may_compile_too() -> None:
    steps = run(0)
    for quiet, stalled in ((FIRST_STALL_SECONDS - 1, False), (FIRST_STALL_SECONDS + 1, True)):
        found = progress(steps, START + quiet)
        assert found is not None
        assert found.stalled is stalled


def test_a_run_that_was_resumed_is_judged_by_what_came_since() -> None:
    before, after = run(0, 1, 2, 3), run(500, 510, 520, first=2)
    found = progress([*before, *after], START + 521)
    assert found is not None
    assert found.seconds_per_step == 10.0


def test_a_loss_that_is_no_number_is_said_and_stays_json() -> None:
    found = progress(parse_all(['{"step": 3, "time": 1763000000.0, "loss": NaN}']), START)
    assert found is not None
    assert found.diverged
    assert found.last.loss is not None
    assert math.isnan(found.last.loss)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_the_last_checkpoint_is_remembered_when_later_lines_do_not_name_it() -> None:
    steps = [*run(0, checkpoint_step=1, checkpoint_time=START), *run(5, 10, first=2)]
    found = progress(steps, START + 12)
    assert found is not None
    assert (found.checkpoint_seconds, found.checkpoint_step) == (12.0, 1)


def test_no_line_is_no_progress() -> None:
    assert progress([], START) is None
