"""Unfinished registrations and exports of a program that does not finish."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pulumi import Output

from trainium_eks.plan import sdk


def pending(loop: asyncio.AbstractEventLoop, in_flight: Collection[str]) -> tuple[str, ...]:
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
