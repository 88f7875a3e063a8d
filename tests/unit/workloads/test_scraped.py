"""What a monitoring system reads of a training: the text, the server, and that neither is in a training's way."""

import http.client
import math
import socket
import time

import pytest
from prometheus_text import parse
from trainium_workloads import scraped
from trainium_workloads.scraped import PORT, SERIES, SeriesServer
from waiting import SECONDS, until

LABELS = {"backend": "cpu", "world_size": 2, "examples": 64}


@pytest.fixture
def port(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        chosen = listener.getsockname()[1]
    monkeypatch.setenv(PORT, str(chosen))
    return chosen


@pytest.fixture
def run(port):
    made = SeriesServer(LABELS, step=20, examples_per_step=16, began=1000.5)
    yield made
    made.close()


def _get(port, path="/metrics"):
    # Another address than 127.0.0.1: Prometheus asks at the pod's.
    connection = http.client.HTTPConnection("127.0.0.2", port, timeout=SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()
    connection.close()
    return found


def test_metrics_are_prometheus_text_at_one_path_until_the_end(run, port):
    status, kind, text = _get(port)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = parse(text)
    assert found["trn_training_info"].labels == {"backend": "cpu", "world_size": "2", "examples": "64"}
    values = {name.removeprefix("trn_training_"): sample.value for name, sample in found.items()}
    expected = {"info": 1, "started_timestamp_seconds": 1000.5, "step": 20, "examples_total": 0}
    assert values == {**expected, "productive_seconds_total": 0}, "no value is made up before the first step"
    assert [_get(port, path)[0] for path in ("/metrics", "/")] == [200, 404]
    run.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_each_series_has_its_value_after_steps_and_a_checkpoint(run, port):
    run.step(21, 0.5, 9.0, 100.0)
    run.saved(21, 2000.25)
    run.step(23, 0.25, 2.0, 150.0)
    run.evaluated(0.75)
    found = parse(_get(port)[2])
    assert found.keys() == {series.name for series in SERIES}
    assert {name.removeprefix("trn_training_"): sample.value for name, sample in found.items()} == {
        "info": 1,
        "started_timestamp_seconds": 1000.5,
        "step": 23,
        "loss": 0.25,
        "eval_loss": 0.75,
        "step_seconds": 2.0,
        "tokens_per_second": 150.0,
        "examples_total": 48,
        # The first step, which compiled for 7 s of its 9, and two others.
        "productive_seconds_total": 6.0,
        "checkpoint_step": 21,
        "checkpoint_timestamp_seconds": 2000.25,
    }


def test_values_and_labels_of_any_kind_stay_readable(port):
    made = SeriesServer({"note": 'a "quoted\\" one\nof two lines'}, step=0, examples_per_step=1, began=1.0)
    try:
        for loss in (math.nan, math.inf, -math.inf, 1e-12, 1e22):
            made.step(1, loss, 0.1)
            found = parse(made.text())
            assert found["trn_training_loss"].value == pytest.approx(loss, nan_ok=True)
            assert found["trn_training_info"].labels == {"note": 'a "quoted\\" one\nof two lines'}
    finally:
        made.close()


@pytest.mark.parametrize(
    ("value", "why"),
    [("", ""), ("0", ""), ("many", "invalid literal"), ("99999", "must be 0-65535"), ("taken", "already in use")],
)
def test_missing_or_used_port_is_no_error(monkeypatch, capsys, value, why):
    with socket.create_server(("", 0)) as listener:
        monkeypatch.setenv(PORT, str(listener.getsockname()[1]) if value == "taken" else value)
        made = SeriesServer(LABELS, step=0, examples_per_step=1, began=1.0)
        made.step(1, 0.5, 0.1)
        made.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("no metrics of this training: port ") and why in line for line in lines] == [True] * bool(
        why
    )


@pytest.mark.parametrize("ends", [False, True])
def test_silent_client_does_not_delay_training(port, monkeypatch, ends):
    monkeypatch.setattr(scraped._Handler, "timeout", 600.0)
    made = SeriesServer(LABELS, step=0, examples_per_step=1, began=1.0)
    with socket.create_connection(("127.0.0.1", port)):
        began = time.monotonic()
        if ends:
            made.close()
        else:
            made.step(1, 0.5, 0.1)
        assert time.monotonic() - began < 300
    made.close()


def test_silent_and_closed_clients_are_dropped(port, monkeypatch, capfd):
    monkeypatch.setattr(scraped._Handler, "timeout", 0.3)
    made = SeriesServer(LABELS, step=0, examples_per_step=1, began=1.0)

    def is_answered():
        try:
            return _get(port)[0] == 200
        except OSError:
            return False  # on a busy machine we are given up ourselves

    with socket.create_connection(("127.0.0.1", port)):
        until(is_answered)
    with socket.create_connection(("127.0.0.1", port)) as rude:
        rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    until(is_answered)
    made.close()
    assert capfd.readouterr() == ("", "")
