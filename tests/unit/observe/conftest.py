"""What tests of rules need."""

from collections.abc import Mapping
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tool(prometheus: Mapping[str, Path]) -> Path:
    """promtool; without it the tests are skipped."""
    return prometheus["promtool"]
