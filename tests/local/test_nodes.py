"""Node groups on a real API server: made, changed, rolled and taken away as EKS does."""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from waiting import until

from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import Change
from trainium_eks.local.control_plane import kubelet
from trainium_eks.local.nodes.simulated import NodePool, Nodes, pool_of
from trainium_eks.model.catalogue.instances import CATALOGUE, Taint

TIMEOUT_SECONDS = 300.0
MERGE = "application/merge-patch+json"


@pytest.fixture
def nodes(api: Api) -> Nodes:
    return Nodes(api, drivers=["fsx.csi.aws.com", "ebs.csi.aws.com"])


@pytest.fixture
def pool(nodes: Nodes) -> Iterator[NodePool]:
    """Two Trainium nodes that are not made yet."""
    inputs = {
        "instanceTypes": ["trn1.32xlarge"],
        "version": "1.35",
        "releaseVersion": "1.35.8-20260930",
        "launchTemplate": {"id": "lt-sim-1", "version": "1"},
        "subnetIds": ["subnet-d"],
        "labels": {"trainium-eks/pool": "ng1"},
        "taints": [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}],
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
    }
    made = pool_of(
        inputs,
        {"nodeGroupName": f"group-{uuid.uuid4().hex[:8]}"},
        zones={"subnet-d": "usw2-az4"},
        region="us-west-2",
        catalogue=CATALOGUE,
    )
    yield made
    nodes.delete(made.key)


def live(api: Api, pool: NodePool) -> dict[int, dict[str, Any]]:
    """The group's nodes by their numbers."""
    found = api.list("v1", "Node", labels=f"eks.amazonaws.com/nodegroup={pool.key}")
    return {int(node["metadata"]["name"].partition(".")[0][-6:]): node for node in found}


