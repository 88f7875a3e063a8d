"""Lines of logs, and the pods that write them."""

import pytest
from recorded_scenes import of

from trainium_eks.jobs.watch.log_lines import LogLine, parse, pod_names, seconds


def test_the_time_of_a_line_compares_as_text():
    # The kubelet leaves zeros out at the end: as text, ...01Z would come after ...012Z.
    lines = [parse(f"2026-11-22T05:00:00{fraction}Z x") for fraction in ("", ".01", ".012", ".1")]
    assert [line.text for line in lines] == ["x"] * 4
    assert sorted(lines, key=lambda line: line.stamp) == lines


@pytest.mark.parametrize("text", ["", "no time", "2026-11-22 05:00:00 x"])
def test_a_line_without_a_time_is_taken_as_it_is(text):
    assert parse(text) == LogLine("", text)
    assert parse("2026-11-22T05:00:00.5Z ").text == ""


@pytest.mark.parametrize(
    ("text", "rank"),
    [("[default0]:x", 0), ("[default12]:", 12), ("[3]:x", 3), ("[trainer1]:x", 1), ("[INFO] x", None), ("x", None)],
)
def test_the_rank_stands_before_the_line(text, rank):
    line = LogLine("", text)
    assert line.local_rank == rank
    assert line.is_of(None)
    assert line.is_of(0) is (rank in (None, 0))


@pytest.mark.parametrize(
    ("text", "found"),
    [("90s", 90), ("90", 90), ("10m", 600), ("2h30m", 9000), ("1d", 86400), ("", None), ("soon", None), ("1w", None)],
)
def test_durations(text, found):
    assert seconds(text) == found


def test_the_place_of_a_pod_is_that_of_its_ranks():
    assert pod_names(of("running", "alpha").job) == ["alpha-trainer-0-0", "alpha-trainer-1-0"]
    assert pod_names(of("capacity_partly", "alpha").job) == ["alpha-trainer-0", "alpha-trainer-1"]
    task = {"name": "trainer", "replicas": 12, "template": {"spec": {}}}
    job = {"metadata": {"name": "a"}, "spec": {"tasks": [task]}}
    assert pod_names(job, "gang")[:3] == ["a-trainer-0", "a-trainer-1", "a-trainer-2"]
    # torchrun numbers nodes by the text of their names.
    assert pod_names(job, "torchrun")[:4] == ["a-trainer-0", "a-trainer-1", "a-trainer-10", "a-trainer-11"]
