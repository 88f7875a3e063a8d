"""Lines of logs and the pods that write them; step lines: what they say, and when a run stands still."""

import json
import math

import pytest
from recorded_scenes import of

from trainium_eks.jobs.watch.log_lines import LogLine, pod_names, seconds
from trainium_eks.jobs.watch.log_lines import parse as log_line
from trainium_eks.jobs.watch.steps import FIRST_STALL_SECONDS, TrainingStep, parse, parse_all, progress

START = 1_763_000_000.0


def run(*times, first=1, **rest):
    lines = [json.dumps({"step": first + at, "time": START + time, **rest}) for at, time in enumerate(times)]
    return parse_all(lines)


@pytest.mark.parametrize("prefix", ["", "[default0]:", "2026-11-22 05:00:00 INFO "])
def test_step_is_parsed_after_any_prefix(prefix):
    line = prefix + '{"step": 12, "time": 1763000000.1, "loss": 0.5, "steps": 100, "checkpoint_step": 10}'
    assert parse(line) == TrainingStep(12, 1763000000.1, 0.5, 100, None, 10, None)
    for other in (
        *("step 12", '{"time": 1.0}', '{"step": 12}', '{"step": -1, "time": 1.0}', '{"step": true, "time": 1.0}'),
        *('{"step": 12, "time": NaN}', '{"step": 12, "time": 1.0', '["step"]', '{"step": 1e400, "time": 1.0}'),
    ):
        assert parse(prefix + other) is None


def test_pace_is_the_median_and_checkpoint_and_loss_are_the_latest():
    # One slow step (a checkpoint) does not count.
    found = progress(run(0, 2, 4, 30, 32, 34, steps=16), START + 35)
    assert (found.seconds_per_step, found.left_seconds, found.quiet_seconds) == (2.0, 20.0, 1.0)
    assert not found.stalled
    tens = [json.dumps({"step": 10 * at, "time": START + 20 * at}) for at in range(5)]
    assert progress(parse_all(tens), START + 100).seconds_per_step == 2.0
    assert progress([], START) is None
    resumed = [*run(0, 1, 2, 3), *run(500, 510, 520, first=2)]
    assert progress(resumed, START + 521).seconds_per_step == 10.0
    found = progress([*run(0, checkpoint_step=1, checkpoint_time=START), *run(5, 10, first=2)], START + 12)
    assert (found.checkpoint_seconds, found.checkpoint_step) == (12.0, 1)
    found = progress(parse_all(['{"step": 3, "time": 1763000000.0, "loss": NaN}']), START)
    assert found.diverged
    assert math.isnan(found.last.loss or 0)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_a_run_stalls_after_a_minute_and_ten_of_its_lines():
    for lines, gap, quiet, stalled in (
        *((30, 1.0, 60.0, False), (30, 1.0, 60.5, True), (30, 10.0, 99.0, False), (30, 10.0, 101.0, True)),
        # The second step may compile, too.
        *((1, 0, FIRST_STALL_SECONDS - 1, False), (1, 0, FIRST_STALL_SECONDS + 1, True)),
    ):
        steps = run(*(gap * at for at in range(lines)))
        assert progress(steps, steps[-1].time + quiet).stalled is stalled
        assert not progress(steps, steps[-1].time + quiet, running=False).stalled


# --- Lines of logs ----------------------------------------------------------------------------------------------------


def test_line_times_compare_as_text_and_ranks_and_durations_are_parsed():
    # The kubelet leaves zeros out at the end: as text, ...01Z would come after ...012Z.
    lines = [log_line(f"2026-11-22T05:00:00{fraction}Z x") for fraction in ("", ".01", ".012", ".1")]
    assert [line.text for line in lines] == ["x"] * 4
    assert sorted(lines, key=lambda line: line.stamp) == lines
    for text in ("", "no time", "2026-11-22 05:00:00 x"):
        assert log_line(text) == LogLine("", text)
    assert log_line("2026-11-22T05:00:00.5Z ").text == ""
    ranks = {"[default0]:x": 0, "[default12]:": 12, "[3]:x": 3, "[trainer1]:x": 1, "[INFO] x": None, "x": None}
    for line, rank in ((LogLine("", text), rank) for text, rank in ranks.items()):
        assert (line.local_rank, line.is_of(None), line.is_of(0)) == (rank, True, rank in (None, 0))
    known = {"90s": 90, "90": 90, "10m": 600, "2h30m": 9000, "1d": 86400, "": None, "soon": None, "1w": None}
    assert {text: seconds(text) for text in known} == known


def test_pods_place_follows_its_ranks():
    assert pod_names(of("running", "alpha").job) == ["alpha-trainer-0-0", "alpha-trainer-1-0"]
    assert pod_names(of("capacity_partly", "alpha").job) == ["alpha-trainer-0", "alpha-trainer-1"]
    task = {"name": "trainer", "replicas": 12, "template": {"spec": {}}}
    job = {"metadata": {"name": "a"}, "spec": {"tasks": [task]}}
    assert pod_names(job, "gang") == [f"a-trainer-{number}" for number in range(12)]
    # torchrun numbers nodes by the text of their names.
    assert pod_names(job, "torchrun") == sorted(pod_names(job, "gang"))
