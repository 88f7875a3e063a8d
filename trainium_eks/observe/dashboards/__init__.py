"""Grafana's dashboards, as the generator in the repository's ``dashboards`` writes them."""

from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the files are."""


def dashboards() -> Mapping[str, str]:
    """File name (``fleet.json``) to JSON text."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.json"))}
