"""Stand-ins of EKS add-ons: real names, places and weights; and the wait for their pods."""

from types import SimpleNamespace

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.local import patience
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.nodes.addon_workloads import UNMOVED_SECONDS, AddonWorkloads, await_daemon_sets, manifests
from trainium_eks.model.catalogue import addon_records
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.sizing.quantities import quantity

REGION = "us-west-2"
ADDONS = addon_records.pinned(KUBERNETES)
WORKLOADS = [workload for addon in ADDONS for workload in addon_records.ADDONS[addon].workloads]


def made(addon, region=REGION):
    return manifests(addon, ADDONS[addon], region)


def of_kind(addon, *kinds):
    return [each for each in made(addon) if each["kind"] in kinds]


PODS = [each for addon in ADDONS for each in of_kind(addon, "DaemonSet", "Deployment")]
SPECS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in PODS}


@pytest.mark.parametrize("addon", ADDONS)
def test_add_on_makes_its_listed_workloads_valid_and_simulated(addon):
    listed = [(each.kind, each.namespace, each.name) for each in addon_records.ADDONS[addon].workloads]
    workloads = of_kind(addon, "DaemonSet", "Deployment", "StatefulSet")
    assert [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in workloads] == listed
    assert [fault for each in made(addon) for fault in object_faults(each)] == []
    for each in (*made(addon), *(each["spec"]["template"] for each in workloads)):
        assert each["metadata"]["annotations"]["trainium-eks/simulated"] == "true"
    kinds = {each["kind"] for each in made(addon)}
    assert not kinds & {"APIService", "Service"}, "nobody would answer"


def test_add_on_pods_have_no_token_and_minimal_resources():
    on_host = {name for name, spec in SPECS.items() if spec.get("hostNetwork")}
    assert on_host == {"aws-node", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent"}
    containers = [SPECS[each.name]["containers"][0] for each in WORKLOADS if each.nodes == "all"]
    requests = [each.get("resources", {}).get("requests", {}) for each in containers]
    amounts = [1000 * sum(quantity(each.get(name, "0")) for each in requests) for name in ("cpu", "memory")]
    assert amounts == [220, 254_000 * 2**20]
    assert [name for name, spec in SPECS.items() if spec["automountServiceAccountToken"]] == []
    tolerated = {name: spec["tolerations"][0] for name, spec in SPECS.items() if "tolerations" in spec}
    assert all(tolerated[each.name] == {"operator": "Exists"} for each in WORKLOADS if each.nodes == "all")
    assert tolerated["coredns"] == {"key": "CriticalAddonsOnly", "operator": "Exists"}
    assert "metrics-server" not in tolerated


def test_images_come_from_ekss_registry_at_the_add_ons_version():
    account = "602401143452.dkr.ecr.us-west-2.amazonaws.com"
    assert SPECS["coredns"]["containers"][0]["image"] == f"{account}/eks/coredns:{ADDONS['coredns']}"
    china = made("vpc-cni", "cn-north-1")[-1]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert china.startswith("918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn/amazon-k8s-cni:")


def test_unknown_add_on_is_reported_as_not_installed():
    applied = AddonWorkloads(None).apply("aws-efs-csi-driver", "v3.5.0-eksbuild.1", REGION)
    assert "aws-efs-csi-driver" in applied.not_installed
    AddonWorkloads(None).delete("aws-efs-csi-driver")


class Objects:
    """Remembers the names of its objects."""

    def __init__(self):
        self.names = []

    def apply(self, wanted, **_):
        name = wanted["metadata"]["name"]
        is_there = name in self.names
        self.names += [] if is_there else [name]
        return ApplyResult(Change.SAME if is_there else Change.CREATED)

    def delete(self, reference, **_):
        assert self.names.pop() == reference.name, "the last goes first"


def test_add_on_is_created_once_updated_and_deleted_completely():
    objects = Objects()
    addons = AddonWorkloads(objects)
    changes = [addons.apply("aws-fsx-csi-driver", "v1", REGION).change for _ in range(2)]
    assert changes == [Change.CREATED, Change.SAME]
    objects.names.pop()
    assert addons.apply("aws-fsx-csi-driver", "v2", REGION).change is Change.UPDATED
    addons.delete("aws-fsx-csi-driver")
    assert objects.names == []


def daemon_set(name, wanted, available):
    metadata = {"name": name, "namespace": "kube-system", "generation": 1}
    status = {"observedGeneration": 1, "desiredNumberScheduled": wanted, "updatedNumberScheduled": wanted}
    return {"metadata": metadata, "status": {**status, "numberAvailable": available}}


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only in waits."""

    def sleep(seconds):
        assert seconds > 0
        clock.now += seconds

    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, wait=sleep, is_set=lambda: False)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "threading", SimpleNamespace(Event=lambda: clock))
    return clock


def server(clock, available):
    def get(path):
        assert path == "/apis/apps/v1/daemonsets"
        return {"items": [daemon_set("agent", 5, available(clock.now)), daemon_set("other", 5, 5)]}

    return get


def test_starting_pods_are_awaited_and_reported(clock):
    told = []
    assert await_daemon_sets(server(clock, lambda _: 5), told.append) == []
    assert (clock.now, told) == (0, []), "a cluster that is whole is not waited for"
    assert await_daemon_sets(server(clock, lambda now: min(5, int(now))), told.append) == []
    assert 5 <= clock.now < 6
    assert "Waiting for the agents of the nodes: DaemonSet kube-system/agent: 3 of 5 pods are available" in told


def test_stuck_workload_is_given_up_and_reported(clock):
    (note,) = await_daemon_sets(server(clock, lambda now: 4 if now > 10 else 2), lambda _: None)
    assert note == "still not running: DaemonSet kube-system/agent: 4 of 5 pods are available"
    assert 10 + UNMOVED_SECONDS <= clock.now < 12 + UNMOVED_SECONDS
