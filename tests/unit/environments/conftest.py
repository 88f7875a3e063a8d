from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.process import record

ROOT = Path(__file__).resolve().parents[3]


@cache
def recorded(stack: str, dry_run: bool = False) -> Graph:
    return record(ROOT, stack, dry_run=dry_run)


@pytest.fixture(scope="session")
def environment() -> Callable[..., Graph]:
    """The recorded program of one environment; recorded once."""
    return recorded


@pytest.fixture(scope="session", params=["dev", "prod", "gpu"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """Each environment in turn."""
    return recorded(request.param)


def by_name(graph: Graph, type_: str) -> Mapping[str, Mapping[str, object]]:
    return {resource.name: resource.inputs for resource in graph.of_type(type_)}
