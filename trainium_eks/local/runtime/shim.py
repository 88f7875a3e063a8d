"""The shim: one process a pod, which runs its containers and ends with the agent.

It reads ``plan.json``, writes ``state.json`` at each change and reports the change to the agent. It takes
orders by signals: SIGHUP, read ``stop.json`` and end the pod that way; SIGTERM, end everything at once. ``python -m
trainium_eks.local.runtime.shim <directory of the pod>``; standard library alone, so that it starts at once.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from trainium_eks import whole_file
from trainium_eks.local import linux
from trainium_eks.local.runtime import beneath, probing, process_tree
from trainium_eks.local.runtime.lifecycle import CheckKind, CheckRun, ContainerEnd, Lifecycle, Signal, Start, Step
from trainium_eks.local.runtime.output import Writer
from trainium_eks.local.runtime.sandbox import NOT_STARTED, LiveContainer, Sandbox, StartError
from trainium_eks.local.spec.plan import Container, Isolation, PodDirectory, PodPlan, read

AGENT_SOCKET = "agent.sock"
"""Socket at which the agent hears of changes, in the directory of all pods."""

AGENT_VARIABLE = "TRN_POD_AGENT"
"""Environment variable with the agent's process id."""

FLUSH_SECONDS = 0.5
"""How long the beginning of a line may wait for its end."""

_TERMINATION_MESSAGE_BYTES = 4096
_MESSAGE_LINES, _MESSAGE_LOG_BYTES = 80, 2**16


@dataclass
class _Running:
    """A container that runs."""

    started: LiveContainer
    writer: Writer
    restart: int
    ended: int | None = None
    """Its exit code, once it has ended; its output may still be read."""
    written_at: float = 0.0


@dataclass
class _Doing:
    """A probe or hook that is on its way."""

    step: CheckRun
    deadline: float
    output: int
    said: bytes = field(default=b"")


