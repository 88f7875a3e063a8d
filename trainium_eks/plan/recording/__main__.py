"""The process that runs a program to record it: ``python -m trainium_eks.plan.recording``.

Started by :mod:`trainium_eks.plan.recording.process` in the project's directory, so that the project's own packages
win: the components of an old checkout are recorded with the modules that lie beside them. The request comes on stdin
and the answer goes to a file, both JSON with a version; the program's output is left alone.
"""

import functools
import gc
import importlib
import json
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from trainium_eks.plan.recording import lazy_sdk
from trainium_eks.plan.recording.protocol import Answer, RecordingRequest, Status, UnknownProtocolError

if TYPE_CHECKING:
    from trainium_eks.plan.backend import Backend

_LOOK_SECONDS = 0.5


def main() -> None:
    """Read the request, run the program, write the answer."""
    # Importing the SDKs makes a million objects that stay; collecting garbage meanwhile takes a fifth of the time.
    gc.disable()
    lazy_sdk.install()
    _leave_with(os.getppid())
    text = sys.stdin.read()
    try:
        request = RecordingRequest.from_json(text)
    except UnknownProtocolError:
        # Every version keeps the key of the answer's file.
        Answer(Status.PROTOCOL).write(Path(json.loads(text)["answer"]))
        return
    answer_file, program = Path(request.answer), Path(request.program)
    sys.stdin = open(os.devnull)  # noqa: SIM115 (for as long as the process lives)
    _recorded(request, program).write(answer_file)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the program left behind must not keep the answer waiting.
    os._exit(0)


def _recorded(request: RecordingRequest, program: Path) -> Answer:
    from trainium_eks.plan.recording.program import RecordingError, RecordingTimeoutError, record_program

    # As `python __main__.py`: the program's directory comes first; the project's own was put there by `-m`.
    sys.path.insert(0, str(program.parent))
    sys.argv = [str(program)]
    try:
        graph = record_program(
            functools.partial(runpy.run_path, str(program), run_name="__main__"),
            project=request.project,
            stack=request.stack,
            config=request.config,
            secret_keys=request.secret_keys,
            dry_run=request.dry_run,
            timeout_seconds=request.timeout_seconds,
            backend=_backend(request),
            assumptions=request.assumptions,
            on_spin=functools.partial(_leave_at, program, threading.get_ident(), Path(request.answer)),
        )
    except RecordingTimeoutError as error:
        return Answer(Status.TIMEOUT, pending=error.pending)
    except RecordingError as error:
        return Answer(Status.FAILED, message="\n".join((str(error), *getattr(error, "__notes__", ()))))
    except SystemExit as error:
        return Answer(Status.FAILED, message=f"the program exited with {error.code!r}")
    except Exception as error:  # noqa: BLE001 (whatever the program raises is its answer)
        return _failure(error, program)
    return Answer(Status.RECORDED, graph=graph.to_json())


def _backend(request: RecordingRequest) -> "Backend | None":
    """Return the live backend that the request names, or None for the simulation."""
    if request.live is None:
        return None
    module, _, function = request.live.factory.partition(":")
    # Line by line, and each in one write: the reader shows them as they come.
    # This process inherited the descriptor; processes started from here must not keep it open.
    os.set_inheritable(request.live.events, False)
    sink = os.fdopen(request.live.events, "w", encoding="utf-8", buffering=1)
    lock = threading.Lock()

    def emit(event: Mapping[str, Any]) -> None:
        with lock:
            sink.write(json.dumps(event) + "\n")

    region = request.config.get("aws:region", "")
    made: Backend = getattr(importlib.import_module(module), function)(request.live.options, region, emit)
    return made


def _failure(error: BaseException, program: Path) -> Answer:
    import pulumi

    from trainium_eks.model.validation.problems import Problem

    chain = list(_chain(error))
    for cause in chain:
        problems = getattr(cause, "problems", None)
        if isinstance(problems, tuple) and problems and all(isinstance(problem, Problem) for problem in problems):
            component = getattr(cause, "component", "")
            return Answer(
                Status.INVALID,
                problems=tuple(problem.to_json() for problem in problems),
                component=component if isinstance(component, str) else "",
                message="\n".join(getattr(error, "__notes__", ())),
            )
    plain = next((cause for cause in chain if isinstance(cause, pulumi.RunError)), None)
    if plain is not None:
        # As under the engine: a RunError is a message for the user, and its traceback is not.
        return Answer(Status.FAILED, message="\n".join((str(plain), *getattr(error, "__notes__", ()))))
    message = "".join(traceback.format_exception_only(error)).strip()
    return Answer(Status.FAILED, message=message, traceback=_own_frames(error, program))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _own_frames(error: BaseException, program: Path) -> str:
    """Return the program's own frames of the traceback: without Pulumi's SDK, the recording and Python itself."""
    frames = traceback.extract_tb(error.__traceback__)
    return "".join(traceback.format_list([frame for frame in frames if _is_own(frame.filename, program)]))


def _is_own(filename: str, program: Path) -> bool:
    path, here = Path(filename), Path(__file__).resolve().parents[1]
    if not path.is_absolute() or path.is_relative_to(here) or "site-packages" in path.parts:
        return False
    return path.is_relative_to(Path.cwd()) or path.is_relative_to(program.parent)


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended for any reason: the answer would have no reader."""

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _leave_at(program: Path, thread: int, answer_file: Path) -> None:
    """End this process while its program computes without end; the answer names the running line."""
    places = [place for place in _places(sys._current_frames().get(thread)) if _is_own(place[0], program)]
    pending = tuple(f"running {Path(file).name}:{line}, in {name}" for file, line, name in places[:1])
    Answer(Status.TIMEOUT, pending=pending).write(answer_file)
    os._exit(0)


def _places(frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back


if __name__ == "__main__":
    main()
