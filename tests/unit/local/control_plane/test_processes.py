"""Processes that outlive ``trn`` and are found again; played by Python under another name."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waiting import SECONDS, until

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import processes
from trainium_eks.local.paths import Paths

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Paths]:
    paths = Paths.of(tmp_path, "dev")
    yield paths
    processes.stop(paths, timeout_seconds=0)


@pytest.fixture
def command(tmp_path: Path, paths: Paths) -> Callable[..., list[str]]:
    """A command line of a program with that name, which runs Python code."""

    def make(name: str, code: str = SLEEP, root: Path | None = None) -> list[str]:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            program.symlink_to(Path(sys.executable).resolve())
        return [str(program), "-I", "-S", "-c", code, f"--data={root or paths.root}/data"]

    return make


def ready(paths: Paths, name: str, count: int = 1) -> None:
    until(lambda: processes.last_lines(paths, name, 99).count("ready") >= count)


def test_a_started_process_is_found_by_its_command_line_and_has_a_session_of_its_own(paths, command):
    started = processes.start(paths, "etcd", command("etcd"))
    ready(paths, "etcd")
    (found,) = processes.running(paths)
    assert (found.name, found.pid) == ("etcd", started.pid)
    assert list(found.command) == command("etcd")
    assert os.getsid(found.pid) == found.pid, "it outlives the one that started it"


def test_a_started_process_holds_nothing_that_this_one_was_started_with(paths, command):
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    processes.start(paths, "etcd", command("etcd"))
    os.close(write_end)
    ready(paths, "etcd")
    os.set_blocking(read_end, False)
    assert os.read(read_end, 1) == b"", "somebody still has the other end"
    os.close(read_end)


def test_a_child_that_is_not_yet_another_program_is_not_found_beside_its_parent(paths, command):
    """Between fork and exec it has its parent's command line."""
    started = processes.start(paths, "etcd", command("etcd", f"import os; os.fork(); {SLEEP}"))
    ready(paths, "etcd", 2)
    assert [each.pid for each in processes.running(paths)] == [started.pid]
    assert processes.stop(paths) == ["etcd"]
    assert processes.running(paths) == []


def test_processes_of_stacks_with_similar_names_are_kept_apart(tmp_path, paths, command):
    other = Paths.of(tmp_path, "dev2")
    below = Paths.of(tmp_path / "deeper" / str(paths.root)[1:], "dev")
    for stack in (other, below):
        processes.start(stack, "etcd", command("etcd", root=stack.root))
        ready(stack, "etcd")
    assert processes.running(paths) == []
    assert processes.stop(paths) == []
    for stack in (other, below):
        assert processes.stop(stack) == ["etcd"]


def test_other_programs_that_name_the_directory_are_left_alone(paths, command):
    reader = subprocess.Popen(command("tail"))
    try:
        assert processes.running(paths) == []
        assert processes.stop(paths) == []
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def test_a_program_that_could_not_be_found_again_is_not_started(paths, command):
    with pytest.raises(ValueError, match="could not be found again"):
        processes.start(paths, "etcd", [*command("etcd")[:-1], "--data=/elsewhere"])


def test_processes_end_in_the_order_asked_for(paths, command):
    for name in ("etcd", "kwok", "kube-apiserver"):
        order = str(paths.root / "order")
        end = f"def end(*_): open({order!r}, 'a').write('{name} '); raise SystemExit\n"
        code = f"import signal\n{end}signal.signal(signal.SIGTERM, end)\n{SLEEP}"
        processes.start(paths, name, command(name, code))
        ready(paths, name)
    assert processes.stop(paths, ["kwok"]) == ["kwok"]
    assert {each.name for each in processes.running(paths)} == {"kube-apiserver", "etcd"}, "only what is named ends"
    assert processes.stop(paths) == ["kube-apiserver", "etcd"]
    assert (paths.root / "order").read_text().split() == ["kwok", "kube-apiserver", "etcd"]
    assert processes.running(paths) == []


def test_one_that_does_not_listen_is_killed(paths, command):
    started = processes.start(paths, "etcd", command("etcd", DEAF))
    ready(paths, "etcd")
    assert processes.stop(paths, timeout_seconds=0.2) == ["etcd"]
    assert not psutil.pid_exists(started.pid)


