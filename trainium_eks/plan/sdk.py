"""Every touch of the Pulumi SDK's private parts, in one place.

The SDK (3.272) offers mocks for unit tests, which see less than the engine does: no options, no exports, no
transforms. To replace the engine, a recording sets the SDK's own context and reads some of its internals.
They may move in any release; ``tests/unit/plan/recording/test_sdk.py`` says which one did.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from traceback import FrameSummary
from types import FrameType
from typing import Any, Protocol

from google.protobuf import empty_pb2  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from pulumi import Output, Resource, _types
from pulumi.runtime import _callbacks, _grpc_settings, mocks, rpc, settings
from pulumi.runtime import config as _config
from pulumi.runtime import resource as _resource
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.stack import run_in_stack

# --- the wire format ----------------------------------------------------------------------------------------------

SIGNATURE: str = rpc._special_sig_key
"""The key of a struct's kind."""
SECRET_SIGNATURE: str = rpc._special_secret_sig
RESOURCE_SIGNATURE: str = rpc._special_resource_sig
UNKNOWN: str = rpc.UNKNOWN
"""Text that is sent for a value that only an update would know."""

CHANNEL_OPTIONS = _grpc_settings._GRPC_CHANNEL_OPTIONS
"""The SDK's options of gRPC: messages may be large."""


# --- the context of a program -------------------------------------------------------------------------------------


class _NoMocks(mocks.Mocks):
    """The mocks that the base class requires; every method that would call them is replaced."""

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        raise NotImplementedError(args.token)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise NotImplementedError(args.typ)


class BaseMonitor(mocks.MockMonitor):
    """A resource monitor that takes part in the SDK's handshakes (features, hooks, packages) and records nothing."""

    def __init__(self) -> None:
        super().__init__(_NoMocks())

    def features(self) -> set[int]:
        """Return the features of the replaced engine."""
        return set(self.GetDeploymentInfo(empty_pb2.Empty()).supportedFeatures)  # type: ignore[no-untyped-call]


class Callbacks(_callbacks._CallbackServicer):
    """The transforms that a program registered. The SDK serves them to the engine on a port; here nothing listens."""

    def __init__(self, monitor: BaseMonitor, loop: asyncio.AbstractEventLoop) -> None:
        # Not the base class's: it opens the port.
        self._callbacks = {}
        self._transforms = {}
        self._state_migrations = {}
        self._monitor = monitor  # type: ignore[assignment]  # as good as a gRPC stub
        self._loop = loop
        self._target = "in this process"
        self._lock = threading.Lock()
        self._running: set[Future[bytes]] = set()
        self._closed = False

    def run(self, token: str, request: Message) -> bytes:
        """Call a transform on the program's loop, from another thread; return its answer as the SDK would send it.
        Raise the exception of the program's function, and CancelledError when the program has ended."""

        async def call() -> bytes:
            answer = await self._callbacks[token](request.SerializeToString())
            return bytes(answer.SerializeToString())

        with self._lock:
            if self._closed:
                raise CancelledError
            answer = asyncio.run_coroutine_threadsafe(call(), self._loop)
            self._running.add(answer)
        try:
            return answer.result()
        finally:
            with self._lock:
                self._running.discard(answer)

    def close(self) -> None:
        """Cancel all waiting calls: the loop that would answer has stopped."""
        with self._lock:
            self._closed = True
            left = tuple(self._running)
        for answer in left:
            answer.cancel()


class _Outputs(set["asyncio.Future[object]"]):
    """The Outputs that a program waits for at its end.

    The SDK lists them, waits for any one, and begins anew: a time that grows with the square of their number. It is
    given one task that waits for all of them, or for the first failure.
    """

    def __iter__(self) -> Iterator["asyncio.Future[object]"]:
        if pending := tuple(super().__iter__()):
            yield asyncio.ensure_future(_all(pending))


async def _all(pending: Collection["asyncio.Future[object]"]) -> None:
    done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
    for each in done:
        await each


def _stack_trace() -> source_pb2.StackTrace:
    """Return the place where the program makes a resource: the caller of its class, the third constructor from here.

    The SDK's own function looks at the files of all callers, for a trace that nothing here reads.
    """
    frame: FrameType | None = sys._getframe(1)
    constructors = 0
    while frame is not None and constructors < 3:
        constructors += frame.f_code.co_name == "__init__"
        frame = frame.f_back
    if frame is None:
        return source_pb2.StackTrace()
    place = FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, lookup_line=False)
    found = source_pb2.StackFrame(pc=_resource._get_source_position_for_frame(place))
    return source_pb2.StackTrace(frames=[found])


