"""The repository's environments."""

import pytest
from golden import recorded


@pytest.fixture(scope="session")
def dev():
    return recorded("dev")


@pytest.fixture(scope="session")
def prod():
    return recorded("prod")
