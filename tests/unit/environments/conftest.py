import pytest
from golden import ENVIRONMENTS
from recordings import recorded

from trainium_eks.plan.graph import Graph


@pytest.fixture(scope="session", params=ENVIRONMENTS)
def graph(request: pytest.FixtureRequest) -> Graph:
    """The recorded program of each environment in turn."""
    return recorded(request.param)
