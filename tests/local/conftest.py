"""A real control plane, one for each worker, and ways to use it."""

import uuid
from pathlib import Path

import pytest
from manifests import simulated_node
from running_pods import a_namespace, cpu_nodes

from trainium_eks.kube.api import Api
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.isolation import Chosen

FOLDER = Path(__file__).parent
_SHARED = pytest.StashKey[ControlPlane]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Stop the shared control plane after the last test of this directory: it would slow the other tests down."""
    yield
    if nextitem and FOLDER not in nextitem.path.parents and _SHARED in item.config.stash:
        item.config.stash[_SHARED].stop()


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    return Paths.of(tmp_path_factory.mktemp("cloud"), "shared")


@pytest.fixture(scope="session")
def control_plane(binaries, paths, pytestconfig):
    """A control plane that runs; no test may stop it or anything of it."""
    plane = ControlPlane(paths, binaries)
    pytestconfig.stash[_SHARED] = plane
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def api(control_plane, paths):
    return Api.connect(paths.kubeconfig)


@pytest.fixture
def namespace(api):
    """A namespace of the test's own, in which pods can be made."""
    with a_namespace(api) as pods:
        yield pods.namespace


@pytest.fixture
def node(api):
    """A simulated node, which only pods are put on that select it by the label ``for``, its name."""
    made = simulated_node(f"node-{uuid.uuid4().hex[:8]}")
    api.create(made)
    yield made["metadata"]["name"]
    api.delete(api.reference(made), propagation="Background")


@pytest.fixture(scope="module")
def cpu_group(api):
    with cpu_nodes(api) as key:
        yield key


@pytest.fixture
def pods(api, cpu_group):
    with a_namespace(api) as found:
        yield found


@pytest.fixture
def isolation(paths, cpu_group):
    return Chosen.load(paths.pods).isolation


@pytest.fixture(scope="session")
def volcano_programs():
    """Volcano's programs, by their names; where one is missing the tests are skipped."""
    there, missing = toolchain.find(toolchain.VOLCANO)
    if missing:
        pytest.skip(f"`python -m trainium_eks.local.toolchain` provides {', '.join(missing)} where it can")
    return {name: binary.path for name, binary in there.items()}
