"""The processes of a stack: started so that they outlive ``trn``, found again in the process table.

There are no pid files. A process belongs to a stack when its program is one of :data:`NAMES` and an argument names a
file in the stack's directory, so a ``trn`` that is killed just after it starts a process loses track of nothing, and a
process id that the system has given to another program is never mistaken for the stack's.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainium_eks import whole_file
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.paths import Paths

NAMES = (
    # The pods' processes, before the API server that they talk to: the agent first, or it would restart the others.
    "trn-pod-agent",
    "trn-pod-shim",
    "trn-pod-network",
    "training-operator",
    "vc-webhook-manager",
    "vc-scheduler",
    "vc-controller-manager",
    "kwok",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
    "etcd",
)
"""Every program that a stack may run, in the order of stopping: no process loses another that it still needs."""

POD_VARIABLE = "TRN_POD_DIRECTORY"
"""Environment variable of every process of a pod."""

LOG_LIMIT_BYTES = 50 * 2**20

# Variables that a daemon takes from the caller. No others: etcd reads ETCD_*, Go programs GO* and proxies.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "USER")

# A killed process first ends its reads and writes: on a busy disk they take seconds.
_KILLED_WITHIN_SECONDS = 60.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Running:
    """A process of a stack."""

    name: str
    pid: int
    started: float
    """Seconds since the epoch."""
    command: tuple[str, ...] = ()


def start(
    paths: Paths, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> Running:
    """Start a process that outlives this one; it writes to ``<logs>/<name>.log``.

    The command has an absolute program, and names a file in the stack's directory, by which the process is found again.
    The environment is added to the few variables that a daemon takes from this process's.
    """
    line = [str(part) for part in command]
    if not _belongs(line, name, paths.root):
        raise ValueError(f"{line[0]} could not be found again as {name} of {paths.root}")
    given = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ} | dict(environment or {})
    with writing(paths.logs):
        paths.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = os.open(log_file(paths, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.fstat(log).st_size > LOG_LIMIT_BYTES:
            os.ftruncate(log, 0)
        # Not subprocess: its Popen wants to be waited for, and these stay when this process is gone.
        pid = os.posix_spawn(
            line[0],
            line,
            given,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inherited()),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        )
    except OSError as error:
        raise LocalCloudError(f"{name} cannot be started: {line[0]}: {error.strerror}") from error
    finally:
        os.close(log)
    return Running(name, pid, time.time(), tuple(line))


def _inherited() -> list[int]:
    """Return the inheritable descriptors of this process besides the standard streams.

    A lock of a script, or a pipe that ``make`` or a reader waits for, must not be held by a process that outlives this
    one.
    """
    inherited = []
    for name in os.listdir("/dev/fd"):  # Linux and macOS
        with contextlib.suppress(OSError):  # the listing's own, closed by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                inherited.append(int(name))
    return inherited


def running(paths: Paths) -> list[Running]:
    """Return this user's processes of the stack, oldest first."""
    found = _found(paths)
    commands = {each.pid: each.command for each, _ in found}
    own = []
    for each, process in found:
        with contextlib.suppress(psutil.Error):
            # A process that starts another one appears twice for a moment: its child has the parent's command line.
            if commands.get(process.ppid()) != each.command:
                own.append(each)
    return sorted(own, key=lambda each: (each.started, each.pid))


def stop(paths: Paths, names: Collection[str] | None = None, timeout_seconds: float = 10) -> list[str]:
    """End processes of the stack: ask each, wait, then kill the rest.

    The programs end in the given order, by default all of :data:`NAMES`. Return the names of the ended ones.
    """
    stopped = []
    for name in names if names is not None else NAMES:
        ended = False
        # Again until none is left: the next look finds processes that were just being started.
        while processes := [process for each, process in _found(paths) if each.name == name]:
            _end(processes, name, timeout_seconds)
            ended = True
        if ended:
            stopped.append(name)
    if names is None:
        _end_left_behind(paths)
    return stopped


def stop_these(processes: Iterable[Running], timeout_seconds: float = 10) -> None:
    """End exactly these processes, in this order; a process that is gone already is skipped."""
    for each in processes:
        try:
            process = psutil.Process(each.pid)
            if process.cmdline()[:1] == list(each.command[:1]):
                _end([process], each.name, timeout_seconds)
        except psutil.Error:
            continue


def restart(paths: Paths, name: str) -> None:
    """Restart a running process with the same command; do nothing where none runs."""
    for each in running(paths):
        if each.name == name:
            stop_these([each])
            start(paths, name, each.command)


