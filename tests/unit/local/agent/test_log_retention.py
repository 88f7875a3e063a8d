"""Logs of pods that are gone: moved aside, bounded, read again in the order of time."""

import os
from pathlib import Path

from trainium_eks.local.agent import log_retention
from trainium_eks.local.runtime.output import LINE_BYTES, Writer, timestamp
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan

POD = "bert-trainer-0-0"


def _pod(root: Path, uid: str, lines: dict[str, list[tuple[float, str]]], name: str = POD) -> PodDirectory:
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


def _lines(root: Path, since: float = 0.0) -> list[str]:
    return [line.text for line in log_retention.lines(root / "kept", "training", POD, timestamp(since))]


def test_long_lines_and_logs_that_were_cut_are_read_whole(tmp_path: Path) -> None:
    directory = _pod(tmp_path, "u", {"c/0": []})
    writer = Writer(directory.log("c", 0), limit_bytes=4 * LINE_BYTES)
    writer.write(b"x" * 3 * LINE_BYTES + b"\nshort\n" + b"y" * 2 * LINE_BYTES + b"\nlast, without an end", 1.0)
    writer.close(2.0)
    assert directory.log("c", 0).with_name("0.log.old").exists()
    log_retention.keep(directory, tmp_path / "kept")
    assert [len(text) for text in _lines(tmp_path)] == [3 * LINE_BYTES, 5, 2 * LINE_BYTES, 20]


def test_what_is_kept_is_bounded_and_the_first_goes_first(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for number in range(6):
        log_retention.keep(_pod(tmp_path, f"u{number}", {"c/0": [(1, "x" * 1000)]}, f"p-{number}"), kept)
        os.utime(kept / f"training/p-{number}/u{number}", (number, number))
    for limit, pods in (({"most_pods": 4}, "2345"), ({"most_bytes": 2500}, "45")):
        log_retention.prune(kept, **limit)
        assert log_retention.pods(kept, "training") == [f"p-{number}" for number in pods]


def test_where_there_is_nothing_nothing_is_kept(tmp_path: Path) -> None:
    without_plan = _pod(tmp_path, "p", {})
    without_plan.plan.unlink()
    for directory in (without_plan, _pod(tmp_path, "l", {}), _pod(tmp_path, "e", {"c/0": []})):
        log_retention.keep(directory, tmp_path / "kept")
    log_retention.prune(tmp_path / "kept")
    assert log_retention.pods(tmp_path / "kept", "training") == []
