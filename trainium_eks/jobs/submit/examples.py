"""Trainings that come with the library, as ``examples.toml`` has them: ``trn train --example NAME``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Example:
    """An example training."""

    name: str
    module: str
    about: str
    needs_torch: bool = True
    state_gigabytes: float = 0.0
    local_arguments: tuple[str, ...] = ()


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        name: Example(name, **{**row, "local_arguments": tuple(row.get("local_arguments", ()))})
        for name, row in _ROWS.items()
    }
)


def example_of(module: str) -> Example | None:
    """Return the example with a module; None for other modules."""
    return next((each for each in EXAMPLES.values() if each.module == module), None)
