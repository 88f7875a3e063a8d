"""The checks over the snapshot of a sound cluster: what is spoilt fails, with its words and its remedy, and no more."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cluster_snapshots import (
    EFA,
    GPU,
    NEURON,
    Object,
    Objects,
    accelerated,
    csi_nodes,
    group,
    judged,
    named,
    outputs,
    the,
    without,
    workload,
)

from trainium_eks.model.catalogue import addon_records, chart_workloads
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.finding import Finding, Status
from trainium_eks.operate.verify.local_report import LocalReport

Spoil = Callable[[Objects], object]

UNREACHABLE = "chart repository not reachable: https://volcano-sh.github.io"
NO_CHART = LocalReport({"volcano": UNREACHABLE})
SIMULATED = LocalReport()
REAL = LocalReport(
    real_volcano=True, running=frozenset({"vc-scheduler", "vc-controller-manager", "vc-webhook-manager"})
)
VOLCANO = ("volcano-scheduler", "volcano-controllers", "volcano-admission")
CLAIM = "storage/claim/training"
DEFAULT = "storageclass.kubernetes.io/is-default-class"


def _failing(found: dict[str, Finding]) -> set[str]:
    return {each.id for each in found.values() if each.status is Status.FAIL}


def _ng1(number: int) -> Object:
    return accelerated(f"trn{number}", group("ng1", NEURON, 8, 2))


def _only(start: str) -> Spoil:
    def spoil(made: Objects) -> None:
        made["Node"] = [each for each in made["Node"] if each["metadata"]["name"].startswith(start)]

    return spoil


def _not_ready(name: str, conditions: list[dict[str, str]]) -> Spoil:
    return lambda made: the(made, "Node", name)["status"].update(conditions=conditions)


def _devices(resource: str, capacity: str | None, allocatable: str | None) -> Spoil:
    def spoil(made: Objects) -> None:
        status = the(made, "Node", "trn1")["status"]
        for part, value in (("capacity", capacity), ("allocatable", allocatable)):
            status[part].pop(resource)
            status[part].update({resource: value} if value is not None else {})

    return spoil


def _status(kind: str, name: str, **status: Any) -> Spoil:
    return lambda made: the(made, kind, name)["status"].update(status)


def _gone(kind: str, name: str) -> Spoil:
    return lambda made: without(made, kind, name)


def _guarantee(amount: str | int) -> Spoil:
    return lambda made: the(made, "Queue", "test")["spec"].update(guarantee={"resource": {NEURON: amount}})


def _both(*spoils: Spoil) -> Spoil:
    return lambda made: [each(made) for each in spoils]


def _no_authority(made: Objects) -> None:
    name = "volcano-admission-service-jobs-validate"
    the(made, "ValidatingWebhookConfiguration", name)["webhooks"][0]["clientConfig"] = {}


def _default_class(name: str, value: str) -> Spoil:
    return lambda made: the(made, "StorageClass", name)["metadata"].update(annotations={DEFAULT: value})


@dataclass(frozen=True)
class Case:
    """A spoilt cluster, the check that fails, its words, and its remedy's."""

    spoil: Spoil
    id: str
    said: str
    fix: str = ""
    more: bool = False
    """Whether other checks fail, too."""
    rest: dict[str, Any] = field(default_factory=dict)


_NG1 = "nodes/ng1"
_PLUGIN = "plugins/neuron-helm-chart/neuron-device-plugin"