def uids(found: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    return {number: node["metadata"]["uid"] for number, node in found.items()}


def run_pod(api: Api, pool: NodePool) -> str:
    """A new pod on the group's first node; its path."""
    name, node = f"pod-{uuid.uuid4().hex[:8]}", live(api, pool)[1]["metadata"]["name"]
    path = f"/api/v1/namespaces/default/pods/{name}"
    spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    return path


def patch(api: Api, node: Mapping[str, Any], body: object) -> None:
    """As a person would, whose name stands by what they change."""
    path, query = f"/api/v1/nodes/{node['metadata']['name']}", {"fieldManager": "somebody"}
    api.request("PATCH", path, body, query=query, content_type=MERGE)


def test_a_group_gets_ready_nodes_with_its_devices(api: Api, nodes: Nodes, pool: NodePool) -> None:
    assert nodes.apply(pool, TIMEOUT_SECONDS).change is Change.CREATED
    found = live(api, pool)
    assert sorted(found) == [1, 2]
    for node in found.values():
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert node["status"]["allocatable"]["aws.amazon.com/neuron"] == "16"
        assert node["status"]["allocatable"]["vpc.amazonaws.com/efa"] == "8"
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["aws.amazon.com/neuron"]
        lease = api.request(
            "GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node['metadata']['name']}"
        )
        assert lease["spec"]["holderIdentity"]


def test_a_second_apply_changes_nothing(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = uids(live(api, pool))
    applied = nodes.apply(pool, TIMEOUT_SECONDS)
    assert (applied.change, applied.notes) == (Change.SAME, ())
    assert uids(live(api, pool)) == before


def test_a_larger_group_gets_more_nodes_and_a_smaller_one_loses_the_last(
    api: Api, nodes: Nodes, pool: NodePool
) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = uids(live(api, pool))
    applied = nodes.apply(replace(pool, size=4), TIMEOUT_SECONDS)
    assert (applied.change, applied.notes) == (Change.UPDATED, ("nodes: 2 added",))
    found = uids(live(api, pool))
    assert sorted(found) == [1, 2, 3, 4]
    assert found.items() >= before.items()
    assert nodes.apply(replace(pool, size=1), TIMEOUT_SECONDS).notes == ("nodes: 3 removed",)
    assert uids(live(api, pool)) == {1: before[1]}


def test_a_node_that_somebody_deleted_comes_back(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = uids(live(api, pool))
    api.request("DELETE", f"/api/v1/nodes/{live(api, pool)[1]['metadata']['name']}")
    assert nodes.apply(pool, TIMEOUT_SECONDS).notes == ("nodes: 1 added",)
    after = uids(live(api, pool))
    assert after[2] == before[2]
    assert after[1] != before[1]


def test_labels_and_taints_change_on_the_running_nodes(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = live(api, pool)
    patch(api, before[1], {"metadata": {"labels": {"by-hand": "kept"}}, "spec": {"unschedulable": True}})
    changed = replace(pool, labels={"team": "a"}, taints=(Taint("other", "x", "NoExecute"),))
    applied = nodes.apply(changed, TIMEOUT_SECONDS)
    assert (applied.change, applied.notes) == (Change.UPDATED, ("nodes: 2 changed",))
    after = live(api, pool)
    assert uids(after) == uids(before)
    for node in after.values():
        assert node["metadata"]["labels"]["team"] == "a"
        assert "trainium-eks/pool" not in node["metadata"]["labels"]
        own = [taint for taint in node["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")]
        assert own == [{"key": "other", "value": "x", "effect": "NoExecute"}]
    assert after[1]["metadata"]["labels"]["by-hand"] == "kept"
    assert after[1]["spec"]["unschedulable"] is True
    assert nodes.apply(changed, TIMEOUT_SECONDS).change is Change.SAME


def test_a_label_that_somebody_took_away_comes_back(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    patch(api, live(api, pool)[2], {"metadata": {"labels": {"trainium-eks/pool": None}}})
    assert nodes.apply(pool, TIMEOUT_SECONDS).notes == ("nodes: 1 changed",)
    assert live(api, pool)[2]["metadata"]["labels"]["trainium-eks/pool"] == "ng1"


def test_a_taint_that_somebody_took_away_comes_back_and_kubernetes_own_stay(
    api: Api, nodes: Nodes, pool: NodePool
) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    theirs = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    patch(api, live(api, pool)[1], {"spec": {"taints": [theirs]}})
    assert nodes.apply(pool, TIMEOUT_SECONDS).notes == ("nodes: 1 changed",)
    own = {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}
    assert live(api, pool)[1]["spec"]["taints"] == [own, theirs]


def test_a_resource_that_somebody_took_away_comes_back(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    node = live(api, pool)[1]
    path = f"/api/v1/nodes/{node['metadata']['name']}/status"
    lost = {"aws.amazon.com/neuron": None, "vpc.amazonaws.com/efa": "3"}
    api.request("PATCH", path, {"status": {"allocatable": lost}}, content_type=MERGE)
    assert nodes.apply(pool, TIMEOUT_SECONDS).notes == ("nodes: 1 changed",)
    assert live(api, pool)[1]["status"]["allocatable"] == node["status"]["allocatable"]


def test_what_a_type_has_changes_on_the_running_nodes(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = uids(live(api, pool))
    addresses = live(api, pool)[1]["status"]["addresses"]
    path = f"/api/v1/nodes/{live(api, pool)[1]['metadata']['name']}/status"
    api.request("PATCH", path, {"status": {"addresses": addresses[:1]}}, content_type=MERGE)
    without_efa = replace(pool, instance=replace(pool.instance, efa_interfaces=0, accelerators=8))
    assert nodes.apply(without_efa, TIMEOUT_SECONDS).change is Change.UPDATED
    found = live(api, pool)
    assert uids(found) == before
    assert found[1]["status"]["addresses"] == addresses
    for amounts in (found[1]["status"]["capacity"], found[1]["status"]["allocatable"]):
        assert amounts["aws.amazon.com/neuron"] == "8"
        assert "vpc.amazonaws.com/efa" not in amounts


def test_a_new_launch_template_replaces_all_nodes(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    before = live(api, pool)
    applied = nodes.apply(replace(pool, template_version="2"), TIMEOUT_SECONDS)
    assert (applied.change, applied.notes) == (Change.UPDATED, ("nodes: 2 added, 2 removed",))
    after = live(api, pool)
    assert sorted(after) == [1, 2]
    assert {each["metadata"]["name"] for each in before.values()}.isdisjoint(
        each["metadata"]["name"] for each in after.values()
    )


def test_a_size_that_is_managed_elsewhere_stays(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(replace(pool, size=3), TIMEOUT_SECONDS)
    assert nodes.apply(replace(pool, size=1, keep_size=True), TIMEOUT_SECONDS).change is Change.SAME
    assert nodes.apply(replace(pool, size=1, keep_size=True, template_version="2"), TIMEOUT_SECONDS).notes == (
        "nodes: 3 added, 3 removed",
    )
    assert nodes.apply(replace(pool, keep_size=True, template_version="2", max_size=2), TIMEOUT_SECONDS).notes == (
        "nodes: 1 removed",
    )
    nodes.apply(replace(pool, keep_size=True, template_version="2", min_size=4), TIMEOUT_SECONDS)
    assert len(live(api, pool)) == 4


def test_a_roll_that_was_interrupted_does_not_double_a_ignore_desired_size(
    api: Api, nodes: Nodes, pool: NodePool
) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    rolled = replace(pool, template_version="2", keep_size=True)
    nodes.apply(replace(rolled, max_size=4), TIMEOUT_SECONDS)
    (left_over,) = (live(api, replace(pool))[1],)
    again = {**left_over, "metadata": {"name": f"{pool.stem}000001.x", "labels": left_over["metadata"]["labels"]}}
    api.create({key: value for key, value in again.items() if key != "status"})
    assert nodes.apply(rolled, TIMEOUT_SECONDS).notes == ("nodes: 1 removed",)
    assert sorted(live(api, pool)) == [1, 2]


def test_an_empty_group_has_no_node(api: Api, nodes: Nodes, pool: NodePool) -> None:
    assert nodes.apply(replace(pool, size=0), TIMEOUT_SECONDS).change is Change.SAME
    assert live(api, pool) == {}


def test_only_the_deleted_groups_nodes_go(api: Api, nodes: Nodes, pool: NodePool) -> None:
    other = replace(pool, key=f"{pool.key}-other", size=1)
    try:
        nodes.apply(pool, TIMEOUT_SECONDS)
        nodes.apply(other, TIMEOUT_SECONDS)
        nodes.delete(pool.key)
        nodes.delete(pool.key)
        assert live(api, pool) == {}
        assert len(live(api, other)) == 1
    finally:
        nodes.delete(other.key)


def test_nodes_that_nobody_takes_care_of_are_an_error(
    nodes: Nodes, pool: NodePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainium_eks.local.nodes.node_pools.KWOK_ANNOTATION", "example.com/nobody")
    with pytest.raises(ClusterError, match=rf"node group {pool.key}: 2 of 2 nodes were not Ready after \d+ s \(i-sim"):
        nodes.apply(pool, 1)


def test_a_refused_node_is_an_error_in_the_api_servers_words(nodes: Nodes, pool: NodePool) -> None:
    with pytest.raises(ClusterError, match=r"metadata\.labels: Invalid value"):
        nodes.apply(replace(pool, labels={"a": "not valid!"}), TIMEOUT_SECONDS)


def csi_nodes(api: Api, pool: NodePool) -> dict[str, dict[str, Any]]:
    """By name; among them those of nodes that are no more."""
    return {
        each["metadata"]["name"]: each
        for each in api.list("storage.k8s.io/v1", "CSINode")
        if each["metadata"]["name"].startswith(pool.stem)
    }


def test_a_node_names_its_storage_drivers_until_it_goes(api: Api, nodes: Nodes, pool: NodePool) -> None:
    """As many volumes of EBS as the type takes, and of FSx any number."""
    nodes.apply(pool, TIMEOUT_SECONDS)
    found = csi_nodes(api, pool)
    assert found.keys() == {node["metadata"]["name"] for node in live(api, pool).values()}
    for name, each in found.items():
        ebs, fsx = each["spec"]["drivers"]
        assert (ebs["name"], ebs["nodeID"]) == ("ebs.csi.aws.com", name.partition(".")[0])
        # 28 attachments less 8 interfaces, 4 local disks and the root volume.
        assert ebs["allocatable"] == {"count": 15}
        assert fsx == {"name": "fsx.csi.aws.com", "nodeID": name, "topologyKeys": None}
    nodes.apply(replace(pool, size=1), TIMEOUT_SECONDS)
    until(lambda: len(csi_nodes(api, pool)) == 1, "the other one goes with its node")
    assert csi_nodes(api, pool).keys() == {live(api, pool)[1]["metadata"]["name"]}


def test_what_a_node_says_of_its_drivers_is_mended(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    first, second = (live(api, pool)[number]["metadata"]["name"] for number in (1, 2))
    api.request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{first}")
    assert nodes.apply(pool, TIMEOUT_SECONDS).notes == ("nodes: 1 told of storage drivers",)
    assert nodes.apply(pool, TIMEOUT_SECONDS).change is Change.SAME
    assert Nodes(api, drivers=["ebs.csi.aws.com"]).apply(pool, TIMEOUT_SECONDS).change is Change.UPDATED
    assert [each["name"] for each in csi_nodes(api, pool)[second]["spec"]["drivers"]] == ["ebs.csi.aws.com"]


def test_a_node_that_comes_back_has_its_drivers(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    node = live(api, pool)[1]
    api.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
    kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": node["spec"]})
    time.sleep(2)  # the time in which the collector of garbage took it away
    assert len(csi_nodes(api, pool)[node["metadata"]["name"]]["spec"]["drivers"]) == 2
    nodes.delete(pool.key)
    assert csi_nodes(api, pool) == {}


def test_the_logs_of_a_pod_say_that_no_container_runs(api: Api, nodes: Nodes, pool: NodePool) -> None:
    nodes.apply(pool, TIMEOUT_SECONDS)
    path = run_pod(api, pool)
    until(lambda: api.request("GET", path)["status"]["phase"] == "Running", lambda: api.request("GET", path)["status"])
    assert api.text("GET", f"{path}/log") == f"{kubelet.MESSAGE}\n"
    api.request("DELETE", path)


def test_a_pod_whose_readiness_kubernetes_took_is_ready_again(api: Api, nodes: Nodes, pool: NodePool) -> None:
    """As after a pause in which its node showed no sign of life."""
    nodes.apply(pool, TIMEOUT_SECONDS)
    path = run_pod(api, pool)

    def is_ready() -> bool:
        conditions = api.request("GET", path)["status"].get("conditions") or []
        return {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items()

    for _ in range(2):
        until(is_ready, lambda: api.request("GET", path)["status"])
        # What the controller of nodes' lives does.
        taken = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        content = "application/strategic-merge-patch+json"
        api.request("PATCH", f"{path}/status", taken, content_type=content)
    api.request("DELETE", path)
