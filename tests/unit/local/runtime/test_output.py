"""Logs of containers: kept with times and bounded, and read again as they are asked for."""

import contextlib
import os

import pytest

from trainium_eks.local.agent import log_retention
from trainium_eks.local.agent.log_server import is_api_server, parse_filter
from trainium_eks.local.runtime.output import LINE_BYTES, LogFilter, Reader, Selection, Writer, timestamp
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan

NOW = 1_763_000_000.0


def written(file, *chunks, limit=10**6):
    writer = Writer(file, limit)
    for number, chunk in enumerate(chunks):
        writer.write(chunk, NOW + number)
    return writer


def read(file, **wanted):
    with contextlib.closing(Reader(file)) as reader:
        return Selection(LogFilter(**wanted)).first(reader).decode()


def test_written_lines_are_read_and_a_split_long_line_is_rejoined(tmp_path):
    written(tmp_path / "a.log", b"one\ntw", b"o\n\nthr", b"ee").close(NOW)
    assert read(tmp_path / "a.log") == "one\ntwo\n\nthree"
    assert read(tmp_path / "a.log", tail=2) == "\nthree"
    assert read(tmp_path / "a.log", tail=0) == ""
    assert read(tmp_path / "a.log", limit_bytes=5) == "one\nt"
    assert read(tmp_path / "a.log", since=timestamp(NOW + 1)) == "two\n\n"
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600
    text = b"x" * (LINE_BYTES * 2 + 5)
    written(tmp_path / "0.log", text[:100], text[100:] + b"\nend\n").close(NOW)
    assert read(tmp_path / "0.log") == f"{text.decode()}\nend\n"
    assert read(tmp_path / "0.log", tail=1) == "end\n"
    assert read(tmp_path / "0.log", timestamps=True).count("2025-11-13T") == 2


def test_follower_sees_all_lines_across_log_rotation(tmp_path):
    file = tmp_path / "0.log"
    writer = written(file, b"begin\n", limit=1000)
    reader, selection = Reader(file), Selection(LogFilter(follow=True))
    seen = selection.first(reader)
    for number in range(100):
        writer.write(f"line {number}\n".encode(), NOW)
        seen += selection.more(reader)
    writer.close(NOW)
    assert (tmp_path / "0.log.old").exists()
    assert seen.decode() == "begin\n" + "".join(f"line {number}\n" for number in range(100))
    reader.close()


def test_unfinished_line_is_shown_after_a_flush(tmp_path):
    writer = written(tmp_path / "0.log", b"ready? ")
    assert writer.has_rest
    assert read(tmp_path / "0.log") == ""
    writer.flush(NOW)
    assert read(tmp_path / "0.log") == "ready? "
    writer.write(b"yes\n", NOW)
    assert read(tmp_path / "0.log") == "ready? yes\n"
    writer.close(NOW)


def test_full_disk_loses_only_log_lines(tmp_path, monkeypatch):
    writer = written(tmp_path / "0.log", b"kept\n")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        writer.write(b"lost\n", NOW)
    writer.write(b"kept, too\n", NOW)
    writer.close(NOW)
    assert read(tmp_path / "0.log") == "kept\nkept, too\n"


def test_log_request_is_parsed_and_only_the_api_server_is_answered():
    query = {"follow": ["true"], "tailLines": ["5"], "sinceSeconds": ["60"], "limitBytes": ["9"]}
    assert parse_filter(query, NOW) == LogFilter(follow=True, tail=5, since=timestamp(NOW - 60), limit_bytes=9)
    assert parse_filter({"sinceTime": ["2025-11-13T02:13:20Z"]}, NOW).since == "2025-11-13T02:13:20.000000000Z"
    with pytest.raises(ValueError, match="x"):
        parse_filter({"tailLines": ["x"]}, NOW)
    theirs = {"subject": ((("commonName", "kube-apiserver-kubelet-client"),),)}
    researchers = {"subject": ((("organizationName", "team"),), (("commonName", "researcher@team"),))}
    assert [is_api_server(each) for each in (theirs, researchers, None)] == [True, False, False]


POD = "bert-trainer-0-0"


def _pod(root, uid, lines, name=POD):
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


def _lines(root, since=0.0):
    return [line.text for line in log_retention.lines(root / "kept", "training", POD, timestamp(since))]


def test_long_lines_and_rotated_logs_are_read_whole(tmp_path):
    directory = _pod(tmp_path, "u", {"c/0": []})
    writer = Writer(directory.log("c", 0), limit_bytes=4 * LINE_BYTES)
    writer.write(b"x" * 3 * LINE_BYTES + b"\nshort\n" + b"y" * 2 * LINE_BYTES + b"\nlast, without an end", 1.0)
    writer.close(2.0)
    assert directory.log("c", 0).with_name("0.log.old").exists()
    log_retention.keep(directory, tmp_path / "kept")
    assert [len(text) for text in _lines(tmp_path)] == [3 * LINE_BYTES, 5, 2 * LINE_BYTES, 20]


def test_kept_logs_are_bounded_and_the_oldest_are_deleted_first(tmp_path):
    kept = tmp_path / "kept"
    for number in range(6):
        log_retention.keep(_pod(tmp_path, f"u{number}", {"c/0": [(1, "x" * 1000)]}, f"p-{number}"), kept)
        os.utime(kept / f"training/p-{number}/u{number}", (number, number))
    for limit, pods in (({"most_pods": 4}, "2345"), ({"most_bytes": 2500}, "45")):
        log_retention.prune(kept, **limit)
        assert log_retention.pods(kept, "training") == [f"p-{number}" for number in pods]


def test_pod_without_output_keeps_no_log(tmp_path):
    without_plan = _pod(tmp_path, "p", {})
    without_plan.plan.unlink()
    for directory in (without_plan, _pod(tmp_path, "l", {}), _pod(tmp_path, "e", {"c/0": []})):
        log_retention.keep(directory, tmp_path / "kept")
    log_retention.prune(tmp_path / "kept")
    assert log_retention.pods(tmp_path / "kept", "training") == []
