"""The training that comes with the library, as one process: when it saves and stops, and what it says of that."""

import datetime
import json
import os
import signal
import socket
from itertools import pairwise
from urllib.request import urlopen

import pytest
from prometheus_text import parse
from trainium_workloads import gradient_sum
from trainium_workloads import stopping as stopping_module
from trainium_workloads.scraped import PORT, SeriesServer
from trainium_workloads.stopping import CAPACITY_ENDS, CAPACITY_FILE, CAPACITY_MARGIN, Stopping
from waiting import SECONDS


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """A gang of one rank; the signals are pytest's again afterwards."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def _steps(capsys, directory, *options):
    assert gradient_sum.main(["--output", str(directory), *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_checkpoint_is_saved_at_its_interval(capsys, tmp_path):
    when = ("--checkpoint-every", "0", "--checkpoint-seconds", "0.09", "--save-seconds", "0.05")
    lines = _steps(capsys, tmp_path, "--steps", "12", "--step-seconds", "0.02", *when)
    saved = [line for line in lines if line["step"] == line["checkpoint_step"]]
    assert len(saved) >= 2
    assert saved[-1]["step"] == 12  # the end is always saved
    # The pause of a checkpoint is no training: it does not count towards the next.
    between = [later["checkpoint_time"] - earlier["checkpoint_time"] for earlier, later in pairwise(saved[:-1])]
    assert all(seconds >= 0.139 for seconds in between)
    assert all(line["checkpoint_seconds"] >= 0.05 for line in saved)


def test_launchers_interval_is_used(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TRN_CHECKPOINT_SECONDS", "0.001")
    lines = _steps(capsys, tmp_path, "--steps", "3", "--step-seconds", "0.01")
    assert [line["checkpoint_step"] for line in lines] == [1, 2, 3]


def test_training_ends_some_steps_after_resume(capsys, tmp_path):
    ends = ("--steps-after-resume", "3", "--step-seconds", "0")
    assert _steps(capsys, tmp_path, "--steps", "5", *ends)[-1]["step"] == 5, "nothing was resumed"
    lines = _steps(capsys, tmp_path, "--steps", "100", *ends)
    assert [line["step"] for line in lines] == [6, 7, 8]


def test_higher_rate_converges_faster(capsys, tmp_path):
    few = ("--steps", "3", "--step-seconds", "0", "--rate")
    losses = [_steps(capsys, tmp_path / rate, *few, rate)[-1]["loss"] for rate in ("0", "0.1", "0.5")]
    assert losses == [1.0, round(0.9**6, 9), round(0.5**6, 9)]


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon"])
def test_invalid_times_are_refused(capsys, value):
    with pytest.raises(SystemExit):
        gradient_sum.main(["--checkpoint-seconds", value])
    assert "--checkpoint-seconds" in capsys.readouterr().err


def test_gradient_sum_is_exported_as_a_metric(monkeypatch, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv(PORT, str(port))
    pages, step = [], SeriesServer.step

    def step_and_read(self, *values):
        step(self, *values)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as page:
            pages.append(parse(page.read().decode()))

    monkeypatch.setattr(SeriesServer, "step", step_and_read)
    assert gradient_sum.main(["--output", str(tmp_path), "--steps", "6", "--step-seconds", "0.02"]) == 0
    last = pages[-1]
    assert [page["trn_training_step"].value for page in pages] == [1, 2, 3, 4, 5, 6]
    assert last["trn_training_checkpoint_step"].value == 6
    assert last["trn_training_productive_seconds_total"].value >= 0.12
    assert "trn_training_tokens_per_second" not in last
    assert gradient_sum.main(["--output", str(tmp_path), "--steps", "6"]) == 0, "the port was given back"
    assert capsys.readouterr().err == ""


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, text):
        self.now = datetime.datetime.fromisoformat(text).timestamp()

    def time(self):
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """The clock of requests to stop, 41 minutes before a block ends; the file with its end is named, and not there."""
    monkeypatch.setenv(CAPACITY_FILE, str(tmp_path / "ends"))
    monkeypatch.setattr(stopping_module, "time", made := Clock("2027-01-14T10:49:00Z"))
    return made


def test_sigterm_and_an_ending_capacity_block_stop_the_training(monkeypatch, clock, tmp_path):
    monkeypatch.setenv(CAPACITY_ENDS, "2027-01-14T11:30:00Z")
    stopping = Stopping()
    assert stopping.reason == ""
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopping.reason == "SIGTERM"
    stopping = Stopping()
    clock.now += 61
    assert stopping.reason == "the Capacity Block ends at 2027-01-14T11:30:00Z", "no file yet"
    # A block that is extended while the training runs: the file follows, and wins as soon as it says when.
    for text, stops in (
        ("soon", True),
        ("2027-01-15T11:30:00Z\n", False),
        ("2027-01-14T11:31:30Z", False),
        ("", False),
    ):
        (tmp_path / "ends").write_text(text)
        clock.now += stopping_module.LOOK_SECONDS
        assert bool(stopping.reason) == stops
    clock.now += 60
    assert stopping.reason == "the Capacity Block ends at 2027-01-14T11:31:30Z"
    monkeypatch.setenv(CAPACITY_ENDS, "tomorrow")
    with pytest.raises(ValueError, match=r"TRN_CAPACITY_ENDS must be a time such as .* not 'tomorrow'"):
        Stopping()


@pytest.mark.parametrize(("margin", "minutes"), [("", 40), ("4200", 70)])
def test_end_of_an_earlier_block_stops_no_training_of_the_next(monkeypatch, clock, tmp_path, margin, minutes):
    monkeypatch.setenv(CAPACITY_MARGIN, margin)
    monkeypatch.setenv(CAPACITY_ENDS, "2027-01-14T11:30:00Z")
    clock.now += 41 * 60 - minutes * 60
    restarted = Stopping()
    clock.now += 1
    assert restarted.reason == "", "no pod starts on the block's nodes from its drain on"
    (tmp_path / "ends").write_text("2027-01-15T11:30:00Z")
    clock.now += 86_400 - 2
    assert restarted.reason == ""
    clock.now += 2
    assert restarted.reason == "the Capacity Block ends at 2027-01-15T11:30:00Z"
