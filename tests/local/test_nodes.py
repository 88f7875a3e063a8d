"""Node groups on a real API server: made, changed, rolled and taken away as EKS does."""

import time
import uuid
from dataclasses import replace

import pytest
from manifests import live, manifest, patch, path, pod_spec
from waiting import until

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import Change
from trainium_eks.local.control_plane import kubelet
from trainium_eks.local.nodes.node_pools import pool_of
from trainium_eks.local.nodes.simulated import Nodes
from trainium_eks.model.catalogue.instances import CATALOGUE, Taint

NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
LABEL = "trainium-eks/pool"
OWN = {"key": NEURON, "value": "true", "effect": "NoSchedule"}
THEIRS = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


class Group:
    def __init__(self, api):
        self.api, self.nodes = api, Nodes(api, drivers=["fsx.csi.aws.com", "ebs.csi.aws.com"])
        inputs = {
            "instanceTypes": ["trn1.32xlarge"],
            "version": "1.35",
            "releaseVersion": "1.35.8-20260930",
            "launchTemplate": {"id": "lt-sim-1", "version": "1"},
            "subnetIds": ["subnet-d"],
            "labels": {LABEL: "ng1"},
            "taints": [{"key": NEURON, "value": "true", "effect": "NO_SCHEDULE"}],
            "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
        }
        computed = {"nodeGroupName": f"group-{uuid.uuid4().hex[:8]}"}
        zones = {"subnet-d": "usw2-az4"}
        self.pool = pool_of(inputs, computed, zones=zones, region="us-west-2", catalogue=CATALOGUE)

    def apply(self, seconds=300.0, **changes):
        return self.nodes.apply(replace(self.pool, **changes), seconds)

    def live(self, key=""):
        found = self.api.list("v1", "Node", labels=f"eks.amazonaws.com/nodegroup={key or self.pool.key}")
        return {int(node["metadata"]["name"].partition(".")[0][-6:]): node for node in found}

    def uids(self):
        return {number: node["metadata"]["uid"] for number, node in self.live().items()}

    def patch(self, number, body, below=""):
        """As a person would, whose name stands by what they change."""
        patch(self.api, self.live()[number], body, below, fieldManager="somebody")

    def csi_nodes(self):
        """The drivers that each node names; among them those of nodes that are no more."""
        found = {each["metadata"]["name"]: each for each in self.api.list("storage.k8s.io/v1", "CSINode")}
        return {name: each["spec"]["drivers"] for name, each in found.items() if name.startswith(self.pool.stem)}

    def run_pod(self):
        where = {"nodeName": self.live()[1]["metadata"]["name"], "tolerations": [{"operator": "Exists"}]}
        return self.api.create(manifest("Pod", f"pod-{uuid.uuid4().hex[:8]}", "default", spec=pod_spec(**where)))


@pytest.fixture
def empty(api):
    made = Group(api)
    yield made
    made.nodes.delete(made.pool.key)


@pytest.fixture
def group(empty):
    assert empty.apply().change is Change.CREATED
    return empty


def test_group_gets_ready_nodes_and_a_second_apply_changes_nothing(group):
    found = group.live()
    assert sorted(found) == [1, 2]
    for node in found.values():
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert {NEURON: "16", EFA: "8"}.items() <= node["status"]["allocatable"].items()
        assert [taint["key"] for taint in node["spec"]["taints"]] == [NEURON]
        lease = manifest("Lease", node["metadata"]["name"], "kube-node-lease", api_version="coordination.k8s.io/v1")
        assert live(group.api, lease)["spec"]["holderIdentity"]
    before, again = group.uids(), group.apply()
    assert (again.change, again.notes) == (Change.SAME, ())
    assert group.uids() == before


def test_resized_group_adds_nodes_or_removes_the_last(group):
    before = group.uids()
    larger = group.apply(size=4)
    assert (larger.change, larger.notes) == (Change.UPDATED, ("nodes: 2 added",))
    assert sorted(group.uids()) == [1, 2, 3, 4]
    assert group.uids().items() >= before.items()
    group.api.request("DELETE", path(group.api, group.live()[2]))
    assert group.apply(size=4).notes == ("nodes: 1 added",), "a node that somebody deleted comes back"
    assert group.uids()[2] != before[2]
    assert group.apply(size=1).notes == ("nodes: 3 removed",)
    assert group.uids() == {1: before[1]}


def test_labels_and_taints_change_on_the_running_nodes(group):
    before = group.uids()
    group.patch(1, {"metadata": {"labels": {"by-hand": "kept"}}, "spec": {"unschedulable": True}})
    changed = {"labels": {"team": "a"}, "taints": (Taint("other", "x", "NoExecute"),)}
    applied = group.apply(**changed)
    assert (applied.change, applied.notes) == (Change.UPDATED, ("nodes: 2 changed",))
    after = group.live()
    assert group.uids() == before
    for node in after.values():
        assert node["metadata"]["labels"]["team"] == "a"
        assert LABEL not in node["metadata"]["labels"]
        own = [taint for taint in node["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")]
        assert own == [{"key": "other", "value": "x", "effect": "NoExecute"}]
    assert after[1]["metadata"]["labels"]["by-hand"] == "kept"
    assert after[1]["spec"]["unschedulable"] is True
    assert group.apply(**changed).change is Change.SAME


def test_apply_restores_removed_labels_and_keeps_kubernetes_own_taint(group):
    for lost, below, part, field, left in (
        ({"metadata": {"labels": {LABEL: None}}}, "", "metadata", "labels", None),
        ({"status": {"allocatable": {NEURON: None, EFA: "3"}}}, "/status", "status", "allocatable", None),
        ({"spec": {"taints": [THEIRS]}}, "", "spec", "taints", [OWN, THEIRS]),
    ):
        before = group.live()[1][part][field]
        group.patch(1, lost, below)
        assert group.apply().notes == ("nodes: 1 changed",)
        assert group.live()[1][part][field] == (left or before)