class Shim:
    """The runner of one pod."""

    def __init__(self, directory: PodDirectory) -> None:
        self._directory = directory
        self._plan = PodPlan.from_json(directory.plan.read_text(encoding="utf-8"))
        self._life = Lifecycle(self._plan, time.time(), read(directory.state))
        self._running: dict[str, _Running] = {}
        self._doing: dict[int, _Doing] = {}
        self._selector = selectors.DefaultSelector()
        self._told = ""
        self._stop_now = False
        self._problem = ""

    def run(self) -> None:
        """Run until the pod has ended."""
        wakeup, written = os.pipe()
        for descriptor in (wakeup, written):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(written)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._selector.register(wakeup, selectors.EVENT_READ, "signals")
        if linux.AVAILABLE:
            linux.adopt_orphans()
            linux.die_with_parent(signal.SIGTERM)
            if os.getppid() != int(os.environ[AGENT_VARIABLE]):
                return  # the agent ended before that call
        try:
            self._sandbox = Sandbox(self._plan, self._directory)
        except OSError as error:
            self._write_state(problem=f"the pod's sandbox could not be made: {error}")
            return
        self._hear_stop()
        try:
            while not self._stop_now:
                now = time.time()
                while steps := self._life.steps(now):
                    self._do(steps, now)
                self._write_state()
                if self._life.is_ended and not self._running:
                    break
                self._wait(wakeup)
        finally:
            self._kill_all()
            self._sandbox.close()
        if not self._stop_now:
            self._write_state()

    # --- Steps ----------------------------------------------------------------------------------------------------

    def _do(self, steps: list[Step], now: float) -> None:
        for step in steps:
            match step:
                case Start():
                    self._start(step, now)
                case CheckRun():
                    self._begin(step, now)
                case Signal():
                    self._signal(step.container, force=step.force)

    def _start(self, step: Start, now: float) -> None:
        container = step.container
        try:
            started = self._sandbox.start(container)
        except (StartError, OSError) as error:
            self._life.ended(container.name, ContainerEnd(NOT_STARTED, "StartError", str(error)), now)
            return
        log = self._directory.log(container.name, step.restart)
        self._forget_logs(container.name, step.restart)
        self._running[container.name] = _Running(started, Writer(log), step.restart)
        os.set_blocking(started.output, False)
        self._selector.register(started.output, selectors.EVENT_READ, container.name)
        self._do(list(self._life.started(container.name, now)), now)

    def _forget_logs(self, name: str, restart: int) -> None:
        """Delete a container's logs except those from the present run and the run before."""
        for file in self._directory.container(name).glob("*.log*"):
            number = file.name.partition(".")[0]
            if number.isdecimal() and int(number) < restart - 1:
                file.unlink(missing_ok=True)

    def _begin(self, step: CheckRun, now: float) -> None:
        running = self._running.get(step.container.name)
        if running is None or running.ended is not None:
            self._life.report_check(step.container.name, step.kind, False, now, "the container does not run")
            return
        pid, output = probing.begin(step.container, step.action, running.started.pid, self._plan, step.timeout_seconds)
        self._doing[pid] = _Doing(step, now + step.timeout_seconds, output)

    def _signal(self, container: Container, *, force: bool) -> None:
        running = self._running.get(container.name)
        if running is None or running.ended is not None:
            return
        if force:
            self._kill(running)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.started.pid, signal.SIGTERM)

    def _kill(self, running: _Running) -> None:
        if self._plan.isolation is Isolation.PLAIN:
            process_tree.kill_tree(running.started.pid)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.started.pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for running in self._running.values():
            if running.ended is None:
                self._kill(running)
        for pid in self._doing:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._plan.isolation is Isolation.PLAIN:
            process_tree.kill_descendants(os.getpid())

    # --- Events ---------------------------------------------------------------------------------------------------

    def _wait(self, wakeup: int) -> None:
        now = time.time()
        times = [self._life.next_time(), *(each.deadline for each in self._doing.values())]
        times += [each.written_at + FLUSH_SECONDS for each in self._running.values() if each.writer.has_rest]
        timeout = min(times) - now
        for key, _ in self._selector.select(None if timeout == float("inf") else max(timeout, 0)):
            if key.data == "signals":
                self._hear(os.read(wakeup, 4096))
            else:
                self._read_output(str(key.data))
        now = time.time()
        self._flush(now)
        self._reap(now)
        for pid, doing in self._doing.items():
            if now >= doing.deadline:
                # Its end is noticed like any other.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                doing.deadline = float("inf")

    def _hear(self, signals: bytes) -> None:
        if signal.SIGTERM in signals:
            self._stop_now = True
        if signal.SIGHUP in signals:
            self._hear_stop()

    def _hear_stop(self) -> None:
        order = read(self._directory.stop)
        if order is not None:
            # Counted from the order's time: a shim may be started for a pod that is to end.
            begun = float(order["at"])
            self._life.stop(begun, float(order["graceSeconds"]), str(order["reason"]), str(order["message"]))

    def _read_output(self, name: str) -> None:
        running = self._running[name]
        try:
            data = os.read(running.started.output, 2**16)
        except BlockingIOError:
            return
        now = time.time()
        if data:
            running.writer.write(data, now)
            running.written_at = now
        else:
            self._selector.unregister(running.started.output)

    def _flush(self, now: float) -> None:
        for running in self._running.values():
            if running.writer.has_rest and now >= running.written_at + FLUSH_SECONDS:
                running.writer.flush(now)

    def _reap(self, now: float) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            if pid in self._doing:
                self._done(pid, code, now)
                continue
            for name, running in list(self._running.items()):
                if running.started.waited == pid:
                    running.ended = code
                    self._end(name, running, now)

    def _end(self, name: str, running: _Running, now: float) -> None:
        if self._plan.isolation is Isolation.PLAIN:
            process_tree.kill_tree(running.started.pid)
        # All its output is in the pipe by now; output of a process that it left behind is not awaited.
        with contextlib.suppress(BlockingIOError, KeyError):
            while data := os.read(running.started.output, 2**16):
                running.writer.write(data, now)
        with contextlib.suppress(KeyError):
            self._selector.unregister(running.started.output)
        os.close(running.started.output)
        running.writer.close(now)
        del self._running[name]
        code = running.ended or 0
        container = next(each for each in self._plan.all_containers if each.name == name)
        message = self._last_words(container, code, running.restart)
        self._life.ended(name, ContainerEnd(code, message=message), now)

    def _last_words(self, container: Container, code: int, restart: int) -> str:
        """Return the container's termination message (``terminationMessagePath``)."""
        said = b""
        if container.termination_log:
            with contextlib.suppress(OSError):
                said = beneath.end_of(container.termination_log, _TERMINATION_MESSAGE_BYTES)
        if not said and code and container.message_from_log:
            with contextlib.suppress(OSError):
                log = beneath.end_of(self._directory.log(container.name, restart), _MESSAGE_LOG_BYTES)
                said = b"\n".join(line.split(b" ", 2)[-1] for line in log.splitlines()[-_MESSAGE_LINES:])[-2048:]
        return said.decode(errors="replace")

    def _done(self, pid: int, code: int, now: float) -> None:
        doing = self._doing.pop(pid)
        said = b""
        with contextlib.suppress(OSError):
            said = os.read(doing.output, 1024)
        os.close(doing.output)
        late = doing.deadline == float("inf")
        message = "it took too long" if late else said.decode(errors="replace").strip() or f"exit code {code}"
        self._life.report_check(doing.step.container.name, doing.step.kind, code == 0 and not late, now, message)
        if doing.step.kind is CheckKind.PRE_STOP and code:
            sys.stderr.write(f"preStop hook of {doing.step.container.name}: {message}\n")

    # --- State ----------------------------------------------------------------------------------------------------

    def _write_state(self, problem: str = "") -> None:
        state = {**self._life.to_json(), "problem": problem, "holder": 0 if problem else self._sandbox.holder}
        for name, running in self._running.items():
            state["containers"][name]["pid"] = running.started.pid
        text = json.dumps(state)
        if text == self._told:
            return
        self._told = text
        try:
            whole_file.write(self._directory.state, text)
        except OSError as error:
            sys.stderr.write(f"state: {error}\n")  # written again with the next change
            self._told = ""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            # By a short name: a socket's path is limited to some 100 characters, and this process runs in there.
            sender.sendto(self._plan.uid.encode(), f"../{AGENT_SOCKET}")


def main(argument: str) -> None:
    """Run the pod of a directory."""
    directory = Path(argument)
    os.chdir(directory)
    Shim(PodDirectory(directory)).run()


if __name__ == "__main__":
    main(sys.argv[1])
