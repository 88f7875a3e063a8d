"""Logs of pods that are gone: moved aside, bounded, read again in the order of time."""

import os
from pathlib import Path

import pytest

from trainium_eks.local.agent import log_retention
from trainium_eks.local.runtime.output import LINE_BYTES, Writer, timestamp
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan


def _pod(
    root: Path, uid: str, lines: dict[str, list[tuple[float, str]]], name: str = "bert-trainer-0-0"
) -> PodDirectory:
    """A pod's directory; of each log, ``<container>/<restart>``, its lines with their times."""
    directory = PodDirectory(root / "pods" / uid)
    directory.path.mkdir(parents=True)
    container = Container("c", ("true",), {}, "/")
    plan = PodPlan(uid, "training", name, name, Isolation.PLAIN, "", (), (container,))
    directory.plan.write_text(plan.to_json())
    for log, written in lines.items():
        container_name, _, restart = log.partition("/")
        file = directory.log(container_name, int(restart))
        file.parent.mkdir(parents=True, exist_ok=True)
        writer = Writer(file)
        for at, text in written:
            writer.write(f"{text}\n".encode(), at)
        writer.close(0)
    return directory


def _lines(root: Path, pod: str = "bert-trainer-0-0", since: float = 0.0) -> list[str]:
    return [line.text for line in log_retention.lines(root / "kept", "training", pod, timestamp(since))]


def test_a_pods_logs_stay_when_its_directory_goes(tmp_path: Path) -> None:
    directory = _pod(
        tmp_path, "u1", {"c/0": [(1, "first"), (3, "third")], "c/1": [(4, "restarted")], "d/0": [(2, "second")]}
    )
    log_retention.keep(directory, tmp_path / "kept")
    assert log_retention.pods(tmp_path / "kept", "training") == ["bert-trainer-0-0"]
    assert log_retention.pods(tmp_path / "kept", "other") == []
    assert _lines(tmp_path) == ["first", "second", "third", "restarted"]
    assert _lines(tmp_path, since=3) == ["third", "restarted"]
    [line] = log_retention.lines(tmp_path / "kept", "training", "bert-trainer-0-0", timestamp(4))
    assert (line.pod, line.stamp) == ("bert-trainer-0-0", "1970-01-01T00:00:04.000000000Z")
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_pods_of_one_name_come_one_after_the_other(tmp_path: Path) -> None:
    """A gang that starts again has pods of the same names."""
    for uid, at in (("z", 1.0), ("a", 5.0)):
        log_retention.keep(_pod(tmp_path, uid, {"c/0": [(at, f"of {uid}")]}), tmp_path / "kept")
        os.utime(tmp_path / "kept/training/bert-trainer-0-0" / uid, (at, at))
    assert _lines(tmp_path) == ["of z", "of a"]


def test_long_lines_and_logs_that_were_cut_are_read_whole(tmp_path: Path) -> None:
    directory = _pod(tmp_path, "u", {"c/0": []})
    writer = Writer(directory.log("c", 0), limit_bytes=4 * LINE_BYTES)
    writer.write(b"x" * 3 * LINE_BYTES + b"\nshort\n" + b"y" * 2 * LINE_BYTES + b"\nlast, without an end", 1.0)
    writer.close(2.0)
    assert directory.log("c", 0).with_name("0.log.old").exists()
    log_retention.keep(directory, tmp_path / "kept")
    assert [len(text) for text in _lines(tmp_path)] == [3 * LINE_BYTES, 5, 2 * LINE_BYTES, 20]


def test_what_is_kept_is_bounded_and_the_first_goes_first(tmp_path: Path) -> None:
    for number in range(6):
        pod = f"bert-trainer-{number}-0"
        log_retention.keep(_pod(tmp_path, f"u{number}", {"c/0": [(1, "x" * 1000)]}, pod), tmp_path / "kept")
        os.utime(tmp_path / "kept/training" / pod / f"u{number}", (number, number))
    log_retention.prune(tmp_path / "kept", most_pods=4)
    assert [int(pod.split("-")[2]) for pod in log_retention.pods(tmp_path / "kept", "training")] == [2, 3, 4, 5]
    log_retention.prune(tmp_path / "kept", most_bytes=2500)
    assert [int(pod.split("-")[2]) for pod in log_retention.pods(tmp_path / "kept", "training")] == [4, 5]


@pytest.mark.parametrize("broken", ["no plan", "no log", "an empty log"])
def test_where_there_is_nothing_nothing_is_kept(tmp_path: Path, broken: str) -> None:
    directory = _pod(tmp_path, "u", {"c/0": []} if broken == "an empty log" else {})
    if broken == "no plan":
        directory.plan.unlink()
    log_retention.keep(directory, tmp_path / "kept")
    log_retention.prune(tmp_path / "kept")
    assert log_retention.pods(tmp_path / "kept", "training") == []