CASES = {
    "a server of an old version": Case(
        lambda _: None, "server/version", "1.34, 1.35, 1.36", more=True, rest={"version": "v1.33.2"}
    ),
    "a kubelet four versions behind": Case(
        lambda made: the(made, "Node", "trn1")["status"]["nodeInfo"].update(kubeletVersion="v1.31.9"),
        "server/kubelets",
        "trn1 runs v1.31.9",
    ),
    "a kubelet newer than the server": Case(
        lambda made: the(made, "Node", "trn1")["status"]["nodeInfo"].update(kubeletVersion="v1.36.0"),
        "server/kubelets",
        "trn1 runs v1.36.0",
    ),
    "a node that is not ready": Case(
        _not_ready("trn1", [{"type": "Ready", "status": "False", "message": "network not ready"}]),
        _NG1,
        "1 of 2 Ready, wants 2 (0 to 4) trn1: not Ready: network not ready",
    ),
    "a cordoned node": Case(
        lambda made: the(made, "Node", "trn0")["spec"].update(unschedulable=True),
        _NG1,
        "trn0: cordoned",
        "kubectl uncordon trn0",
    ),
    "fewer nodes": Case(_gone("Node", "trn1"), _NG1, "1 of 1 Ready, wants 2", "--nodegroup-name ng1-eks"),
    "more nodes": Case(lambda made: made["Node"].append(_ng1(2)), _NG1, "3 of 3 Ready", "ignoreDesiredSize", more=True),
    "no system nodes": Case(_only("trn"), "nodes/others", "there is none", more=True),
    "a silent system node": Case(
        _not_ready("system1", []), "nodes/others", "system1: not Ready: it has not reported yet"
    ),
    "no devices": Case(
        _devices(NEURON, None, None),
        f"devices/ng1/{NEURON}",
        f"1 of 2 nodes not as wanted (16 each) trn1: {NEURON} has none, wants 16",
        "the Neuron device plugin has not registered on trn1",
    ),
    "no interfaces": Case(
        _devices(EFA, None, None),
        f"devices/ng1/{EFA}",
        "has none, wants 8",
        "without /dev/infiniband/uverbs* the launch template has no EFA interface",
    ),
    "half of the interfaces": Case(
        _devices(EFA, "4", "4"),
        f"devices/ng1/{EFA}",
        "has 4, wants 8",
        "the group's launch template has other EFA interfaces",
    ),
    "a device less": Case(
        _devices(NEURON, "15", "15"), f"devices/ng1/{NEURON}", "has 15, wants 16", "neuron-ls on trn1"
    ),
    "an ill device": Case(
        _devices(NEURON, "16", "15"),
        f"devices/ng1/{NEURON}",
        "has 15 of 16",
        "terminate-instances --instance-ids",
    ),
    "withdrawn devices": Case(
        _devices(NEURON, "16", "0"), f"devices/ng1/{NEURON}", "has 0 of 16", "or reports every device as unhealthy"
    ),
    "changed simulated devices": Case(
        _devices(EFA, "4", "4"), f"devices/ng1/{EFA}", "has 4", "trn local up sets them back", rest={"local": REAL}
    ),
    "guarantees beyond the nodes": Case(
        _guarantee(33), "queues/guarantees", f"{NEURON}: 33 guaranteed, the Ready nodes have 32"
    ),
    "guarantees of a node that is not ready": Case(
        _both(_guarantee("32"), _not_ready("trn0", [])), "queues/guarantees", "the Ready nodes have 16", more=True
    ),
    "no queue": Case(_gone("Queue", "test"), "queues/test", "does not exist", "pulumi up makes it"),
    "a closed queue": Case(
        _status("Queue", "test", state="Closed"),
        "queues/test",
        "is Closed, and takes no jobs",
        "vcctl queue operate --name test --action open",
    ),
    "a queue that nobody opened": Case(_status("Queue", "test", state=""), "queues/test", "have not seen it"),
    "a process of Volcano that has ended": Case(
        lambda _: None,
        "volcano/volcano-scheduler",
        "vc-scheduler has ended",
        "trn local logs vc-scheduler",
        rest={"local": LocalReport(real_volcano=True, running=REAL.running - {"vc-scheduler"})},
    ),
    "a process of the local cloud that has ended": Case(
        lambda _: None,
        "server/kwok",
        "has ended",
        "trn local up",
        rest={"local": LocalReport(processes=frozenset({"kwok"}))},
    ),
    "a process of Volcano without a ready pod": Case(
        _status("Deployment", "volcano-admission", availableReplicas=1), "volcano/volcano-admission", "1 of 2 available"
    ),
    "no webhook": Case(
        _gone("MutatingWebhookConfiguration", "volcano-admission-service-jobs-mutate"),
        "volcano/webhooks",
        "volcano-admission-service-jobs-mutate: missing",
    ),
    "a webhook without authority": Case(
        _no_authority, "volcano/webhooks", "volcano-admission-service-jobs-validate: no certificate authority"
    ),
    "no namespace": Case(_gone("Namespace", "training"), "namespaces/training", "does not exist"),
    "an ending namespace": Case(
        _status("Namespace", "training", phase="Terminating"), "namespaces/training", "is Terminating, not Active"
    ),
    "no service account": Case(
        _gone("ServiceAccount", "trainer"), "namespaces/training", "has no service account trainer"
    ),
    "no claim": Case(_gone("PersistentVolumeClaim", "fsx-claim"), CLAIM, "does not exist"),
    "a lost claim": Case(
        _status("PersistentVolumeClaim", "fsx-claim", phase="Lost"), CLAIM, "is Lost: its volume pv-training is gone"
    ),
    "no volume": Case(_gone("PersistentVolume", "pv-training"), CLAIM, "pv-training, which does not exist"),
    "outputs without a claim": Case(
        lambda _: None,
        CLAIM,
        "the outputs name no claim",
        rest={
            "stack": outputs(
                namespaces=[{"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": ""}]
            )
        },
    ),
    "no default class": Case(_default_class("gp3", "false"), "storage/class/default", "no class is the default"),
    "two default classes": Case(_default_class("fsx", "true"), "storage/class/default", "fsx, gp3 all are"),
    "a node without a driver": Case(
        lambda made: the(made, "CSINode", "trn1")["spec"].update(drivers=[{"name": "ebs.csi.aws.com"}]),
        "storage/drivers",
        "trn1: without the driver of fsx-csi-node",
        "kubectl -n kube-system rollout restart daemonset fsx-csi-node registers it again",
    ),
    # The nodes' taint is not tolerated: the controller does not even count them.
    "a plugin that tolerates no node": Case(
        _status("DaemonSet", "neuron-device-plugin", desiredNumberScheduled=0, numberReady=0),
        _PLUGIN,
        "is meant for 0 of 2 nodes",
    ),
    "a plugin that is being updated": Case(
        _status("DaemonSet", "neuron-device-plugin", observedGeneration=0), _PLUGIN, "has not seen its latest version"
    ),
    "an agent that is not on all nodes": Case(
        _status("DaemonSet", "aws-node", desiredNumberScheduled=3, numberReady=3),
        "plugins/vpc-cni/aws-node",
        "is meant for 3 of 5 nodes",
    ),
    "a Deployment at zero": Case(
        lambda made: the(made, "Deployment", "metrics-server")["spec"].update(replicas=0),
        "plugins/metrics-server/metrics-server",
        "is scaled to zero",
    ),
    "half of an optional chart": Case(
        _gone("DaemonSet", "neuron-monitor"), "plugins/neuron-monitor/neuron-monitor", "does not exist"
    ),
    "what the local cloud does not report as missing": Case(
        _gone("DaemonSet", "neuron-device-plugin"),
        _PLUGIN,
        "does not exist",
        "trn local up makes it",
        rest={"local": REAL},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_spoilt_fails_and_nothing_else(case: Case) -> None:
    found = judged(case.spoil, **case.rest)
    failed = found[case.id]
    assert case.said in " ".join([failed.text, *failed.details])
    assert case.fix in failed.fix
    assert failed.fault
    assert failed.fix
    assert "\n" not in failed.fix
    if case.more:
        assert case.id in _failing(found)
    else:
        assert _failing(found) == {case.id}


def test_a_cluster_that_is_as_its_stack_says_fails_nothing() -> None:
    found = judged()
    assert {each.status for each in found.values()} == {Status.PASS, Status.NOT_APPLICABLE}
    assert not [each.id for each in found.values() if each.fix]
    assert found[_NG1].text == "2 of 2 Ready, wants 2 (0 to 4)"
    assert found[f"devices/ng1/{NEURON}"].text == "16 on each of 2 nodes"
    assert found[CLAIM].text == "Bound, fs-0123456789abcdef0, 1200 GiB"
    assert found["storage/class/default"].text == "gp3"
    for id_ in ("nodes/rest", f"devices/rest/{NEURON}", "queues/guarantees"):
        assert found[id_].status is Status.NOT_APPLICABLE, id_
    assert {each.status for each in judged(local=REAL).values()} == {Status.PASS, Status.NOT_APPLICABLE}


def test_an_empty_cluster_passes_nothing_but_that_its_server_answers() -> None:
    empty = judged(lambda made: made.clear())
    assert [each.id for each in empty.values() if each.status is Status.PASS] == ["server/version"]


def test_a_stack_without_queues_teams_and_file_system_is_not_said_to_pass() -> None:
    found = judged(stack=outputs(queues={}, queueNames=[], namespaces=[], sharedVolume=None))
    for id_ in ("queues/all", "namespaces/all", "storage/claims"):
        assert found[id_].status is Status.NOT_APPLICABLE


def test_what_could_not_be_read_is_not_said_to_pass() -> None:
    found = judged(unread={"Queue": "queues is forbidden"})
    assert not [id_ for id_ in found if id_.startswith("queues/")]
    assert found[CLAIM].status is Status.PASS


@pytest.mark.parametrize(("nodes", "status"), [(1, "fail"), (2, "pass"), (4, "pass"), (5, "fail")])
def test_a_group_with_ignore_desired_size_must_be_within_its_bounds(nodes: int, status: str) -> None:
    stack = outputs(nodeGroups=[group("ng1", NEURON, 8, None, minSize=2)])
    more = _both(_only("system"), lambda made: made["Node"].extend(_ng1(number) for number in range(nodes)))
    assert judged(more, stack=stack)[_NG1].status == status
    resting = outputs(nodeGroups=[group("rest", NEURON, 16, 1)])
    assert judged(stack=resting)["nodes/rest"].status is Status.FAIL


def test_each_cause_has_its_remedy_once() -> None:
    def spoil(made: Objects) -> None:
        made["Node"].append(_ng1(2))
        for name, value in (("trn0", "4"), ("trn1", "4"), ("trn2", "0")):
            the(made, "Node", name)["status"]["allocatable"][EFA] = value
            the(made, "Node", name)["status"]["capacity"][EFA] = "4" if value == "4" else "8"

    found = judged(spoil)[f"devices/ng1/{EFA}"]
    assert len(found.details) == 3
    assert found.fix.count("launch template has other") == 1
    assert found.fix.count("has stopped") == 1


def test_devices_of_nodes_that_are_not_ready_are_not_judged() -> None:
    found = judged(_both(_not_ready("trn0", []), _not_ready("trn1", [])))[f"devices/ng1/{NEURON}"]
    assert (found.status, found.text) == (Status.NOT_APPLICABLE, "no Ready node")


def test_guarantees_of_queues_below_another_are_shares_of_its_own() -> None:
    def nest(made: Objects) -> None:
        the(made, "Queue", "test")["spec"].update(guarantee={"resource": {NEURON: "32"}}, parent="root")
        below = {"guarantee": {"resource": {NEURON: "32"}}, "parent": "test"}
        made["Queue"].append(named("below", spec=below))

    assert judged(nest)["queues/guarantees"].text == f"32 of 32 {NEURON}"


def _without_volcano(made: Objects) -> None:
    for name in VOLCANO:
        without(made, "Deployment", name)
    made["MutatingWebhookConfiguration"] = made["ValidatingWebhookConfiguration"] = []
    the(made, "Queue", "test").pop("status")


def test_volcano_that_this_machine_cannot_have_is_not_checked_and_fails_on_aws() -> None:
    ids = {*(f"volcano/{name}" for name in VOLCANO), "volcano/webhooks", "queues/test"}
    here = judged(_without_volcano, local=NO_CHART)
    assert {each.id: each.text for each in here.values() if each.status is Status.NOT_CHECKED} == dict.fromkeys(
        ids, UNREACHABLE
    )
    assert _failing(here) == set()
    there = judged(_without_volcano)
    assert _failing(there) == ids
    assert Status.NOT_CHECKED not in {each.status for each in there.values()}


def test_simulated_pods_of_volcano_are_not_said_to_run() -> None:
    def spoil(made: Objects) -> None:
        made["MutatingWebhookConfiguration"] = made["ValidatingWebhookConfiguration"] = []
        the(made, "Queue", "test").pop("status")

    found = judged(spoil, local=SIMULATED)
    assert found["volcano/volcano-scheduler"].text == "vc-scheduler is not on PATH, so its pods are only simulated"
    assert found["queues/test"].text == "vc-controller-manager is not on PATH, so nobody opens queues"
    for id_ in (*(f"volcano/{name}" for name in VOLCANO), "volcano/webhooks", "queues/test"):
        assert found[id_].status is Status.NOT_CHECKED, id_


def test_a_driver_whose_pod_is_not_ready_is_not_missed() -> None:
    starting = _both(
        _gone("CSINode", "trn1"),
        _status("DaemonSet", "ebs-csi-node", numberReady=4),
        _status("DaemonSet", "fsx-csi-node", numberReady=4),
    )
    assert judged(starting)["storage/drivers"].status is Status.PASS
    assert judged(_gone("CSINode", "trn1"))["storage/drivers"].status is Status.FAIL


# --- Add-ons and charts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addon", sorted(addon.name for addon in addon_records.installed()))
def test_a_missing_addon_fails_with_the_command_that_says_why(addon: str) -> None:
    spoilt = _both(*(_gone(each.kind, each.name) for each in addon_records.ADDONS[addon].workloads))
    found = [each for each in judged(spoilt).values() if each.status is Status.FAIL]
    assert {each.id.split("/")[1] for each in found} == {addon}
    assert all(f"--addon-name {addon}" in each.fix for each in found)


def test_a_plugin_without_nodes_and_a_chart_that_is_off_are_not_said_to_pass() -> None:
    off = _both(
        _only("system"),
        _status("DaemonSet", "neuron-device-plugin", desiredNumberScheduled=0, numberReady=0),
        _gone("Namespace", "neuron-monitor"),
        _gone("DaemonSet", "neuron-monitor"),
    )
    found = judged(off)
    assert found[_PLUGIN].status is Status.NOT_APPLICABLE
    assert found["plugins/neuron-monitor/neuron-monitor"].status is Status.NOT_APPLICABLE


def test_a_chart_that_the_local_cloud_could_not_have_is_named_by_its_release() -> None:
    local = LocalReport({"neuron": "chart repository not reachable"}, real_volcano=True)
    found = judged(_gone("DaemonSet", "neuron-device-plugin"), local=local)[_PLUGIN]
    assert (found.status, found.text) == (Status.NOT_CHECKED, "chart repository not reachable")


GPU_STACK = outputs(nodeGroups=[group("gpu", GPU, 4, 2)], rendezvous="etcd-server.torchx-etcd:2379")


def _gpu(made: Objects) -> None:
    for name in ("neuron-device-plugin", "neuron-monitor"):
        without(made, "DaemonSet", name)
    _only("system")(made)
    made["Node"] += [accelerated(f"p4d{number}", group("gpu", GPU, 4, 2)) for number in range(2)]
    made["CSINode"] = csi_nodes(made["Node"])
    made["Namespace"] += [named("dcgm-exporter")]
    made["StatefulSet"] = [workload(chart_workloads.charts()["torchx-etcd"][0], 1)]
    made["DaemonSet"] += [
        workload(chart_workloads.charts()[chart][0], 2) for chart in ("nvidia-device-plugin", "dcgm-exporter")
    ]
    the(made, "DaemonSet", "dcgm-server")["status"] |= {"desiredNumberScheduled": 2, "numberReady": 2}


def test_a_gpu_stack_is_asked_for_its_own_plugins_and_etcd() -> None:
    def gpu(spoil: Spoil, stack: StackOutputs = GPU_STACK, **rest: Any) -> dict[str, Finding]:
        return judged(_both(_gpu, spoil), stack=stack, **rest)

    sound = gpu(lambda _: None)
    assert _failing(sound) == set()
    for id_ in ("nvidia-device-plugin/nvidia-device-plugin", "dcgm-exporter/dcgm-exporter", "torchx-etcd/etcd-server"):
        assert sound[f"plugins/{id_}"].status is Status.PASS, id_
    assert sound[f"devices/gpu/{EFA}"].text == "4 on each of 2 nodes"
    operator = "plugins/training-operator/training-operator"
    assert sound[operator].status is Status.NOT_APPLICABLE
    etcd = gpu(lambda made: made["StatefulSet"][0]["status"].update(readyReplicas=0))
    assert _failing(etcd) == {"plugins/torchx-etcd/etcd-server"}
    agent = gpu(_status("DaemonSet", "dcgm-server", desiredNumberScheduled=1, numberReady=1))
    assert _failing(agent) == {"plugins/eks-node-monitoring-agent/dcgm-server"}
    local = LocalReport({"gpu-training-operator": "its manifests are fetched from GitHub"}, real_volcano=True)
    assert gpu(lambda _: None, local=local)[operator].status is Status.NOT_CHECKED
