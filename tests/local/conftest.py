"""A real control plane, one for each worker, and ways to use it."""

import uuid
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest
from running_pods import await_account

from trainium_eks.kube.api import Api
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.paths import Paths

FOLDER = Path(__file__).parent
_SHARED = pytest.StashKey[ControlPlane]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Stop the shared control plane after the last test of this directory: it would slow the other tests down."""
    yield
    if nextitem and FOLDER not in nextitem.path.parents and _SHARED in item.config.stash:
        item.config.stash[_SHARED].stop()


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Where the shared control plane keeps its state."""
    return Paths.of(tmp_path_factory.mktemp("cloud"), "shared")


@pytest.fixture(scope="session")
def control_plane(binaries: Mapping[str, Path], paths: Paths, pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """A control plane that runs; no test may stop it or anything of it."""
    plane = ControlPlane(paths, binaries)
    pytestconfig.stash[_SHARED] = plane
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane, paths: Paths) -> Api:
    """The shared control plane's API, as its administrator."""
    return Api.connect(paths.kubeconfig)


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.request("POST", "/api/v1/namespaces", body)
    await_account(api, name)
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def volcano_programs() -> Mapping[str, Path]:
    """Volcano's programs, by their names; where one is missing the tests are skipped."""
    there, missing = toolchain.find(toolchain.VOLCANO)
    if missing:
        pytest.skip(f"`python -m trainium_eks.local.toolchain` provides {', '.join(missing)} where it can")
    return {name: binary.path for name, binary in there.items()}