class Program(Protocol):
    """The running program's attributes that the SDK reads."""

    project: str
    stack: str

    @property
    def has_unknowns(self) -> bool:
        """Whether a value may be unknown. The SDK knows unknown values in a preview alone."""
        ...


def enter(
    program: Program,
    monitor: BaseMonitor,
    engine: object,
    loop: asyncio.AbstractEventLoop,
    config: Mapping[str, str],
    secret_keys: Collection[str],
) -> Callbacks:
    """Set the SDK's state in the current context, as ``pulumi up`` does before it runs a program."""
    callbacks = Callbacks(monitor, loop)
    _resource._get_stack_trace = _stack_trace
    settings.ROOT.set(None)
    settings.configure(
        mocks.MockSettings(  # type: ignore[no-untyped-call]
            monitor=monitor,
            monitor_features=monitor.features(),
            engine=engine,
            project=program.project,
            stack=program.stack,
            organization="organization",
            root_directory=os.getcwd(),
            dry_run=program.has_unknowns,
            legacy_apply_enabled=False,
            parallel=None,
            callbacks=callbacks,
            # Shared by all contexts unless replaced: outputs of an earlier program would be awaited here.
            outputs=_Outputs(),
            lock=threading.Lock(),
            package_refs={},
            base_providers_by_ref={},
        )
    )
    _config.set_all_config(dict(config), sorted(secret_keys))
    return callbacks


def config() -> dict[str, str]:
    """Return the config of the program that runs in the current context, with the values that it set itself."""
    return dict(_config.CONFIG.get())


def run(program: Callable[[], object]) -> Coroutine[Any, Any, None]:
    """Return the coroutine that runs a program inside a stack, and waits for its registrations."""
    return run_in_stack(program)  # type: ignore[arg-type]  # a program may return anything


# --- what a program is waiting for --------------------------------------------------------------------------------

# The SDK's coroutines that stand for one thing a user knows.
_REGISTRATION = "register_resource.<locals>.do_register"
_OUTPUTS = "register_resource_outputs.<locals>.do_register_resource_outputs"


@dataclass(frozen=True)
class Waiting:
    """A registration, or the outputs of a component, that is under way."""

    subject: str
    """``<type> <name>``; ``exports`` for the stack's outputs."""
    values: object
    """The given inputs or outputs, which may contain Outputs."""
    is_registration: bool


def waiting(task: "asyncio.Task[Any]") -> Waiting | None:
    """Return the registration or the outputs that a task of the SDK works on, or None for another task."""
    coroutine = task.get_coro()
    frame = getattr(coroutine, "cr_frame", None)
    name = getattr(coroutine, "__qualname__", "")
    if frame is None or name not in (_REGISTRATION, _OUTPUTS):
        return None
    local = frame.f_locals
    if name == _REGISTRATION:
        return Waiting(f"{local.get('ty')} {local.get('name')}", local.get("props"), is_registration=True)
    resource = local.get("res")
    stack = getattr(resource, "_type", "") == "pulumi:pulumi:Stack"
    subject = "exports" if stack else f"outputs of {getattr(resource, '_name', '')}"
    return Waiting(subject, local.get("outputs"), is_registration=False)


def is_resolved(output: "Output[Any]") -> bool:
    """Return whether an Output has its value."""
    return output._data.done()


def is_input_object(value: object) -> bool:
    """Return whether a value is of one of the SDK's args classes."""
    return not isinstance(value, Resource) and hasattr(type(value), "_pulumi_input_type")


# --- the classes of a provider's SDK ------------------------------------------------------------------------------


def provider_class(package: str) -> tuple[str, str] | None:
    """Return module and name of a provider's class, or None when its SDK has not been imported."""
    info = getattr(rpc.get_resource_package(package, ""), "pkg_info", None)
    return (info["fqn"], info["class"]) if info else None


def resource_class(package: str, module: str, type_: str) -> tuple[str, str] | None:
    """Return module and name of a resource's class, or None when its SDK has not been imported."""
    info = getattr(rpc.get_resource_module(package, module, ""), "mod_info", None)
    name = info["classes"].get(type_) if info else None
    return (info["fqn"], name) if info and name else None


def is_input_type(candidate: type) -> bool:
    """Return whether a class is one of the SDK's args classes."""
    return _types.is_input_type(candidate)


def input_types(args: type) -> Mapping[str, type]:
    """Return input name (camelCase) of an args class to its Python type."""
    return _types.input_type_types(args)


def is_output_type(candidate: type) -> bool:
    """Return whether a class is one of the SDK's result classes."""
    return _types.is_output_type(candidate)


def output_types(result: type) -> Mapping[str, type]:
    """Return field name (camelCase) of a result class to its Python type."""
    return _types.output_type_types(result)
