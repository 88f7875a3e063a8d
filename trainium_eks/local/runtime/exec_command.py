"""``trn local exec``: a command in a running container, with the behaviour of ``kubectl exec``.

The API is not asked: the pods are processes of this user, with full rights over them.
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from trainium_eks.local import linux
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.sandbox import enter, execute
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan
from trainium_eks.local.spec.planning import rewritten

NOT_EXECUTED = 126
"""Exit code of a command that cannot be executed, as in ``kubectl exec``."""


@dataclass(frozen=True)
class RunningContainer:
    """A container that runs."""

    plan: PodPlan
    container: Container
    pid: int


def find(paths: Paths, pod: str, namespace: str | None, container: str | None) -> RunningContainer:
    """Return a running container.

    Without a name it is the pod's first container; the namespace is needed where pods of that name run in several.
    """
    name = pod.removeprefix("pod/").removeprefix("pods/")
    running = list(_running(paths))
    found = [(plan, state) for plan, state in running if plan.name == name and namespace in (None, plan.namespace)]
    if not found:
        names = ", ".join(sorted(f"{plan.namespace}/{plan.name}" for plan, _ in running)) or "none"
        where = f" in {namespace}" if namespace else ""
        raise LocalCloudError(f"no pod {name!r} runs here{where}; pods with local/ images that run: {names}")
    if len(found) > 1:
        names = ", ".join(plan.namespace for plan, _ in found)
        raise LocalCloudError(f"pods called {name!r} run in {names}: choose one with --namespace")
    plan, state = found[0]
    chosen = next((each for each in plan.all_containers if each.name == (container or plan.containers[0].name)), None)
    if chosen is None:
        names = ", ".join(each.name for each in plan.all_containers)
        raise LocalCloudError(f"{name} has no container {container!r}; it has {names}")
    pid = state["containers"].get(chosen.name, {}).get("pid")
    if not pid:
        raise LocalCloudError(f"container {chosen.name} of {name} does not run")
    return RunningContainer(plan, chosen, int(pid))


def run(place: RunningContainer, command: Sequence[str]) -> int:
    """Run a command there with this process's input and output; return its exit code, 128 and more for a signal.

    Where input and output are a terminal the command gets a new terminal.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _with_terminal(place, command)
    child = os.fork()
    if child == 0:
        _become(place, command, terminal=False)
    with _passed_on(child):
        return _code(child)


def _running(paths: Paths) -> Iterator[tuple[PodPlan, dict[str, Any]]]:
    for file in sorted(paths.pods.glob("*/plan.json")):
        directory = PodDirectory(file.parent)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plan = PodPlan.from_json(file.read_text(encoding="utf-8"))
            state = json.loads(directory.state.read_text(encoding="utf-8"))
            if any("pid" in each for each in state["containers"].values()):
                yield plan, state


def _become(place: RunningContainer, command: Sequence[str], *, terminal: bool) -> None:
    """Run the command in a forked process. Does not return."""
    code = NOT_EXECUTED
    with contextlib.suppress(BaseException):
        try:
            _go(place, command, terminal=terminal)
        except OSError as error:
            os.write(2, f"{error.strerror or error}\n".encode())
    os._exit(code)


def _go(place: RunningContainer, command: Sequence[str], *, terminal: bool) -> None:
    container, isolation = place.container, place.plan.isolation
    enter(place.pid, isolation)
    if isolation is not Isolation.PLAIN:
        # A process namespace is entered by children.
        child = os.fork()
        if child:
            # Only the terminal's process gets a typed interrupt.
            with _passed_on(child):
                os._exit(_code(child))
        linux.die_with_parent(signal.SIGKILL)
    else:
        command = [rewritten(each, container.mounts, ()) for each in command]
    if terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    environment = {**container.environment, **({"TERM": os.environ.get("TERM", "xterm")} if terminal else {})}
    execute(command, environment, container.directory)


def _with_terminal(place: RunningContainer, command: Sequence[str]) -> int:
    ours, theirs = pty.openpty()
    _copy_size(theirs)
    child = os.fork()
    if child == 0:
        os.close(ours)
        for descriptor in (0, 1, 2):
            os.dup2(theirs, descriptor)
        _become(place, command, terminal=True)
    os.close(theirs)

    def resized(_number: int, _frame: FrameType | None) -> None:
        _copy_size(ours)

    before = signal.signal(signal.SIGWINCH, resized)
    settings = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        _relay(ours)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGWINCH, before)
        os.close(ours)
    return _code(child)


def _relay(terminal: int) -> None:
    """Copy data both ways until the other end is closed."""
    sources = [0, terminal]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if terminal in ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # from Linux, when no process has the other end any more
                return
            if not data:
                return
            os.write(1, data)
        if 0 in ready:
            typed = os.read(0, 65536)
            if typed:
                os.write(terminal, typed)
            else:
                sources.remove(0)


def _copy_size(terminal: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))


@contextmanager
def _passed_on(child: int) -> Iterator[None]:
    """Pass signals that ask this process to end on to the child."""

    def passed(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, passed) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code
