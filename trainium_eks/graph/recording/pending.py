"""What a program that does not finish is waiting for."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pulumi import Output, Resource

# The SDK's coroutines that stand for one thing a user knows, and what that thing is.
_REGISTRATION = "register_resource.<locals>.do_register"
_OUTPUTS = "register_resource_outputs.<locals>.do_register_resource_outputs"


def pending(loop: asyncio.AbstractEventLoop, in_flight: Collection[str]) -> tuple[str, ...]:
    """The registrations and exports that are not done, sorted.

    Args:
        loop: the program's event loop. It may be running in another thread; then the answer is a best effort.
        in_flight: registrations that the backend is working on.
    """
    found = {f"{item} (being created)" for item in in_flight}
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        frame = getattr(coroutine, "cr_frame", None)
        name = getattr(coroutine, "__qualname__", "")
        if frame is None or name not in (_REGISTRATION, _OUTPUTS):
            continue
        local = frame.f_locals
        if name == _REGISTRATION:
            subject = f"{local.get('ty')} {local.get('name')}"
            waits = tuple(_unresolved(local.get("props"), ""))
            if not waits and subject in in_flight:
                continue
        else:
            resource = local.get("res")
            type_ = getattr(resource, "_type", "")
            subject = "exports" if type_ == "pulumi:pulumi:Stack" else f"outputs of {getattr(resource, '_name', '')}"
            waits = tuple(_unresolved(local.get("outputs"), ""))
        found.add(f"{subject} (waiting for: {', '.join(waits)})" if waits else subject)
    return tuple(sorted(found))


def _unresolved(value: Any, path: str) -> Iterator[str]:
    """Where, inside the inputs of a registration, something has no value yet."""
    if isinstance(value, Output):
        if not value._data.done():
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
    elif not isinstance(value, Resource) and hasattr(type(value), "_pulumi_input_type"):
        yield from _unresolved(vars(value), path)
