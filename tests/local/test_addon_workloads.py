"""EKS add-ons' stand-ins on a real cluster: they run where the real ones would, and go without a trace."""

import uuid

import pytest

from trainium_eks.local.changes import Change
from trainium_eks.local.nodes.addon_workloads import AddonWorkloads, manifests
from trainium_eks.local.nodes.simulated import Nodes, pool_of
from trainium_eks.local.objects.apply import Objects
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.versions import KUBERNETES

REGION = "us-west-2"
ADDONS = addon_records.pinned(KUBERNETES)
WORKLOADS = [workload for addon in addon_records.installed() for workload in addon.workloads]
TIMEOUT_SECONDS = 300.0


def _pool(name, size):
    taints = [{"key": each.key, "value": each.value, "effect": each.eks_effect} for each in CATALOGUE.taints(name)]
    sizes = {"minSize": 0, "maxSize": size, "desiredSize": size}
    inputs = {"instanceTypes": [name], "version": KUBERNETES, "taints": taints, "scalingConfig": sizes}
    computed = {"nodeGroupName": f"group-{uuid.uuid4().hex[:8]}"}
    return pool_of(inputs, computed, zones={}, region=REGION, catalogue=CATALOGUE)


@pytest.fixture(scope="module")
def addons(api):
    nodes, made = Nodes(api), AddonWorkloads(Objects(api, lambda _: None))
    pools = [_pool(name, size) for name, size in (("m6i.xlarge", 2), ("trn1.32xlarge", 1))]
    try:
        for pool in pools:
            nodes.apply(pool, TIMEOUT_SECONDS)
        for addon, version in ADDONS.items():
            assert made.apply(addon, version, REGION, timeout_seconds=TIMEOUT_SECONDS).change is Change.CREATED
        yield made
    finally:
        for addon in ADDONS:
            made.delete(addon, timeout_seconds=TIMEOUT_SECONDS)
        for pool in pools:
            nodes.delete(pool.key)


def test_agents_run_on_every_node_and_controllers_only_on_cpu_nodes(api, addons):
    families = {
        node["metadata"]["name"]: CATALOGUE.find(node["metadata"]["labels"]["node.kubernetes.io/instance-type"]).family
        for node in api.list("v1", "Node", labels="trainium-eks/simulated=true")
    }
    agents = [each for each in WORKLOADS if each.nodes == "all"]
    controllers = [each for each in WORKLOADS if each.kind == "Deployment"]
    assert len(agents) == 6
    assert len(controllers) == 4
    for each in agents:
        assert sorted(families_of(api, each.kind, each.name, families)) == ["cpu", "cpu", "neuron"], each.name
    for each in controllers:
        assert families_of(api, each.kind, each.name, families) == ["cpu", "cpu"], each.name


def families_of(api, kind, name, families):
    path = f"/apis/apps/v1/namespaces/kube-system/{kind.lower()}s/{name}"
    selector = api.request("GET", path)["spec"]["selector"]["matchLabels"]
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = api.list("v1", "Pod", namespace="kube-system", labels=labels)
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    return [families[pod["spec"]["nodeName"]] for pod in pods]


def test_a_second_apply_changes_nothing_and_a_new_version_is_rolled_out(api, addons):
    again = addons.apply("coredns", ADDONS["coredns"], REGION, timeout_seconds=TIMEOUT_SECONDS)
    assert again.change is Change.SAME
    newer = addons.apply("coredns", "v9.9.9-eksbuild.1", REGION, timeout_seconds=TIMEOUT_SECONDS)
    assert newer.change is Change.UPDATED
    pods = api.list("v1", "Pod", namespace="kube-system", labels="k8s-app=kube-dns")
    images = {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}
    assert "v9.9.9-eksbuild.1" in images


def test_a_deleted_add_on_leaves_nothing_and_no_registered_driver(api, addons):
    found = {each["metadata"]["name"] for each in api.list("storage.k8s.io/v1", "CSIDriver")}
    assert found >= {"ebs.csi.aws.com", "fsx.csi.aws.com"}
    references = [api.reference(each) for each in manifests("aws-fsx-csi-driver", "", "")]
    assert all(api.get(each) for each in references)
    addons.delete("aws-fsx-csi-driver", timeout_seconds=TIMEOUT_SECONDS)
    addons.delete("aws-fsx-csi-driver", timeout_seconds=TIMEOUT_SECONDS)
    assert [str(each) for each in references if api.get(each)] == []
