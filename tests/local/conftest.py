"""A real control plane, one for each worker, and ways to use it."""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trainium_eks.local.api import Api
from trainium_eks.local.control_plane import ControlPlane
from trainium_eks.local.paths import Paths
from trainium_eks.local.toolchain import Unavailable, provide
from trainium_eks.model.versions import KUBERNETES


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Mapping[str, Path]:
    """The programs of the control plane, kubectl and helm, by their names; without them the tests are skipped.

    The first time on a machine they are built, which takes minutes: progress is shown.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)  # noqa: T201 (that is what it is for)

    try:
        return {name: binary.path for name, binary in provide(KUBERNETES, progress=progress).items()}
    except Unavailable as error:
        pytest.skip(error.summary)


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Where the shared control plane keeps its state."""
    return Paths.of(tmp_path_factory.mktemp("cloud"), "shared")


@pytest.fixture(scope="session")
def control_plane(binaries: Mapping[str, Path], paths: Paths) -> Iterator[ControlPlane]:
    """A control plane that runs; no test may stop it or anything of it."""
    plane = ControlPlane(paths, binaries)
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
    """A namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.request("POST", "/api/v1/namespaces", body)
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")
