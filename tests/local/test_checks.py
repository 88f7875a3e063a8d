"""The checks of ``trn doctor`` on a real API server, with nodes that kwok keeps Ready and volumes that it binds."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_snapshots import EFA, FILE_SYSTEM, NEURON, group, outputs, volume
from typer.testing import CliRunner
from waiting import until

from trainium_eks.cli.app import app
from trainium_eks.kube import drift
from trainium_eks.kube.api import Api
from trainium_eks.kube.types import ObjectReference
from trainium_eks.local.nodes.simulated import NodePool, Nodes, pool_of
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.versions import KUBERNETES

Findings = dict[str, dict[str, Any]]
Checked = Callable[..., tuple[int, Findings]]


@pytest.fixture
def pool(api: Api) -> Iterator[NodePool]:
    """Two nodes of trn1.32xlarge in a group of the test's own."""
    inputs = {
        "instanceTypes": ["trn1.32xlarge"],
        "scalingConfig": {"minSize": 0, "desiredSize": 2, "maxSize": 4},
        "labels": CATALOGUE.node_labels("trn1.32xlarge"),
        "subnetIds": ["subnet-1"],
        "version": KUBERNETES,
    }
    computed = {"nodeGroupName": f"verified-{uuid.uuid4().hex[:8]}"}
    made = pool_of(inputs, computed, zones={"subnet-1": "usw2-az4"}, region="us-west-2", catalogue=CATALOGUE)
    nodes = Nodes(api)
    nodes.apply(made)
    yield made
    nodes.delete(made.key)


@pytest.fixture
def claim(api: Api, namespace: str) -> Iterator[str]:
    """The volume of a team in the test's namespace, as LustreVolumes and TrainingNamespace make it, and its claim."""
    name = f"verified-{namespace}"
    spec = {
        **volume()["spec"],
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": "fsx-claim",
        },
    }
    spec["csi"]["volumeHandle"] = f"{FILE_SYSTEM}::{namespace}"
    shared = outputs().shared_volume
    assert shared is not None
    spec["csi"]["volumeAttributes"]["mountname"] = f"{shared.mount_name}/{namespace}"
    api.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    wants = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1200Gi"}},
    }
    metadata = {"name": "fsx-claim", "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wants})
    yield namespace
    api.request("DELETE", f"/api/v1/persistentvolumes/{name}")


@pytest.fixture
def checked(paths: Paths, tmp_path: Path) -> Checked:
    """The findings by id, of the cluster against outputs with these changes."""

    def call(**changes: Any) -> tuple[int, Findings]:
        file = tmp_path / "outputs-of-the-stack.json"
        file.write_text(json.dumps({**outputs().model_dump(by_alias=True), **changes}))
        asked = ["doctor", "--outputs", str(file), "--kubeconfig", str(paths.kubeconfig), "--json"]
        done = CliRunner().invoke(app, asked)
        return done.exit_code, {each["id"]: each for each in json.loads(done.stdout)["findings"]}

    return call


def _status(found: Findings, *ids: str) -> list[str]:
    return [found[id_]["status"] for id_ in ids]


def test_real_nodes_are_counted_and_their_devices_too(checked: Checked, pool: NodePool) -> None:
    _, found = checked(nodeGroups=[group("ng1", NEURON, 8, 2, eksName=pool.key)])
    ids = ("server/version", "server/kubelets", "nodes/ng1")
    assert _status(found, *ids, f"devices/ng1/{NEURON}", f"devices/ng1/{EFA}") == ["pass"] * 5, found


def test_a_real_node_that_lost_its_efa_interfaces_is_named(checked: Checked, pool: NodePool, api: Api) -> None:
    [first, _] = api.list("v1", "Node", labels=f"eks.amazonaws.com/nodegroup={pool.key}")
    name = first["metadata"]["name"]
    api.request(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": {"allocatable": {EFA: "3"}, "capacity": {EFA: "3"}}},
        content_type="application/merge-patch+json",
    )
    code, found = checked(nodeGroups=[group("ng1", NEURON, 8, 2, eksName=pool.key)])
    assert (code, found[f"devices/ng1/{EFA}"]["details"]) == (1, [f"{name}: {EFA} has 3, wants 8"])
    assert _status(found, f"devices/ng1/{NEURON}") == ["pass"]


def test_nodes_that_the_stack_does_not_have_fail(checked: Checked, pool: NodePool) -> None:
    code, found = checked(nodeGroups=[group("ng1", NEURON, 8, 1, eksName=pool.key)])
    assert (code, found["nodes/ng1"]["text"]) == (1, "2 of 2 Ready, wants 1 (0 to 4)")


@pytest.mark.slow
def test_a_claim_that_kubernetes_bound_passes_and_its_volume_is_compared(
    checked: Checked, claim: str, api: Api
) -> None:
    team = {"name": claim, "queues": ["test"], "serviceAccount": "default", "claim": "fsx-claim"}

    def is_bound() -> bool:
        return _status(checked(namespaces=[team])[1], f"storage/claim/{claim}") == ["pass"]

    until(is_bound, "Kubernetes binds it, within moments as a rule")
    _, found = checked(namespaces=[team])
    assert _status(found, f"storage/claim/{claim}", f"namespaces/{claim}") == ["pass", "pass"], found
    live = api.get(ObjectReference("v1", "PersistentVolume", "", f"verified-{claim}"))
    assert live is not None
    made = {each: live[each] for each in ("apiVersion", "kind")} | {"metadata": {"name": f"verified-{claim}"}}
    # The whole file system: every other team's data, too.
    source = {
        **live["spec"]["csi"],
        "volumeAttributes": {**live["spec"]["csi"]["volumeAttributes"], "mountname": "abcde"},
    }
    [said] = drift.differences(api, {**made, "spec": {**live["spec"], "csi": source}})[1]
    assert "persistentvolumesource" in said


def test_what_the_cluster_does_not_have_fails(checked: Checked) -> None:
    team = {"name": "no-such-team", "queues": ["test"], "serviceAccount": "default", "claim": "fsx-claim"}
    code, found = checked(namespaces=[team], queues={"no-such-queue": {}}, nodeGroups=[group("ng1", NEURON, 8, 1)])
    ids = ("queues/no-such-queue", "namespaces/no-such-team", "storage/claim/no-such-team", "nodes/ng1")
    assert (code, _status(found, *ids)) == (1, ["fail"] * 4)
