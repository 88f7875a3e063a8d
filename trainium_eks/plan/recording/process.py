"""Recording of a project's own ``__main__.py``, in a separate process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.problems import Problem, config_path
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.project import InvalidConfigError, Project, ProjectError, StackSettings, load_project
from trainium_eks.plan.recording.protocol import (
    PROTOCOL,
    Answer,
    LiveBackend,
    RecordingRequest,
    Status,
    UnknownProtocolError,
)

__all__ = ["InvalidConfigError", "Live", "ProgramFailedError", "ProgramTimeoutError", "ProjectError", "record"]

# The child reports a program that stands still, and ends itself. One that cannot even do that, because it was stopped,
# is killed after this many times the limit: a program that moves may take long.
_LIMITS = 12

# No line of JSON contains this character.
_LAST_LINE = b"\0\n"

# Variables that the SDKs read as defaults (region, profile, cluster): a plan must not depend on a shell's values.
_AMBIENT = ("AWS_", "HELM_", "KUBECONFIG", "PULUMI_", "PYTHONSAFEPATH")


@dataclass(frozen=True)
class Live:
    """Backend that answers for the providers instead of the simulation. It is made in the program's process."""

    factory: str
    """``module:function``, called with the options, the stack's ``aws:region`` and a function that emits an event;
    returns a :class:`~trainium_eks.plan.backend.Backend`."""
    options: Mapping[str, Any]
    on_event: Callable[[Mapping[str, Any]], None]
    """Called in a thread for each event, in their order."""


class ProgramFailedError(Exception):
    """Failure of the program, which raised, or of its process, which died: the error, the program's own frames
    (innermost last) and the program's output."""

    def __init__(self, message: str, traceback: str = "", output: str = "") -> None:
        self.message = message
        self.traceback = traceback
        self.output = output
        parts = [message, traceback.rstrip(), f"The program printed:\n{output.rstrip()}" if output.strip() else ""]
        super().__init__("\n".join(part for part in parts if part))


class ProgramTimeoutError(Exception):
    """A program that made no progress for the whole time limit, or computed without end. ``pending`` has the
    resources it still waited for, or the running line; it is empty when its process gave no answer."""

    def __init__(self, timeout_seconds: float, pending: tuple[str, ...]) -> None:
        self.pending = pending
        listed = "\n".join(f"  {item}" for item in pending) or "  (it did not say)"
        super().__init__(f"nothing has moved in the program for {timeout_seconds:g} s; pending:\n{listed}")


def record(
    directory: Path,
    stack: str,
    *,
    dry_run: bool = False,
    timeout_seconds: float = 300,
    python: str = "",
    adjust: Callable[[StackSettings], StackSettings] = lambda settings: settings,
    live: Live | None = None,
    assumptions: Assumptions | None = None,
) -> Graph:
    """Record a project's stack and return its graph. A program that is silent for ``timeout_seconds`` is stopped.
    ``python`` runs it: without one, the project's own virtual environment where that has what the recording needs, and
    else this interpreter. ``adjust`` changes the stack's settings on their way to the program; ``live`` answers for the
    providers in place of the simulation; for the others see
    :func:`~trainium_eks.plan.recording.program.record_program`.

    Raise ProjectError when the project or stack cannot be read, InvalidConfigError when its declared types or the
    program refuse the stack's config, ProgramFailedError when the program raised or died, and ProgramTimeoutError when
    nothing moves in it.
    """
    project = load_project(directory)
    # A live backend is this package's, with the packages that only this interpreter has.
    python = python or (sys.executable if live is not None else "")
    note = "" if python else _other_environment(project)
    python = python or (sys.executable if note else _interpreter(project))

    def request(settings: StackSettings) -> RecordingRequest:
        return RecordingRequest(
            project=project.name,
            stack=settings.name,
            program=str(project.program),
            config=settings.config,
            secret_keys=tuple(sorted(settings.secret_keys)),
            dry_run=dry_run,
            timeout_seconds=timeout_seconds,
            assumptions=assumptions,
        )

    try:
        settings = adjust(project.stack(stack))
    except InvalidConfigError as error:
        if error.settings is None:
            raise
        raise _with_the_programs_own(project, request(error.settings), error, python) from None
    try:
        graph = _record(project, request(settings), python, live)
    except ProgramFailedError as error:
        message = f"{error.message}\n{note}" if note else error.message
        raise ProgramFailedError(message, error.traceback, error.output) from None
    return replace(graph, warnings=(note, *graph.warnings)) if note else graph


_NEEDED = ("pulumi", "pydantic", "yaml")
"""Packages that the recording imports."""


def _interpreter(project: Project) -> str:
    """Return the Python of the project's virtual environment, or this one."""
    own = project.environment / "bin" / "python" if project.environment else None
    return str(own) if own is not None and own.is_file() else sys.executable


def _other_environment(project: Project) -> str:
    """Return a sentence when Pulumi runs the program in a virtual environment that cannot record it, so that its
    packages may lack here; empty when the environment can, is this one or does not exist."""
    environment, here = project.environment, f"the program was run by {sys.executable}"
    if environment is None and project.toolchain == "poetry":
        return f"{here}, and Pulumi runs it in Poetry's environment: if that is another one, use `poetry run trn`"
    if environment is None or not environment.is_dir() or environment.resolve() == Path(sys.prefix).resolve():
        return ""
    lacks = [name for name in _NEEDED if not any(environment.glob(f"lib/python3.[1-9][1-9]/site-packages/{name}"))]
    if not lacks:
        return ""
    return (
        f"{here}, and not in the project's own environment {environment} (runtime.options in Pulumi.yaml), which lacks "
        f"{', '.join(lacks)}: install trainium-eks there, and use its trn"
    )


