"""The checks over the snapshot of a sound cluster: what is spoilt fails, with its words and its remedy, and no more."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import aws_commands
import pytest
from cluster_snapshots import (
    EFA,
    GPU,
    NEURON,
    REAL,
    accelerated,
    csi_nodes,
    group,
    judged,
    named,
    outputs,
    the,
    unfilled,
    without,
    workload,
)

from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.model.catalogue import addon_records, chart_workloads
from trainium_eks.model.finding import Status

UNREACHABLE = "chart repository not reachable: https://volcano-sh.github.io"
VOLCANO = ("volcano-scheduler", "volcano-controllers", "volcano-admission")
CLAIM, CLASSES, WEBHOOKS = "storage/claim/training", "storage/class/default", "volcano/webhooks"
TEAM, NG1, OTHERS, PLUGIN = (
    "namespaces/training",
    "nodes/ng1",
    "nodes/others",
    "plugins/neuron-helm-chart/neuron-device-plugin",
)
DEVICES, INTERFACES = f"devices/ng1/{NEURON}", f"devices/ng1/{EFA}"
HOOK = "volcano-admission-service-jobs"
AGENT, MONITOR = "plugins/vpc-cni/aws-node", "plugins/neuron-monitor/neuron-monitor"


def _failing(found):
    return {each.id for each in found.values() if each.status is Status.FAIL}


def _ng1(number):
    return accelerated(f"trn{number}", group("ng1", NEURON, 8, 2))


def _only(start):
    return lambda made: made.update(Node=[each for each in made["Node"] if each["metadata"]["name"].startswith(start)])


def _set(kind, name, part, **values):
    return lambda made: the(made, kind, name)[part].update(values)


def _status(kind, name, **values):
    return _set(kind, name, "status", **values)


def _devices(resource, capacity, allocatable):
    def spoil(made):
        status = the(made, "Node", "trn1")["status"]
        for part, value in (("capacity", capacity), ("allocatable", allocatable)):
            status[part].pop(resource)
            status[part].update({resource: value} if value is not None else {})

    return spoil


def _without(kind, name):
    return lambda made: without(made, kind, name)


def _both(*spoils):
    return lambda made: [each(made) for each in spoils]


def _no_authority(made):
    the(made, "ValidatingWebhookConfiguration", f"{HOOK}-validate")["webhooks"][0]["clientConfig"] = {}


class Case(NamedTuple):
    """A spoilt cluster, the check that fails, its words, and its remedy's."""

    spoil: Callable
    id: str
    said: str
    fix: str = ""
    more: bool = False
    """Whether other checks fail, too."""
    rest: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def _plugin(**status):
    return _status("DaemonSet", "neuron-device-plugin", **status)


_NO_CLAIM = outputs(namespaces=[{"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": ""}])
_SILENT_0, _DEFAULT = _status("Node", "trn0", conditions=[]), {"storageclass.kubernetes.io/is-default-class": "true"}
_SILENT = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
_SILENT_1, _DNS = _status("Node", "trn1", conditions=[_SILENT]), "plugins/coredns/coredns"
_claim, _queue = partial(_status, "PersistentVolumeClaim", "fsx-claim"), partial(_status, "Queue", "test")


def _cordoned(node):
    return _set("Node", node, "spec", unschedulable=True)


def _kubelet(version):
    return _status("Node", "trn1", nodeInfo={"kubeletVersion": version})


def _local(**report):
    """Returns a cluster on this machine, of which Volcano runs as a process."""
    return {"local": replace(REAL, **report)}


def _guarantee(amount):
    return _set("Queue", "test", "spec", guarantee={"resource": {NEURON: amount}})


