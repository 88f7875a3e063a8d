"""The repository's environments."""

import pytest
from recordings import recorded

from trainium_eks.plan.graph import Graph


@pytest.fixture(scope="session")
def dev() -> Graph:
    return recorded("dev")


@pytest.fixture(scope="session")
def prod() -> Graph:
    return recorded("prod")
