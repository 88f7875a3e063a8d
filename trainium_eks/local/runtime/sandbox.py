"""The processes in a pod's namespaces: their start, their end with the shim, and the entry of other processes.

Each container has a small process in between, which stays outside of the container's process namespace and ends as the
container's first process does. A process that dies takes its children along (``PR_SET_PDEATHSIG``), and the kernel ends
a process namespace with its first process: so a shim that is killed leaves nothing behind.
"""

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local import linux
from trainium_eks.local.linux import Namespaces
from trainium_eks.local.network import network
from trainium_eks.local.runtime import root_files
from trainium_eks.local.spec.plan import Container, Isolation, Mount, PodDirectory, PodPlan

NOT_STARTED = 128
"""Exit code of a container whose command cannot be executed, as container runtimes report it."""

PROCESS_LIMIT = 8192
"""Processes and threads of all pods together, in each user namespace."""

_PROBLEM = "!"
_SHARED_MEMORY_BYTES = 64 * 2**20
_POD = Namespaces.USER | Namespaces.MOUNT | Namespaces.UTS | Namespaces.IPC


class StartError(Exception):
    """The error of a container that could not be started; the message says why."""


@dataclass(frozen=True)
class LiveContainer:
    """A running container."""

    waited: int
    """The process to wait for; its exit code is the container's."""
    pid: int
    """The container's first process, by its id on the machine."""
    output: int


class Sandbox:
    """The sandbox that a pod's containers share: host name, IPC, memory volumes and network."""

    def __init__(self, plan: PodPlan, directory: PodDirectory) -> None:
        self._plan = plan
        self._directory = directory
        self.holder = 0
        """The process that holds the sandbox; 0 without isolation."""
        directory.shared_memory.mkdir(exist_ok=True)
        for each in plan.memory_volumes:
            Path(each).mkdir(parents=True, exist_ok=True)
        if plan.isolation is not Isolation.PLAIN:
            self.holder = _forked(self._hold)
            if plan.isolation is Isolation.NET:
                network.plug(self.holder, plan.network_pid, plan.address)

    def start(self, container: Container) -> LiveContainer:
        """Start a container."""
        place = self._directory.container(container.name)
        for each in (place, self._directory.scratch(container.name), self._directory.root(container.name)):
            each.mkdir(parents=True, exist_ok=True)
        if container.termination_log:
            # Recreated: the previous run may have left any kind of file.
            Path(container.termination_log).unlink(missing_ok=True)
            Path(container.termination_log).touch()
        output, written = os.pipe()
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(output)
            os.close(told)
            _end_with(lambda: self._run(container, written, telling), telling)
        os.close(written)
        os.close(telling)
        with os.fdopen(told, "rb") as file:
            said = file.read().decode(errors="replace").splitlines()
        problem = next((line[1:] for line in said if line.startswith(_PROBLEM)), "")
        number = next((line for line in said if line.isdigit()), "")
        if problem or not number:
            os.close(output)
            os.waitpid(child, 0)
            raise StartError(problem or "it ended before it began")
        return LiveContainer(child, int(number), output)

    def close(self) -> None:
        """End the process that holds the sandbox."""
        if self.holder:
            with contextlib.suppress(OSError):
                os.kill(self.holder, signal.SIGKILL)
                os.waitpid(self.holder, 0)

    # --- In the process that holds the sandbox --------------------------------------------------------------------

    def _hold(self, telling: int) -> None:
        linux.die_with_parent(signal.SIGKILL)
        kinds = Namespaces.MOUNT | Namespaces.UTS | Namespaces.IPC
        if self._plan.isolation is Isolation.NET:
            # Of the network's user namespace, so that the two ends of a cable may lie in both.
            linux.join(self._plan.network_pid, Namespaces.USER)
            linux.unshare(kinds | Namespaces.NET)
        else:
            uid, gid = os.getuid(), os.getgid()
            linux.unshare(kinds | Namespaces.USER)
            linux.become_root(uid, gid)
        linux.make_private("/")
        linux.set_host_name(self._plan.hostname)
        linux.mount("tmpfs", str(self._directory.shared_memory), "tmpfs", f"size={_SHARED_MEMORY_BYTES},mode=1777")
        for path, size in self._plan.memory_volumes.items():
            linux.mount("tmpfs", path, "tmpfs", f"size={size or '50%'},mode=1777")
        os.close(telling)
        while True:
            signal.pause()

    # --- In a container's processes -------------------------------------------------------------------------------

    def _run(self, container: Container, output: int, telling: int) -> None:
        """Run in the process in between, or in plain mode in the container's first process."""
        linux_namespaces = self._plan.isolation is not Isolation.PLAIN
        if linux.AVAILABLE:
            linux.die_with_parent(signal.SIGKILL)
        if not linux_namespaces:
            os.write(telling, f"{os.getpid()}\n".encode())
            self._become(container, output)
        net = Namespaces.NET if self._plan.isolation is Isolation.NET else Namespaces(0)
        linux.join(self.holder, _POD | net)
        linux.unshare(Namespaces.PID | Namespaces.MOUNT)
        linux.die_with_parent(signal.SIGKILL)  # once more: other credentials may have cleared it
        first = os.fork()
        if first == 0:
            _end_with(lambda: self._first(container, output), telling)
        os.write(telling, f"{first}\n".encode())
        os.close(telling)
        os.close(output)
        wait_as(first)

    def _first(self, container: Container, output: int) -> None:
        linux.die_with_parent(signal.SIGKILL)
        linux.make_private("/")
        scratch = str(self._directory.scratch(container.name))
        # /var/tmp is for files that outlive a restart of the machine; here both end with the container's pod.
        private = tuple(Mount(scratch, path) for path in ("/tmp", "/var/tmp"))
        targets = {each.target for each in container.mounts}
        mounts = [each for each in private if each.target not in targets]
        mounts += [root_files.pinned(each) for each in container.mounts]
        root_files.build(
            self._directory.root(container.name),
            root_files.layout(mounts),
            self._directory.shared_memory,
            read_only=container.read_only_root,
        )
        self._become(container, output)

    def _become(self, container: Container, output: int) -> None:
        os.setsid()
        with contextlib.suppress(OSError):
            os.makedirs(container.directory, exist_ok=True)
        execute(container.argv, container.environment, container.directory, output)


