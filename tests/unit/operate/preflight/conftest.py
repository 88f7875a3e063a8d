from functools import cache
from pathlib import Path

import pytest

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.process import record

ROOT = Path(__file__).resolve().parents[4]


@cache
def recorded(stack: str) -> Graph:
    return record(ROOT, stack)


@pytest.fixture(scope="session")
def dev() -> Graph:
    return recorded("dev")


@pytest.fixture(scope="session")
def prod() -> Graph:
    return recorded("prod")
