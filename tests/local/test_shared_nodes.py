"""Nodes that several teams share: no team keeps another's gang of whole nodes out with a part of each node."""

from pathlib import Path

import pytest
from local_project import repository_cloud
from manifests import gang, is_refused, pod_spec
from waiting import until

from trainium_eks.kube.api import Api
from trainium_eks.model.catalogue.instances import CATALOGUE, NEURON_RESOURCE

pytestmark = pytest.mark.slow

TEAMS = {"vision": True, "speech": None}
"""Team to its setting ``partialNodes``."""
NODES = 4
HOSTS = [{"topologyKey": "kubernetes.io/hostname"}]
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": HOSTS}}
WHOLE = CATALOGUE.device_resources("trn1.32xlarge")


@pytest.fixture(scope="module")
def cloud(binaries, volcano_programs, tmp_path_factory):
    half = {NEURON_RESOURCE: 16 * NODES // 2}
    config = {
        "queues": [{"name": team, "guarantee": half, "capability": half} for team in TEAMS],
        "namespaces": [
            {"name": team, "queues": [team], "trainingUserId": user, **({"partialNodes": True} if parts else {})}
            for user, (team, parts) in enumerate(TEAMS.items(), 1001)
        ],
    }
    with repository_cloud(tmp_path_factory.mktemp("shared"), "--nodes", str(NODES), **config) as project:
        yield project


@pytest.fixture(scope="module")
def apis(cloud):
    found = {}
    for team in TEAMS:
        shown = cloud.trn("kubeconfig", "--namespace", team, "--path", "--stack", "local")
        found[team] = Api.connect(Path(shown.stdout.strip()))
    return found


def holding(api, team):
    """The nodes of a team's pods."""
    return [pod["spec"]["nodeName"] for pod in api.list("v1", "Pod", namespace=team) if pod["spec"].get("nodeName")]


def singles(team, **spec):
    """A job of a pod for each node, with one device each."""
    return gang("singles", team, team, NODES, pod_spec(resources={NEURON_RESOURCE: "1"}, **spec))


def test_partial_node_jobs_leave_whole_nodes_free(apis):
    assert is_refused(apis["speech"], singles("speech"))
    assert is_refused(apis["vision"], singles("vision", affinity=APART))
    # Its own policy lets them in, and the scheduler packs them.
    apis["vision"].create(singles("vision"))
    until(lambda: len(holding(apis["vision"], "vision")) == NODES, "the single devices are placed")
    assert len(set(holding(apis["vision"], "vision"))) == 1
    whole = pod_spec(resources={resource: str(count) for resource, count in WHOLE.items()})
    apis["speech"].create(gang("whole", "speech", "speech", 2, whole))
    until(lambda: len(set(holding(apis["speech"], "speech"))) == 2, "the gang of whole nodes is placed")
