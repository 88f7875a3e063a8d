"""When a training process stops by itself."""

import datetime
import os
import signal

import pytest
from trainium_workloads.stopping import CAPACITY_ENDS, Stopping


@pytest.fixture(autouse=True)
def _own_handler():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _in(**duration):
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(**duration)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_sigterm_is_a_reason(monkeypatch):
    monkeypatch.delenv(CAPACITY_ENDS, raising=False)
    stopping = Stopping()
    assert stopping.reason == ""
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopping.reason == "SIGTERM"


def test_the_end_of_a_capacity_block_is_a_reason_forty_minutes_before(monkeypatch):
    monkeypatch.setenv(CAPACITY_ENDS, _in(minutes=41))
    assert Stopping().reason == ""
    monkeypatch.setenv(CAPACITY_ENDS, _in(minutes=39))
    assert Stopping().reason.startswith("the Capacity Block ends at 20")


def test_a_wrong_time_is_said_at_once(monkeypatch):
    monkeypatch.setenv(CAPACITY_ENDS, "tomorrow")
    with pytest.raises(ValueError, match=r"TRN_CAPACITY_ENDS must be a time such as .* not 'tomorrow'"):
        Stopping()