def test_a_suspended_process_is_ended_without_a_kill(paths, command):
    code = (
        "import signal\n"
        "def end(*_):\n"
        "    print('ended by itself', flush=True)\n"
        "    raise SystemExit\n"
        f"signal.signal(signal.SIGTERM, end)\n{SLEEP}"
    )
    processes.start(paths, "etcd", command("etcd", code))
    ready(paths, "etcd")
    os.kill(processes.running(paths)[0].pid, signal.SIGSTOP)
    assert processes.stop(paths, timeout_seconds=SECONDS) == ["etcd"]
    assert "ended by itself" in processes.last_lines(paths, "etcd")


def test_processes_are_found_when_their_directory_is_gone(paths, command):
    processes.start(paths, "etcd", command("etcd"))
    ready(paths, "etcd")
    (paths.logs / "etcd.log").unlink()
    paths.logs.rmdir()
    paths.root.rmdir()
    assert processes.stop(paths) == ["etcd"]


def test_how_a_process_ended_is_known(paths, command):
    failed = processes.start(paths, "etcd", command("etcd", "raise SystemExit(3)"))
    running = processes.start(paths, "kwok", command("kwok"))
    ready(paths, "kwok")
    assert processes.exit_code(running) is None
    os.kill(running.pid, signal.SIGKILL)
    assert [_ended(failed), _ended(running)] == [3, -signal.SIGKILL]


def _ended(process: processes.Running) -> int:
    code = until(lambda: processes.exit_code(process))
    assert code is not None
    return code


def test_what_cannot_be_executed_is_said(paths, tmp_path):
    program = tmp_path / "etcd"
    program.write_text("no program")
    for content_is_there, reason in ((True, "Permission denied"), (False, "No such file")):
        if not content_is_there:
            program.unlink()
        with pytest.raises(ClusterError, match=f"etcd cannot be started: {program}: {reason}"):
            processes.start(paths, "etcd", [program, f"--data={paths.root}"])


def test_a_log_that_cannot_be_written_is_said_with_path_and_reason(paths, command):
    paths.root.parent.mkdir()
    paths.root.write_text("a file where the directory should be")
    with pytest.raises(ClusterError, match=r"cannot be written: .*/dev/logs: Not a directory"):
        processes.start(paths, "etcd", command("etcd"))
    paths.root.unlink()


def test_a_log_is_continued_and_begins_anew_when_it_is_large_also_that_of_a_running_process(paths, command):
    for count in (1, 2):
        processes.start(paths, "etcd", command("etcd"))
        ready(paths, "etcd", count)
        processes.stop(paths)
    os.truncate(paths.logs / "etcd.log", processes.LOG_LIMIT_BYTES + 1)
    processes.start(paths, "etcd", command("etcd"))
    ready(paths, "etcd")
    processes.trim_logs(paths)
    assert processes.log_size(paths, "etcd") == len("ready\n")
    os.truncate(paths.logs / "etcd.log", processes.LOG_LIMIT_BYTES + 1)
    processes.trim_logs(paths)
    assert processes.log_size(paths, "etcd") == 0


def test_the_end_of_a_log_leaves_out_former_runs(paths):
    paths.logs.mkdir(parents=True)
    (paths.logs / "etcd.log").write_text("old\n" * 5 + "new 1\nnew 2\nnew 3\n")
    assert processes.last_lines(paths, "etcd", 2) == "  new 2\n  new 3"
    assert processes.last_lines(paths, "etcd", 9, since_bytes=20) == "  new 1\n  new 2\n  new 3"
    assert processes.last_lines(paths, "etcd", 1, since_bytes=10**6) == "  new 3"  # it began anew meanwhile
    assert "no log" in processes.last_lines(paths, "kwok")


def test_settings_of_the_shell_do_not_reach_a_process(paths, command, monkeypatch):
    monkeypatch.setenv("ETCD_NAME", "other")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    code = "import os; print(sorted(os.environ)); " + SLEEP
    processes.start(paths, "etcd", command("etcd", code), {"EXTRA": "1"})
    ready(paths, "etcd")
    told = processes.last_lines(paths, "etcd")
    assert "EXTRA" in told
    assert "PATH" in told
    assert "ETCD_NAME" not in told
    assert "PROXY" not in told
