import pytest


@pytest.fixture(scope="module")
def plain(request, record):
    """The component of a test file with the least that it takes, as its ``built`` records it."""
    return request.module.built(record)
