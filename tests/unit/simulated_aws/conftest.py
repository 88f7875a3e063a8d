"""Served clouds for the tests of this directory."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine.client import Clouds, Serve
from engine.simulated_aws.server import serving


@pytest.fixture(scope="session", autouse=True)
def _sdks() -> None:
    for package in ("aws", "eks", "kubernetes"):
        importlib.import_module(f"pulumi_{package}")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "clouds.json"


@pytest.fixture
def serve(state: Path) -> Serve:
    """Serves the clouds of ``state``: ``with serve(failing=...) as clouds:``."""

    @contextmanager
    def served(*, failing: str = "", forgetful: bool = False) -> Iterator[Clouds]:
        with serving(state, failing=failing, forgetful=forgetful) as environment:
            ports = dict(each.split(":") for each in environment["PULUMI_DEBUG_PROVIDERS"].split(","))
            clouds = Clouds(ports)
            yield clouds
            for channel in clouds.channels:
                channel.close()

    return served


@pytest.fixture
def clouds(serve: Serve) -> Iterator[Clouds]:
    with serve() as served:
        yield served