CASES = [
    Case(_both(), "server/version", "this release has no pins for it", more=True, rest={"version": "v1.38.2"}),
    *(Case(_kubelet(version), "server/kubelets", f"trn1 runs {version}")
      for version in ("v1.31.9", "v1.36.0", "v2.35.0")),
    Case(_kubelet(""), "server/kubelets", "1 of 5 nodes unsupported", "to the cluster's version"),
    Case(_SILENT_1, NG1, "1 of 2 Ready, wants 2 (0 to 4) trn1: not Ready: Kubelet stopped posting node status.",
         "node-not-ready an administrator looks: kubectl describe node trn1"),
    Case(_cordoned("trn1"), NG1, "1 of 2 Ready, wants 2 (0 to 4) trn1: cordoned", "kubectl uncordon trn1"),
    Case(_both(_cordoned("trn0"), _SILENT_1), NG1, "0 of 2 Ready, wants 2 (0 to 4) trn0: cordoned trn1: not Ready",
         "node-not-ready an administrator looks: kubectl describe node trn1"),
    Case(_cordoned("system1"), OTHERS, "2 of 3 Ready system1: cordoned", "uncordon system1"),
    Case(_without("Node", "trn1"), NG1, "1 of 1 Ready, wants 2", "--nodegroup-name ng1-eks"),
    Case(lambda made: made["Node"].append(_ng1(2)), NG1, "3 of 3 Ready", "ignoreDesiredSize", more=True),
    Case(_only("trn"), OTHERS, "there is none", more=True),
    Case(_status("Node", "system1", conditions=[]), OTHERS, "system1: not Ready: it has not reported yet"),
    Case(_devices(NEURON, None, None), DEVICES,
         f"1 of 2 nodes not as wanted (16 each) trn1: {NEURON} has none, wants 16",
         "the Neuron device plugin has not registered on trn1"),
    Case(_devices(EFA, None, None), INTERFACES, "has none, wants 8",
         "without /dev/infiniband/uverbs* the launch template has no EFA interface"),
    Case(_devices(NEURON, "15", "15"), DEVICES, "has 15, wants 16", "neuron-ls on trn1"),
    Case(_devices(NEURON, "16", "15"), DEVICES, "has 15 of 16", "--instance-ids i-trn1"),
    Case(_devices(NEURON, "16", "15"), DEVICES, "has 15 of 16", "devices-ill the nodes are simulated", rest=_local()),
    Case(_devices(NEURON, "16", "0"), DEVICES, "has 0 of 16", "or reports every device as unhealthy"),
    Case(_guarantee("33"), "queues/guarantees", f"{NEURON}: 33 guaranteed, the Ready nodes have 32",
         "queue-guarantees"),
    Case(_both(_guarantee("32"), _SILENT_0), "queues/guarantees", "the Ready nodes have 16", more=True),
    Case(_queue(state=""), "queues/test", "have not seen it", "silent"),
    Case(_queue(state="Closed"), "queues/test", "is Closed, and takes no jobs", "name: test, uid"),
    Case(_without("Queue", "test"), "queues/test", "does not exist", "queue-missing pulumi up makes it"),
    Case(_without("Namespace", "training"), TEAM, "does not exist", "namespace-missing"),
    Case(_status("Namespace", "training", phase="Terminating"), TEAM, "is Terminating, not Active", "namespace-term"),
    Case(_without("ServiceAccount", "trainer"), TEAM, "has no service account trainer", "service-account-missing"),
    Case(_both(), "server/etcd", "has ended", "local-process-ended", rest=_local(processes={"etcd", "vc-scheduler"})),
    Case(_both(), "volcano/volcano-scheduler", "vc-scheduler has ended",
         "volcano-process-down trn local logs vc-scheduler; trn local up",
         rest=_local(running=REAL.running - {"vc-scheduler"})),
    Case(_status("Deployment", "volcano-admission", availableReplicas=1), "volcano/volcano-admission",
         "1 of 2 available"),
    Case(_without("MutatingWebhookConfiguration", f"{HOOK}-mutate"), WEBHOOKS, f"{HOOK}-mutate: missing"),
    Case(_no_authority, WEBHOOKS, f"{HOOK}-validate: no certificate authority"),
    Case(_claim(phase="Lost"), CLAIM, "is Lost: its volume pv-training is gone"),
    Case(_without("PersistentVolume", "pv-training"), CLAIM, "pv-training, which does not exist"),
    Case(_both(), CLAIM, "the outputs name no claim", rest={"stack": _NO_CLAIM}),
    Case(_without("PersistentVolumeClaim", "fsx-claim"), CLAIM, "does not exist", "claim-missing"),
    Case(_claim(phase="Pending"), CLAIM, "is Pending, not Bound", "claim-not-bound"),
    Case(_set("StorageClass", "gp3", "metadata", annotations={}), CLASSES, "no class is the default",
         "storage-class-mis"),
    Case(_set("StorageClass", "fsx", "metadata", annotations=_DEFAULT), CLASSES, "fsx, gp3 all are"),
    # The nodes' taint is not tolerated: the controller does not even count them.
    Case(_plugin(desiredNumberScheduled=0, numberReady=0), PLUGIN, "is meant for 0 of 2 nodes"),
    Case(_plugin(numberReady=1), PLUGIN, "ready on 1 of 2 nodes", "plugin-not-running kubectl -n kube-system"),
    Case(_status("Deployment", "coredns", observedGeneration=0), _DNS, "has not seen its latest version",
         "deployment/"),
    Case(_set("Deployment", "coredns", "spec", replicas=0), _DNS, "is scaled to zero", "dns-not-running"),
    Case(_plugin(observedGeneration=0), PLUGIN, "has not seen its latest version"),
    Case(_status("DaemonSet", "aws-node", desiredNumberScheduled=3, numberReady=3), AGENT, "is meant for 3 of 5 nodes"),
    Case(_without("DaemonSet", "neuron-monitor"), MONITOR, "does not exist"),
    Case(_without("DaemonSet", "neuron-device-plugin"), PLUGIN, "not exist", "trn local up makes it",
         rest={"local": REAL}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id} {case.said}")
def test_spoilt_object_fails_its_check_and_no_other(case):
    found = judged(case.spoil, **case.rest)
    failed = found[case.id]
    assert case.said in " ".join([failed.text, *failed.details])
    assert case.fix in f"{failed.fault} {failed.fix}"
    assert (unfilled(failed), aws_commands.fault_of(failed.fix)) == (set(), "")
    assert (bool(failed.fault), bool(failed.fix), "\n" in failed.fix) == (True, True, False)
    assert case.id in _failing(found)
    assert case.more or len(_failing(found)) == 1


def test_matching_cluster_fails_no_check():
    oldest = judged(_kubelet("v1.32.0"))
    running = judged(local=replace(REAL, processes={"etcd"}, running=REAL.running | {"etcd"}))
    assert [oldest["server/kubelets"].status, running["server/etcd"].status] == [Status.PASS] * 2
    found = judged()
    assert {each.status for each in found.values()} == {Status.PASS, Status.NOT_APPLICABLE}
    assert not [each.id for each in found.values() if each.fix]
    said = {NG1: "2 of 2 Ready, wants 2 (0 to 4)", DEVICES: "16 on each of 2 nodes", CLASSES: "gp3"}
    said[CLAIM] = "Bound, fs-0123456789abcdef0, 1200 GiB"
    assert {id_: found[id_].text for id_ in said} == said
    for id_ in ("nodes/rest", f"devices/rest/{NEURON}", "queues/guarantees"):
        assert found[id_].status is Status.NOT_APPLICABLE, id_
    assert {each.status for each in judged(local=REAL).values()} == {Status.PASS, Status.NOT_APPLICABLE}


def test_missing_or_unread_object_does_not_pass():
    empty = judged(lambda made: made.clear())
    assert [each.id for each in empty.values() if each.status is Status.PASS] == ["server/version"]
    found = judged(stack=outputs(queues={}, queueNames=[], namespaces=[], sharedVolume=None))
    for id_ in ("queues/all", "namespaces/all", "storage/claims"):
        assert found[id_].status is Status.NOT_APPLICABLE
    found = judged(unread={"Queue": "queues is forbidden"})
    assert not [id_ for id_ in found if id_.startswith("queues/")]
    assert found[CLAIM].status is Status.PASS
    off = _both(_only("system"), _plugin(desiredNumberScheduled=0, numberReady=0))
    found = judged(_both(off, _without("Namespace", "neuron-monitor"), _without("DaemonSet", "neuron-monitor")))
    assert found[PLUGIN].status is Status.NOT_APPLICABLE
    assert found[MONITOR].status is Status.NOT_APPLICABLE
    found = judged(_both(*(_status("Node", name, conditions=[]) for name in ("trn0", "trn1"))))
    assert (found[DEVICES].status, found[DEVICES].text) == (Status.NOT_APPLICABLE, "no Ready node")


@pytest.mark.parametrize(("nodes", "status"), [(1, "fail"), (2, "pass"), (4, "pass"), (5, "fail")])
def test_a_group_with_ignore_desired_size_must_be_within_its_bounds(nodes, status):
    stack = outputs(nodeGroups=[group("ng1", NEURON, 8, None, minSize=2)])
    more = _both(_only("system"), lambda made: made["Node"].extend(_ng1(number) for number in range(nodes)))
    assert judged(more, stack=stack)[NG1].status == status
    resting = outputs(nodeGroups=[group("rest", NEURON, 16, 1)])
    assert judged(stack=resting)["nodes/rest"].status is Status.FAIL


def test_each_fix_is_shown_once_and_nested_guarantees_are_shares():
    def spoil(made):
        made["Node"].append(_ng1(2))
        for name, value in (("trn0", "4"), ("trn1", "4"), ("trn2", "0")):
            the(made, "Node", name)["status"]["allocatable"][EFA] = value
            the(made, "Node", name)["status"]["capacity"][EFA] = "4" if value == "4" else "8"

    found = judged(spoil)[INTERFACES]
    assert len(found.details) == 3
    assert found.fix.count("launch template has other") == 1
    assert found.fix.count("has stopped") == 1

    def nest(made):
        share = {"resource": {NEURON: "32"}}
        the(made, "Queue", "test")["spec"].update(guarantee=share, parent="root")
        made["Queue"].append(named("below", spec={"guarantee": share, "parent": "test"}))

    assert judged(nest)["queues/guarantees"].text == f"32 of 32 {NEURON}"


def test_simulated_volcano_is_not_checked_locally_and_fails_on_aws():
    def unopened(made):
        made["MutatingWebhookConfiguration"] = made["ValidatingWebhookConfiguration"] = []
        the(made, "Queue", "test").pop("status")

    def unchecked(found):
        return {each.id: each.text for each in found.values() if each.status is Status.NOT_CHECKED}

    ids = {*(f"volcano/{name}" for name in VOLCANO), WEBHOOKS, "queues/test"}
    lost = _both(unopened, *(_without("Deployment", name) for name in VOLCANO))
    here = judged(lost, local=LocalReport({"volcano": UNREACHABLE}))
    assert unchecked(here) == dict.fromkeys(ids, UNREACHABLE)
    assert _failing(here) == set()
    there = judged(lost)
    assert _failing(there) == ids
    assert unchecked(there) == {}
    simulated = unchecked(judged(unopened, local=LocalReport()))
    assert simulated.keys() >= ids
    assert simulated["volcano/volcano-scheduler"] == "vc-scheduler is not on PATH, so its pods are only simulated"
    assert simulated["queues/test"] == "vc-controller-manager is not on PATH, so nobody opens queues"


def test_driver_with_an_unready_pod_is_not_missing():
    pods = (_status("DaemonSet", f"{each}-csi-node", numberReady=4) for each in ("ebs", "fsx"))
    assert judged(_both(_without("CSINode", "trn1"), *pods))["storage/drivers"].status is Status.PASS
    missed = judged(_without("CSINode", "trn1"))["storage/drivers"]
    again = "kubectl -n kube-system rollout restart daemonset ebs-csi-node registers it again"
    assert (missed.status, again in missed.fix) == (Status.FAIL, True)


@pytest.mark.parametrize("addon", sorted(addon.name for addon in addon_records.installed()))
def test_missing_add_on_fails_with_a_diagnostic_command(addon):
    spoilt = _both(*(_without(each.kind, each.name) for each in addon_records.ADDONS[addon].workloads))
    found = [each for each in judged(spoilt).values() if each.status is Status.FAIL]
    assert {each.id.split("/")[1] for each in found} == {addon}
    assert all(f"--addon-name {addon}" in each.fix for each in found)


GPU_STACK = outputs(nodeGroups=[group("gpu", GPU, 4, 2)], rendezvous="etcd-server.torchx-etcd:2379")


def _gpu(made):
    for name in ("neuron-device-plugin", "neuron-monitor"):
        without(made, "DaemonSet", name)
    _only("system")(made)
    made["Node"] += [accelerated(f"p4d{number}", group("gpu", GPU, 4, 2)) for number in range(2)]
    made["CSINode"] = csi_nodes(made["Node"])
    made["Namespace"] += [named("dcgm-exporter")]
    charts = chart_workloads.charts()
    made["StatefulSet"] = [workload(charts["torchx-etcd"][0], 1)]
    made["DaemonSet"] += [workload(charts[chart][0], 2) for chart in ("nvidia-device-plugin", "dcgm-exporter")]
    the(made, "DaemonSet", "dcgm-server")["status"] |= {"desiredNumberScheduled": 2, "numberReady": 2}


def test_gpu_stack_is_checked_for_its_plugins_and_etcd():
    def gpu(spoil, stack=GPU_STACK, **rest):
        return judged(_both(_gpu, spoil), stack=stack, **rest)

    sound = gpu(_both())
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
    found = gpu(_both(), local=local)[operator]
    assert (found.status, found.text) == (Status.NOT_CHECKED, "its manifests are fetched from GitHub")