def test_changed_instance_facts_update_the_running_nodes(group):
    before, addresses = group.uids(), group.live()[1]["status"]["addresses"]
    group.patch(1, {"status": {"addresses": addresses[:1]}}, "/status")
    without_efa = replace(group.pool.instance, efa_interfaces=0, accelerators=8)
    assert group.apply(instance=without_efa).change is Change.UPDATED
    assert group.uids() == before
    status = group.live()[1]["status"]
    assert status["addresses"] == addresses
    for amounts in (status["capacity"], status["allocatable"]):
        assert amounts[NEURON] == "8"
        assert EFA not in amounts


def test_externally_managed_size_is_kept(empty):
    empty.apply(size=3)
    kept = {"size": 1, "keep_size": True}
    assert empty.apply(**kept).change is Change.SAME
    assert empty.apply(**kept, template_version="2").notes == ("nodes: 3 added, 3 removed",)
    assert empty.apply(keep_size=True, template_version="2", max_size=2).notes == ("nodes: 1 removed",)
    empty.apply(keep_size=True, template_version="2", min_size=4)
    assert len(empty.live()) == 4


def test_new_launch_template_replaces_all_nodes_even_when_interrupted(group):
    def names():
        return {each["metadata"]["name"] for each in group.live().values()}

    before = names()
    rolled = {"template_version": "2", "keep_size": True}
    applied = group.apply(**rolled, max_size=4)
    assert (applied.change, applied.notes) == (Change.UPDATED, ("nodes: 2 added, 2 removed",))
    assert sorted(group.live()) == [1, 2]
    assert before.isdisjoint(names())
    left_over = group.live()[1]
    metadata = {"name": f"{group.pool.stem}000001.x", "labels": left_over["metadata"]["labels"]}
    group.api.create({**{key: left_over[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})
    assert group.apply(**rolled).notes == ("nodes: 1 removed",)
    assert sorted(group.live()) == [1, 2]


def test_empty_group_has_no_node_and_delete_removes_only_its_own(empty):
    assert empty.apply(size=0).change is Change.SAME
    assert empty.live() == {}
    other = f"{empty.pool.key}-other"
    try:
        empty.apply()
        empty.apply(key=other, size=1)
        for _ in range(2):
            empty.nodes.delete(empty.pool.key)
        assert (empty.live(), len(empty.live(other))) == ({}, 1)
    finally:
        empty.nodes.delete(other)


def test_unready_and_refused_nodes_are_an_error(empty, monkeypatch):
    with pytest.raises(ClusterError, match=r"metadata\.labels: Invalid value"):
        empty.apply(labels={"a": "not valid!"})
    monkeypatch.setattr("trainium_eks.local.nodes.node_pools.KWOK_ANNOTATION", "example.com/nobody")
    said = rf"node group {empty.pool.key}: 2 of 2 nodes were not Ready after \d+ s \(i-sim"
    with pytest.raises(ClusterError, match=said):
        empty.apply(1)


def test_node_lists_its_storage_drivers_until_it_is_deleted(group):
    """As many volumes of EBS as the type takes, and of FSx any number."""
    found = group.csi_nodes()
    assert found.keys() == {node["metadata"]["name"] for node in group.live().values()}
    for name, (ebs, fsx) in found.items():
        assert (ebs["name"], ebs["nodeID"]) == ("ebs.csi.aws.com", name.partition(".")[0])
        # 28 attachments less 8 interfaces, 4 local disks and the root volume.
        assert ebs["allocatable"] == {"count": 15}
        assert fsx == {"name": "fsx.csi.aws.com", "nodeID": name, "topologyKeys": None}
    group.apply(size=1)
    until(lambda: len(group.csi_nodes()) == 1, "the other one goes with its node")
    assert group.csi_nodes().keys() == {group.live()[1]["metadata"]["name"]}


def test_lost_storage_drivers_of_a_node_are_restored(group):
    first, second = (group.live()[number]["metadata"]["name"] for number in (1, 2))
    group.api.request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{first}")
    assert group.apply().notes == ("nodes: 1 told of storage drivers",)
    assert group.apply().change is Change.SAME
    assert Nodes(group.api, drivers=["ebs.csi.aws.com"]).apply(group.pool, 300).change is Change.UPDATED
    assert [each["name"] for each in group.csi_nodes()[second]] == ["ebs.csi.aws.com"]
    assert group.apply().change is Change.UPDATED
    node = group.live()[1]
    group.api.request("DELETE", path(group.api, node))
    kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    group.api.create({"apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": node["spec"]})
    time.sleep(2)  # the time in which the collector of garbage took it away
    assert len(group.csi_nodes()[node["metadata"]["name"]]) == 2
    group.nodes.delete(group.pool.key)
    assert group.csi_nodes() == {}


def test_simulated_pod_has_no_log_and_becomes_ready_again(api, group):
    """As after a pause in which its node showed no sign of life."""
    pod = group.run_pod()

    def is_ready():
        conditions = live(api, pod)["status"].get("conditions") or []
        return {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items()

    for _ in range(2):
        until(is_ready, lambda: live(api, pod)["status"])
        # What the controller of nodes' lives does.
        taken = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        content = "application/strategic-merge-patch+json"
        api.request("PATCH", path(api, pod, "/status"), taken, content_type=content)
    assert api.text("GET", path(api, pod, "/log")) == f"{kubelet.MESSAGE}\n"
    api.request("DELETE", path(api, pod))
