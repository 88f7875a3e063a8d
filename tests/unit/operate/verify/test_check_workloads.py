"""What add-ons and charts run is there, and running on every node that needs it."""

from typing import Any

import pytest
from cluster_snapshots import EFA, GPU, accelerated, csi_nodes, group, judged, named, outputs, the, without, workload

from trainium_eks.model.catalogue import addon_records, chart_workloads
from trainium_eks.operate.verify.check import CheckStatus
from trainium_eks.operate.verify.local_report import LocalReport

NEURON_PLUGIN = "plugins/neuron-helm-chart/neuron-device-plugin"


def test_every_addon_is_checked() -> None:
    owners = {check.id.split("/")[1] for check in judged().values() if check.section == "plugins"}
    assert {addon.name for addon in addon_records.installed()} <= owners
    assert {"neuron-helm-chart", "aws-efa-k8s-device-plugin", "neuron-monitor"} <= owners
    assert not {"nvidia-device-plugin", "torchx-etcd", "dcgm-exporter"} & owners


@pytest.mark.parametrize("addon", sorted(addon.name for addon in addon_records.installed()))
def test_a_missing_addon_fails_with_the_command_that_says_why(addon: str) -> None:
    def spoil(made: Any) -> None:
        for each in addon_records.ADDONS[addon].workloads:
            without(made, each.kind, each.name)

    found = [check for check in judged(spoil).values() if check.status is CheckStatus.FAIL]
    assert {check.id.split("/")[1] for check in found} == {addon}
    assert all(f"--addon-name {addon}" in check.remedy for check in found)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"desiredNumberScheduled": 2, "numberReady": 1}, "ready on 1 of 2 nodes"),
        # The nodes' taint is not tolerated: the controller does not even count them.
        ({"desiredNumberScheduled": 0, "numberReady": 0}, "is meant for 0 of 2 nodes"),
        ({"desiredNumberScheduled": 1, "numberReady": 1}, "is meant for 1 of 2 nodes"),
        ({"observedGeneration": 0}, "its controller has not seen its latest version"),
    ],
)
def test_a_device_plugin_that_is_not_ready_on_every_node_of_its_family_fails(status: dict[str, int], said: str) -> None:
    check = judged(lambda made: the(made, "DaemonSet", "neuron-device-plugin")["status"].update(status))[NEURON_PLUGIN]
    assert (check.status, check.detail) == (CheckStatus.FAIL, said)


def test_an_agent_for_all_nodes_must_be_on_all_of_them() -> None:
    status = {"desiredNumberScheduled": 3, "numberReady": 3}
    check = judged(lambda made: the(made, "DaemonSet", "aws-node")["status"].update(status))["plugins/vpc-cni/aws-node"]
    assert (check.status, check.detail) == (CheckStatus.FAIL, "is meant for 3 of 5 nodes")


def test_a_plugin_without_nodes_of_its_family_is_not_said_to_pass() -> None:
    def spoil(made: Any) -> None:
        made["Node"] = [each for each in made["Node"] if each["metadata"]["name"].startswith("system")]
        for name in ("neuron-device-plugin", "aws-efa-k8s-device-plugin"):
            the(made, "DaemonSet", name)["status"].update(desiredNumberScheduled=0, numberReady=0)

    found = judged(spoil)
    assert found[NEURON_PLUGIN].status is CheckStatus.NOT_APPLICABLE
    assert found["plugins/aws-efa-k8s-device-plugin/aws-efa-k8s-device-plugin"].status is CheckStatus.NOT_APPLICABLE


def test_a_deployment_must_have_all_its_pods_available() -> None:
    check = judged(lambda made: the(made, "Deployment", "coredns")["status"].update(availableReplicas=0))
    assert (check["plugins/coredns/coredns"].status, check["plugins/coredns/coredns"].detail) == (
        CheckStatus.FAIL,
        "0 of 2 available",
    )


def test_a_deployment_scaled_to_zero_fails() -> None:
    check = judged(lambda made: the(made, "Deployment", "metrics-server")["spec"].update(replicas=0))
    assert check["plugins/metrics-server/metrics-server"].detail == "is scaled to zero"


def test_what_is_optional_is_not_applicable_when_it_is_off_and_fails_when_it_is_broken() -> None:
    def off(made: Any) -> None:
        without(made, "Namespace", "neuron-monitor")
        without(made, "DaemonSet", "neuron-monitor")

    id_ = "plugins/neuron-monitor/neuron-monitor"
    assert judged(off)[id_].status is CheckStatus.NOT_APPLICABLE
    assert judged(lambda made: without(made, "DaemonSet", "neuron-monitor"))[id_].status is CheckStatus.FAIL


