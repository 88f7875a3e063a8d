"""Grafana's dashboards, as JSON."""

from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent


def dashboards() -> Mapping[str, str]:
    """Return each file's name (``fleet.json``) with its JSON text."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.json"))}
