"""Served clouds for the tests of this directory."""

import importlib
from contextlib import contextmanager

import pytest
from engine.client import Clouds
from engine.simulated_aws.server import serving


@pytest.fixture(scope="session", autouse=True)
def _sdks():
    for package in ("aws", "eks", "kubernetes"):
        importlib.import_module(f"pulumi_{package}")


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state" / "clouds.json"


@pytest.fixture
def serve(state):
    """Serves the clouds of ``state``: ``with serve(failing=...) as clouds:``."""

    @contextmanager
    def served(*, failing="", forgetful=False):
        with serving(state, failing=failing, forgetful=forgetful) as environment:
            ports = dict(each.split(":") for each in environment["PULUMI_DEBUG_PROVIDERS"].split(","))
            clouds = Clouds(ports)
            yield clouds
            for channel in clouds.channels:
                channel.close()

    return served


@pytest.fixture
def clouds(serve):
    with serve() as served:
        yield served