def execute(argv: Sequence[str], environment: Mapping[str, str], directory: str, output: int = -1) -> None:
    """Become a container's command. Does not return.

    The program is looked for in the ``PATH`` of the environment, which is complete. A negative output is this process's
    own.
    """
    if output >= 0:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
    try:
        os.chdir(directory)
    except OSError as error:
        raise OSError(error.errno, f'chdir to working directory "{directory}": {error.strerror}') from None
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_processes()
    try:
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        reason = "executable file not found in $PATH" if "/" not in argv[0] else str(error.strerror).lower()
        raise OSError(error.errno, f'exec: "{argv[0]}": {reason}') from None


def enter(pid: int, isolation: Isolation) -> None:
    """Enter a container's namespaces. Processes started from then on are among the container's."""
    if isolation is Isolation.PLAIN:
        return
    net = Namespaces.NET if isolation is Isolation.NET else Namespaces(0)
    linux.join(pid, _POD | Namespaces.PID | net)


def wait_as(pid: int) -> None:
    """Wait for a process and end this one with its exit code, or 128 and the number of the signal."""
    while True:
        try:
            _, status = os.waitpid(pid, 0)
        except InterruptedError:
            continue
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)


def _limit_processes() -> None:
    """Limit the number of processes, so that a program that multiplies does not take the machine along."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = PROCESS_LIMIT if hard == resource.RLIM_INFINITY else min(PROCESS_LIMIT, hard)
    if soft == resource.RLIM_INFINITY or soft > limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))


def _forked(work: Callable[[int], None]) -> int:
    """Return a process that does the work, once it has closed the descriptor that it is given."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        _end_with(lambda: work(telling), telling)
    os.close(telling)
    with os.fdopen(told, "rb") as file:
        problem = file.read().decode(errors="replace").strip()
    if problem:
        os.waitpid(child, 0)
        raise OSError(problem.removeprefix(_PROBLEM))
    return child


def _end_with(work: Callable[[], None], telling: int) -> None:
    """Do the work in a forked process, and end it; an error is reported to the parent."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (after any error, the parent's code must not continue here)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
        with contextlib.suppress(OSError):
            os.write(telling, f"{_PROBLEM}{' '.join(said.split())}\n".encode())
    os._exit(NOT_STARTED)
