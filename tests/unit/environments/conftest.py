import pytest
from golden import ENVIRONMENTS, recorded


@pytest.fixture(scope="session", params=ENVIRONMENTS)
def graph(request):
    """The recorded program of each environment in turn."""
    return recorded(request.param)
