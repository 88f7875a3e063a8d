"""Processes that outlive ``trn`` and are found again; played by Python under another name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import SECONDS, until

from trainium_eks.local.control_plane import processes
from trainium_eks.local.paths import Paths

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


@pytest.fixture
def paths(tmp_path):
    paths = Paths.of(tmp_path, "dev")
    yield paths
    processes.stop(paths, timeout_seconds=0)


@pytest.fixture
def command(tmp_path, paths):
    """A command line of a program with that name, which runs Python code."""

    def make(name, code=SLEEP, root=None):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            program.symlink_to(Path(sys.executable).resolve())
        return [str(program), "-I", "-S", "-c", code, f"--data={root or paths.root}/data"]

    return make


@pytest.fixture
def run(paths, command):

    def start(name="etcd", code=SLEEP, count=1):
        started = processes.start(paths, name, command(name, code))
        ready(paths, name, count)
        return started

    return start


def ready(paths, name="etcd", count=1):
    until(lambda: processes.last_lines(paths, name, 99).count("ready") >= count)


def test_started_process_inherits_no_environment_or_files(paths, run):
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    run()
    os.close(write_end)
    os.set_blocking(read_end, False)
    assert os.read(read_end, 1) == b"", "somebody still has the other end"
    os.close(read_end)


def test_forked_child_is_not_found_before_its_exec(paths, run):
    """Between fork and exec it has its parent's command line."""
    started = run(code=f"import os; os.fork(); {SLEEP}", count=2)
    assert [each.pid for each in processes.running(paths)] == [started.pid]
    assert processes.stop(paths) == ["etcd"]
    assert processes.running(paths) == []


def test_similarly_named_stacks_and_other_programs_are_left_alone(tmp_path, paths, command):
    other = Paths.of(tmp_path, "dev2")
    below = Paths.of(tmp_path / "deeper" / str(paths.root)[1:], "dev")
    for stack in (other, below):
        processes.start(stack, "etcd", command("etcd", root=stack.root))
        ready(stack)
    reader = subprocess.Popen(command("tail"))
    try:
        assert processes.running(paths) == []
        assert processes.stop(paths) == []
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()
    for stack in (other, below):
        assert processes.stop(stack) == ["etcd"]


def test_untrackable_program_is_not_started(paths, command):
    with pytest.raises(ValueError, match="could not be found again"):
        processes.start(paths, "etcd", [*command("etcd")[:-1], "--data=/elsewhere"])


def test_process_that_does_not_listen_is_killed(paths, run):
    started = run(code=DEAF)
    assert processes.stop(paths, timeout_seconds=0.2) == ["etcd"]
    assert not psutil.pid_exists(started.pid)


def test_a_suspended_process_is_ended_without_a_kill(paths, run):
    end = "def end(*_):\n    print('ended by itself', flush=True)\n    raise SystemExit\n"
    started = run(code=f"import signal\n{end}signal.signal(signal.SIGTERM, end)\n{SLEEP}")
    os.kill(started.pid, signal.SIGSTOP)
    assert processes.stop(paths, timeout_seconds=SECONDS) == ["etcd"]
    assert "ended by itself" in processes.last_lines(paths, "etcd")


def test_log_is_appended_and_truncated_when_large(paths, run):
    for count in (1, 2):
        run(count=count)
        processes.stop(paths)
    os.truncate(paths.logs / "etcd.log", processes.LOG_LIMIT_BYTES + 1)
    run()
    processes.trim_logs(paths)
    assert processes.log_size(paths, "etcd") == len("ready\n")
    os.truncate(paths.logs / "etcd.log", processes.LOG_LIMIT_BYTES + 1)
    processes.trim_logs(paths)
    assert processes.log_size(paths, "etcd") == 0


def test_settings_of_the_shell_do_not_reach_a_process(paths, command, monkeypatch):
    monkeypatch.setenv("ETCD_NAME", "other")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    code = "import os; print(sorted(os.environ)); " + SLEEP
    processes.start(paths, "etcd", command("etcd", code), {"EXTRA": "1"})
    ready(paths)
    told = processes.last_lines(paths, "etcd")
    assert [name in told for name in ("EXTRA", "PATH", "ETCD_NAME", "PROXY")] == [True, True, False, False]
