"""Paths of inputs, as the rows spell them: ``launchTemplate.id``, ``subnetIds[0]``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def value_at(inputs: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path without list indices, None without one. A key may contain dots itself, as keys of
    labels do."""
    for key, value in inputs.items():
        if path == key:
            return value
        if path.startswith(f"{key}.") and isinstance(value, Mapping):
            return value_at(value, path[len(key) + 1 :])
    return None


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value below ``path`` that is no mapping, with its path; a list counts as a whole."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(f"{path}.{key}", below)
    else:
        yield path, value


def dotted(steps: Iterable[str | int]) -> str:
    """Return the path of keys and list indices."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def within(under: str, path: str) -> bool:
    """Return whether ``path`` is ``under`` or inside it."""
    return path == under or path.startswith((f"{under}.", f"{under}["))


def covers(under: str, path: str) -> bool:
    """Return whether ``path`` is ``under`` or inside it, or is an object that holds it and changes as a whole."""
    return within(under, path) or under.startswith(f"{path}.")
