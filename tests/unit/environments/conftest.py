from collections.abc import Callable, Mapping

import pytest
from recordings import recorded

from trainium_eks.plan.graph import Graph


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