def test_a_chart_that_the_local_cloud_could_not_have_is_named_by_its_release() -> None:
    local = LocalReport({"neuron": "chart repository not reachable"}, real_volcano=True)
    check = judged(lambda made: without(made, "DaemonSet", "neuron-device-plugin"), local=local)[NEURON_PLUGIN]
    assert (check.status, check.detail) == (CheckStatus.NOT_INSTALLED, "chart repository not reachable")


def test_what_is_missing_though_the_local_cloud_did_not_say_so_fails() -> None:
    local = LocalReport({"volcano": "chart repository not reachable"})
    check = judged(lambda made: without(made, "DaemonSet", "neuron-device-plugin"), local=local)[NEURON_PLUGIN]
    assert (check.status, check.remedy) == (CheckStatus.FAIL, "trn local up makes it")


def _gpu(made: Any) -> None:
    for name in ("neuron-device-plugin", "neuron-monitor"):
        without(made, "DaemonSet", name)
    made["Node"] = [each for each in made["Node"] if each["metadata"]["name"].startswith("system")]
    made["Node"] += [accelerated(f"p4d{number}", group("gpu", GPU, 4, 2)) for number in range(2)]
    made["CSINode"] = csi_nodes(made["Node"])
    made["Namespace"] += [named("dcgm-exporter")]
    made["StatefulSet"] = [workload(chart_workloads.CHARTS["torchx-etcd"][0], 1)]
    made["DaemonSet"] += [
        workload(chart_workloads.CHARTS[chart][0], 2) for chart in ("nvidia-device-plugin", "dcgm-exporter")
    ]
    the(made, "DaemonSet", "dcgm-server")["status"] |= {"desiredNumberScheduled": 2, "numberReady": 2}


def test_a_gpu_stack_is_asked_for_its_own_plugins_and_etcd() -> None:
    stack = outputs(nodeGroups=[group("gpu", GPU, 4, 2)], rendezvous="etcd-server.torchx-etcd:2379")
    found = judged(_gpu, stack=stack)
    assert [check.id for check in found.values() if check.status is CheckStatus.FAIL] == []
    for id_ in ("nvidia-device-plugin/nvidia-device-plugin", "dcgm-exporter/dcgm-exporter", "torchx-etcd/etcd-server"):
        assert found[f"plugins/{id_}"].status is CheckStatus.PASS, id_
    assert found[f"devices/gpu/{EFA}"].detail == "4 on each of 2 nodes"
    assert found["plugins/training-operator/training-operator"].status is CheckStatus.NOT_APPLICABLE


@pytest.mark.parametrize(("desired", "status"), [(0, CheckStatus.FAIL), (1, CheckStatus.FAIL), (2, CheckStatus.PASS)])
def test_the_monitoring_agents_gpu_part_runs_on_every_gpu_node(desired: int, status: CheckStatus) -> None:
    def spoil(made: Any) -> None:
        _gpu(made)
        the(made, "DaemonSet", "dcgm-server")["status"] |= {"desiredNumberScheduled": desired, "numberReady": desired}

    stack = outputs(nodeGroups=[group("gpu", GPU, 4, 2)])
    check = judged(spoil, stack=stack)["plugins/eks-node-monitoring-agent/dcgm-server"]
    assert check.status is status


def test_a_gpu_stack_without_etcd_fails() -> None:
    stack = outputs(nodeGroups=[group("gpu", GPU, 4, 2)], rendezvous="etcd-server.torchx-etcd:2379")

    def spoil(made: Any) -> None:
        _gpu(made)
        made["StatefulSet"][0]["status"]["readyReplicas"] = 0

    assert judged(spoil, stack=stack)["plugins/torchx-etcd/etcd-server"].status is CheckStatus.FAIL


def test_a_kustomization_that_the_local_cloud_does_not_fetch_is_named() -> None:
    stack = outputs(nodeGroups=[group("gpu", GPU, 4, 2)])
    local = LocalReport({"gpu-training-operator": "its manifests are fetched from GitHub"}, real_volcano=True)
    check = judged(_gpu, stack=stack, local=local)["plugins/training-operator/training-operator"]
    assert check.status is CheckStatus.NOT_INSTALLED