def _with_the_programs_own(
    project: Project, request: RecordingRequest, declared: InvalidConfigError, python: str
) -> InvalidConfigError:
    """Return the problems of Pulumi.yaml's types with the program's own problems: all are reported at once."""
    try:
        _record(project, request, python)
    except InvalidConfigError as error:
        if error.component:
            return declared  # invalid config may be the cause of a component's invalid arguments
        said = {problem.path for problem in declared.problems}
        more = tuple(problem for problem in error.problems if config_path(problem.path) not in said)
        return InvalidConfigError(declared.problems + more)
    except (ProgramFailedError, ProgramTimeoutError, ProjectError):
        pass  # the invalid config may be the cause
    return declared


def _record(project: Project, request: RecordingRequest, python: str, live: Live | None = None) -> Graph:
    _check_version(project)
    with tempfile.TemporaryDirectory(prefix="trn-record-") as scratch:
        answer_file = Path(scratch) / "answer.json"
        code, output = _run(project, python, replace(request, answer=str(answer_file)), Path(scratch), live)
        if not answer_file.is_file():
            raise ProgramFailedError(_death(code), output=output)
        try:
            answer = Answer.read(answer_file)
        except UnknownProtocolError as error:
            raise ProjectError(
                f"the trainium_eks in {project.directory} speaks version {error.version} of the recording protocol, "
                f"this one version {PROTOCOL}"
            ) from None
    return _graph(answer, request.timeout_seconds, output)


def _check_version(project: Project) -> None:
    """Raise when a checkout's own ``trainium_eks`` is too old to record it, since two versions would mix."""
    package = project.directory / "trainium_eks"
    if (package / "__init__.py").is_file() and not (package / "plan" / "recording" / "__main__.py").is_file():
        raise ProjectError(
            f"the trainium_eks in {project.directory} is too old to be recorded: it has no plan/recording/__main__.py"
        )


def _run(
    project: Project,
    python: str,
    request: RecordingRequest,
    scratch: Path,
    live: Live | None,
) -> tuple[int, str]:
    """Return exit code and output. The child and the processes of its session have ended when this returns."""
    printed = scratch / "printed"
    events = _Events(live) if live is not None else None
    # A file, not a pipe: a process that the program leaves behind would keep a pipe open and the reader waiting.
    with printed.open("wb") as sink:
        process = subprocess.Popen(
            [python, "-m", "trainium_eks.plan.recording"],
            cwd=project.directory,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(events.write_end,) if events else (),
        )
    try:
        if events is not None:
            request = replace(request, live=events.begin())
        process.communicate(request.to_json().encode(), timeout=_LIMITS * request.timeout_seconds)
    except subprocess.TimeoutExpired:
        raise ProgramTimeoutError(request.timeout_seconds, ()) from None
    finally:
        _end(process)
        if events is not None:
            events.end()
    return process.returncode, printed.read_text(errors="replace")


class _Events:
    """Events of the live backend while the program runs: JSON lines through a separate pipe."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._read_end, self.write_end = os.pipe()
        # A second write end, to end the reading: a process that the child left behind may keep the pipe open for ever.
        self._end_with = os.dup(self.write_end)
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)

    def begin(self) -> LiveBackend:
        """Start the reader; return the request's entry for it. The program's process has its own copy of the pipe's
        end."""
        os.close(self.write_end)
        self._reader.start()
        return LiveBackend(self._live.factory, self._live.options, self.write_end)

    def end(self) -> None:
        """Stop the reader after the child has ended; every event has been passed on when this returns."""
        if self._reader.ident is not None:
            with contextlib.suppress(BrokenPipeError):  # the reader failed
                os.write(self._end_with, _LAST_LINE)
            self._reader.join()
        os.close(self._end_with)

    def _read(self) -> None:
        with os.fdopen(self._read_end, "rb") as lines:
            for line in lines:
                # A child that was killed may have written half a line before it.
                if line.endswith(_LAST_LINE):
                    return
                self._live.on_event(json.loads(line))


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_AMBIENT)}
    # `-m` puts the project's directory first, so its own packages win; ours serve projects without them.
    own = str(Path(__file__).resolve().parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(part for part in (own, environment.get("PYTHONPATH", "")) if part)
    return environment


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the child's whole session, also after an interrupt from the keyboard."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _graph(answer: Answer, timeout_seconds: float, output: str) -> Graph:
    if answer.status is Status.INVALID:
        problems = tuple(Problem.from_json(item) for item in answer.problems)
        raise InvalidConfigError(problems, component=answer.component, note=answer.message)
    if answer.status is Status.TIMEOUT:
        raise ProgramTimeoutError(timeout_seconds, answer.pending)
    if answer.graph is None:
        raise ProgramFailedError(answer.message, answer.traceback, output)
    return Graph.from_json(answer.graph)


def _death(code: int) -> str:
    if code < 0:
        return f"the program's process was killed by {signal.Signals(-code).name}"
    return f"the program's process ended with exit code {code} and no answer"
