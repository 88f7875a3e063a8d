"""What tests of rules need."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import prometheus_server
import pytest
from prometheus_server import Server


@pytest.fixture(scope="session")
def tool(prometheus: Mapping[str, Path]) -> Path:
    """promtool; without it the tests are skipped."""
    return prometheus["promtool"]


@pytest.fixture(scope="session")
def server(prometheus: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus without targets, which reads queries."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus_server.prometheus(prometheus["prometheus"], folder, [], []) as found:
        yield found
