"""The fixture that the trainings' tests stand on."""

import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from gangs import step_lines
from waiting import out_of_time, until

RANK = """
import os, subprocess, sys, time
print("has torch", "torch" in sys.modules, "from a server of", len(os.listdir(f"/proc/{os.getppid()}/task")), "threads")
import torch, torch.distributed as dist
from trainium_workloads import steps
dist.init_process_group("gloo")
rank = dist.get_rank()
child = subprocess.Popen(["sleep", "600"])
print(f"pids {os.getpid()} {child.pid}", flush=True)
mode = sys.argv[1]
for step in range(1, 200):
    value = torch.full((10,), float(rank + 1))
    dist.all_reduce(value)
    if rank == 0:
        steps.report(step, loss=value[0].item())
    if mode == "well" and step == 5:
        break
    if mode == "fail" and step == 3 and rank == 1:
        sys.exit(78)
    time.sleep(600 if mode == "hang" else 0.02)
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _module(tmp_path):
    (tmp_path / "a_rank.py").write_text(RANK)


def test_ranks_fork_from_one_server_and_end_together(gang):
    """Of other threads a fork would inherit the locks alone."""
    ended = gang("a_rank", "well", ranks=3)
    assert (ended.codes, ended.losses) == ((0, 0, 0), dict.fromkeys(range(1, 6), 6.0))
    assert "has torch True from a server of 1 threads\n" in ended.out[0]
    assert _survivors(ended) == []


def test_failed_rank_ends_the_others_with_its_code(gang):
    ended = gang("a_rank", "fail", code=78)
    assert ended.code == ended.codes[1] == 78
    assert ended.codes[0] != 0
    assert _survivors(ended) == []
    with pytest.raises(pytest.fail.Exception, match=r"ended with 78, not 0[\s\S]*pids"):
        gang("a_rank", "fail")


@pytest.mark.parametrize("rank", [None, 1])
def test_a_rank_or_all_are_killed_once_a_step_is_printed(gang, rank):
    ended = gang("a_rank", "on", kill_at=4, kill_rank=rank)
    assert ended.codes[1] == -signal.SIGKILL
    assert 4 <= max(ended.losses) <= 5
    assert _survivors(ended) == []


def test_hanging_gang_is_ended_and_reported(gang):
    def attempt(seconds):
        with pytest.raises(pytest.fail.Exception, match=rf"not done within {seconds} s[\s\S]*rank 0 \(-9\)") as failure:
            gang("a_rank", "hang", seconds=seconds)
        return (str(failure.value),)

    [said] = out_of_time(attempt, "pids")
    assert "pids" in said


def test_truncated_step_line_is_ignored():
    assert [line["step"] for line in step_lines('{"step": 1}\nother\n{"time": 3}\n{"step": 2, "lo')] == [1]


def _survivors(ended):
    """Processes of the gang, and their children, that still run."""
    pids = [int(pid) for out in ended.out for pair in re.findall(r"pids (\d+) (\d+)", out) for pid in pair]
    assert len(pids) == 2 * len(ended.codes)
    with suppress(AssertionError):  # what was killed ends when the machine comes to it
        until(lambda: not any(_runs(pid) for pid in pids))
    return [pid for pid in pids if _runs(pid)]


def _runs(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
