"""Run of a Pulumi program without an engine, with a record of every registration.

No outside service is called: no engine, no cloud, no credentials. The answers of providers come from a
:class:`~trainium_eks.plan.backend.Backend`. All context variables of Pulumi's SDK are set in a copy of the
context, so one process can record any number of programs one after another.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from pulumi import Output

from trainium_eks import fetched
from trainium_eks.model.config.stack_config import decode
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.plan import sdk
from trainium_eks.plan.backend import Backend
from trainium_eks.plan.graph import SECRET, Graph
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.monitor import Monitor, RecordingError
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION
from trainium_eks.plan.resource_types.simulation import Simulation

__all__ = ["RecordingError", "RecordingTimeoutError", "record_program"]

_LOOKS = 10
"""Looks at a program in its time limit."""

# Registrations block their thread while the backend answers, and asyncio's default of 6 threads on 2 cores makes a
# live backend slow and can starve.
_THREADS = 32


class RecordingTimeoutError(Exception):
    """A program that does not finish. ``pending`` has the unfinished registrations, each as ``<type> <name> (waiting
    for: <inputs>)``."""

    def __init__(self, timeout_seconds: float, waiting: tuple[str, ...]) -> None:
        self.pending = waiting
        listed = "\n".join(f"  {item}" for item in waiting) or "  nothing that Pulumi knows of"
        super().__init__(f"nothing has moved in the program for {timeout_seconds:g} s; it still waits for\n{listed}")


def record_program(
    program: Callable[[], object],
    *,
    project: str = "trainium-eks",
    stack: str = "test",
    config: Mapping[str, str] | None = None,
    secret_keys: Collection[str] = (),
    dry_run: bool = False,
    backend: Backend | None = None,
    assumptions: Assumptions | None = None,
    foreign: bool = False,
    timeout_seconds: float = 60,
    on_spin: Callable[[], None] = lambda: None,
) -> Graph:
    """Run ``program``, the work of ``__main__.py``, inside a stack and return the graph of its registrations.

    Keys of ``config`` without a namespace are the project's; others are given in full (``aws:region``). With
    ``dry_run``, as in a first preview, values that a provider computes are unknown. ``assumptions`` answer the look-ups
    of a foreign program, others of which get a placeholder; without them a look-up is an error. With ``foreign``,
    unknown resource types are recorded with their inputs, and components of other packages without their children and
    with unknown outputs; otherwise they are an error. The program is stopped when nothing has moved in it for
    ``timeout_seconds``. Nothing in this process can stop a program that computes without end: ``on_spin`` is called in
    another thread then, and may end the process.

    Raise RecordingError for a duplicate URN, a look-up, an unknown input or a foreign type, RecordingTimeoutError with
    the pending registrations, and any exception of the program.
    """
    full = {_full_key(key, project): value for key, value in (config or {}).items()}
    secret = {_full_key(key, project) for key in secret_keys}
    region = full.get("aws:region", DEFAULT_REGION)
    monitor = Monitor(
        backend or Simulation(region),
        project=project,
        stack=stack,
        dry_run=dry_run,
        region=region,
        assumptions=assumptions,
        foreign=foreign,
        secrets={full[key] for key in secret if key in full},
    )
    try:
        used = contextvars.copy_context().run(_drive, program, monitor, full, secret, timeout_seconds, on_spin)
    except Exception as error:
        if made_up := monitor.made_up_answers(stack):
            error.add_note(made_up)
        raise
    return monitor.graph(_decoded(used, secret, project))


def _drive(
    program: Callable[[], object],
    monitor: Monitor,
    config: Mapping[str, str],
    secret_keys: Collection[str],
    timeout_seconds: float,
    on_spin: Callable[[], None],
) -> Mapping[str, str]:
    """Run the program on a separate event loop, which is never the thread's current loop; return the config with the
    values that the program set."""
    # In this copy of the context alone: the program names its downloads, and fetches nothing.
    fetched.PLANNING.set(True)
    loop = asyncio.new_event_loop()
    executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="registration")
    loop.set_default_executor(executor)
    # A failed registration fails every task that waits for it; only the first error has the reason, and is raised.
    loop.set_exception_handler(lambda _loop, _context: None)
    origins = _Origins()
    loop.set_task_factory(origins.task)
    callbacks = sdk.enter(monitor, monitor, monitor.engine, loop, config, secret_keys)
    monitor.run_callback = callbacks.run
    task = loop.create_task(sdk.run(program))
    finished = False
    try:
        finished = _ends(loop, task, origins, timeout_seconds, on_spin)
        if not finished:
            raise RecordingTimeoutError(timeout_seconds, _pending(loop, monitor.in_flight))
        _result(task, monitor, origins)
    except SystemExit as error:
        # As under the engine: registrations made before `sys.exit(0)` count.
        if error.code not in (None, 0):
            raise
    finally:
        callbacks.close()
        _close(loop, executor, wait=finished)
    return sdk.config()


def _ends(
    loop: asyncio.AbstractEventLoop,
    task: "asyncio.Task[None]",
    origins: "_Origins",
    timeout_seconds: float,
    on_spin: Callable[[], None],
) -> bool:
    """Run a program to its end; return false when nothing has moved in it in all looks of the time limit.

    Looks are counted and not time: a watcher that gets no turn on the processor does not look meanwhile, either.
    """
    stuck, ended = asyncio.Event(), threading.Event()

    def watch() -> None:
        seen, still = origins.steps, 0
        while not ended.wait(timeout_seconds / _LOOKS):
            seen, still = origins.steps, still + 1 if origins.steps == seen else 0
            if still == _LOOKS:
                loop.call_soon_threadsafe(stuck.set)
            if still > _LOOKS:  # the loop got no turn meanwhile
                on_spin()
                return

    async def wait() -> None:
        standstill = asyncio.ensure_future(stuck.wait())
        await asyncio.wait({task, standstill}, return_when=asyncio.FIRST_COMPLETED)
        standstill.cancel()

    threading.Thread(target=watch, name="watch", daemon=True).start()
    try:
        loop.run_until_complete(wait())
    finally:
        ended.set()
    return task.done()


class _Origins:
    """The first traceback of each exception. On its way through Pulumi's futures it loses the frames of the program.

    ``steps`` counts the beginnings and ends of tasks; another thread may read it.
    """

    def __init__(self) -> None:
        self.steps = 0
        # By identity, since an exception need not be hashable; the exception is kept so that its id stays its own.
        self._raised: dict[int, tuple[BaseException, TracebackType | None]] = {}

    def task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Return a new task. The callback here runs before the callbacks of waiting tasks, so it sees the exception as
        raised."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        task.add_done_callback(self._note)
        self.steps += 1
        return task

    def restored(self, error: BaseException) -> BaseException:
        """Return the exception with its first traceback."""
        _, raised_with = self._raised.get(id(error), (error, error.__traceback__))
        return error.with_traceback(raised_with)

    def _note(self, task: "asyncio.Task[Any]") -> None:
        self.steps += 1
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._raised.setdefault(id(error), (error, error.__traceback__))


def _result(task: "asyncio.Task[None]", monitor: Monitor, origins: _Origins) -> None:
    error = task.exception()
    if monitor.errors:
        raise RecordingError("\n".join(sorted(set(monitor.errors)))) from None
    if error is not None:
        raise origins.restored(error)


def _close(loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor, *, wait: bool) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks and not loop.is_closed():
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    executor.shutdown(wait=wait, cancel_futures=True)
    loop.close()


def _pending(loop: asyncio.AbstractEventLoop, in_flight: Collection[str]) -> tuple[str, ...]:
    """Return the registrations and exports that are not done, sorted; a best effort when the program's event loop
    runs in another thread. ``in_flight`` has the registrations that the backend is working on."""
    found = {f"{item} (being created)" for item in in_flight}
    for task in asyncio.all_tasks(loop):
        what = sdk.waiting(task)
        if what is None:
            continue
        waits = tuple(_unresolved(what.values, ""))
        if waits:
            found.add(f"{what.subject} (waiting for: {', '.join(waits)})")
        elif not (what.is_registration and what.subject in in_flight):
            found.add(what.subject)
    return tuple(sorted(found))


def _unresolved(value: Any, path: str) -> Iterator[str]:
    """Yield the paths inside the inputs of a registration that have no value yet."""
    if isinstance(value, Output):
        if not sdk.is_resolved(value):
            yield path
    elif isinstance(value, asyncio.Future):
        if not value.done():
            yield path
    elif isinstance(value, Mapping):
        for key in value:
            yield from _unresolved(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unresolved(item, f"{path}[{index}]")
    elif sdk.is_input_object(value):
        yield from _unresolved(vars(value), path)


def _full_key(key: str, project: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _decoded(config: Mapping[str, str], secret_keys: set[str], project: str) -> dict[str, Any]:
    """Return the project's own config as data."""
    data: dict[str, Any] = {}
    for key in sorted(config):
        namespace, _, name = key.partition(":")
        if namespace != project:
            continue
        if key in secret_keys:
            data[name] = SECRET
            continue
        try:
            data.update(decode({name: config[key]}))
        except ConfigModelError:
            data[name] = config[key]
    return data