def exit_code(process: Running) -> int | None:
    """Return the exit code of a process started by this one, or the negative number of the signal that ended it.

    None while it runs. For an ended process that another process started, the answer is 0.
    """
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None if psutil.pid_exists(process.pid) else 0
    return None if pid == 0 else os.waitstatus_to_exitcode(status)


def log_file(paths: Paths, name: str) -> Path:
    """Return the path of a process's log."""
    return paths.logs / f"{name}.log"


def log_size(paths: Paths, name: str) -> int:
    """Return the size of a process's log in bytes."""
    try:
        return log_file(paths, name).stat().st_size
    except OSError:
        return 0


def last_lines(paths: Paths, name: str, count: int = 12, *, since_bytes: int = 0) -> str:
    """Return the end of a log, each line indented; text before ``since_bytes`` is left out."""
    try:
        with log_file(paths, name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since_bytes if since_bytes <= size else 0, size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line[:400]}" for line in lines[-count:]) or "  (it wrote nothing)"


def trim_logs(paths: Paths) -> None:
    """Truncate logs that are larger than :data:`LOG_LIMIT_BYTES`; their processes keep writing."""
    for name in NAMES:
        if log_size(paths, name) > LOG_LIMIT_BYTES:
            with writing(log_file(paths, name)):
                os.truncate(log_file(paths, name), 0)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a ClusterError in place of an OSError of the stack's state, such as for a full disk."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        raise LocalCloudError(
            f"The local cloud's state cannot be written: {where}: {error.strerror or error}. "
            "Free space, or make that path writable, and run the command again."
        ) from error


def write_json(file: Path, data: Mapping[str, Any], mode: int = 0o600) -> None:
    """Write a file of the stack's state, as a whole or not at all."""
    with writing(file):
        whole_file.write(file, json.dumps(data, indent=2, ensure_ascii=False) + "\n", mode)


def _found(paths: Paths) -> list[tuple[Running, psutil.Process]]:
    found = []
    for pid in psutil.pids():
        try:
            # The cheap checks first: psutil asks much of each process. A zombie has no command line.
            line = Path(f"/proc/{pid}/cmdline")
            if sys.platform == "linux" and os.fsencode(paths.root) not in line.read_bytes():
                continue
            process = psutil.Process(pid)
            command = process.cmdline()
            name = Path(command[0]).name if command else ""
            if name not in NAMES or not _belongs(command, name, paths.root) or not _is_mine(process):
                continue
            found.append((Running(name, process.pid, process.create_time(), tuple(command)), process))
        except (psutil.Error, OSError):
            # It has just ended, or it is another user's: either way not one of the stack's.
            continue
    return found


def _end_left_behind(paths: Paths) -> None:
    """Kill the remaining processes of pods without namespaces: a shim that was killed can no longer end them."""
    pods = f"{paths.pods}/"
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _is_mine(process) and process.environ().get(POD_VARIABLE, "").startswith(pods):
                found.append(process)
    for process in found:
        _signal(process, signal.SIGKILL)
    _wait(found, _KILLED_WITHIN_SECONDS)


def _belongs(command: Sequence[str], name: str, root: Path) -> bool:
    return Path(command[0]).name == name and any(_names(argument, str(root)) for argument in command[1:])


def _names(argument: str, root: str) -> bool:
    """Return whether an argument is a path in the directory, or ``--flag=`` such a path."""
    value = argument.partition("=")[2] if argument.startswith("-") else argument
    return value == root or value.startswith(f"{root}/")


def _is_mine(process: psutil.Process) -> bool:
    return int(process.uids().effective) == os.geteuid()


def _end(processes: Sequence[psutil.Process], name: str, timeout_seconds: float) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM)
        # A stopped process (SIGSTOP) gets no other signal until it continues.
        _signal(process, signal.SIGCONT)
    left = _wait(processes, timeout_seconds)
    for process in left:
        _signal(process, signal.SIGKILL)
    left = _wait(left, _KILLED_WITHIN_SECONDS)
    if left:
        numbers = ", ".join(str(process.pid) for process in left)
        raise LocalCloudError(
            f"{name} (process {numbers}) does not end, even when killed: it waits for a device, usually a disk or "
            "network file system that does not answer. See `ps -o pid,stat,wchan:32,args -p <number>`."
        )


def _wait(processes: Sequence[psutil.Process], timeout_seconds: float) -> list[psutil.Process]:
    """Wait until the processes have ended, and return the processes that have not in time."""
    deadline = time.monotonic() + timeout_seconds
    left = list(processes)
    while left := [process for process in left if _is_alive(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return left


def _is_alive(process: psutil.Process) -> bool:
    # Not psutil.wait_procs: it also waits until a dead process is reaped, and some containers' first process takes
    # seconds for that.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
