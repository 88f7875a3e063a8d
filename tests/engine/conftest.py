"""A real Pulumi engine for the tests of this directory."""

from pathlib import Path

import pytest
from engine.rig import Rig, why_not

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config, items):
    """Mark the tests of this directory as slow, and run the longest with ``-m engine_full`` alone."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.slow)
    if "engine_full" in str(config.option.markexpr):
        return
    long = [item for item in items if item.get_closest_marker("engine_full")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def new_rig(tmp_path_factory):
    if missing := why_not():
        pytest.skip(missing)
    return lambda: Rig(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def rig(new_rig):
    return new_rig()
