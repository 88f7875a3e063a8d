"""Data sets that ``trn stage`` knows by name, as ``presets.toml`` has them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Preset:
    """A data set with its source and its treatment."""

    source: str
    to: str
    about: str
    extract: bool = False
    include: tuple[str, ...] = ()
    size: str = ""


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {name: Preset(**{**row, "include": tuple(row.get("include", ()))}) for name, row in _ROWS.items()}
)
"""Data sets by name, as ``trn stage --list`` shows them."""
