"""What tests of rules need."""

import prometheus_server
import pytest


@pytest.fixture(scope="session")
def tool(prometheus):
    """promtool; without it the tests are skipped."""
    return prometheus["promtool"]


@pytest.fixture(scope="session")
def server(prometheus, tmp_path_factory):
    """A Prometheus without targets, which reads queries."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus_server.prometheus(prometheus["prometheus"], folder, [], []) as found:
        yield found
