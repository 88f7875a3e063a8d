"""`trn doctor` on a real local cloud: faults as people, mistakes and broken parts make them, and named."""

import functools
import json
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from local_project import LocalProject, repository_cloud
from manifests import claim, deployment, gang, manifest, patch, path
from typer.testing import CliRunner
from waiting import until

from trainium_eks.cli.app import app
from trainium_eks.kube.api import Api
from trainium_eks.local.control_plane import processes
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.instances import EFA_RESOURCE, NEURON_RESOURCE
from trainium_eks.observe.faults.catalogue import BY_NAME

pytestmark = pytest.mark.slow

LAB = "lab"
"""A namespace beside the teams': no policy holds a fault back."""


@dataclass(frozen=True)
class Cloud:
    project: LocalProject
    api: Api

    def make(self, kind, name, namespace="", **fields):
        made = manifest(kind, name, namespace, **fields)
        self.api.create(made)
        return made

    def patch(self, kind, name, change, namespace="", below=""):
        patch(self.api, manifest(kind, name, namespace), change, below)

    def pod(self, name, script="", spec=None, namespace=LAB, **told):
        first = {"name": "c", "image": "local/python", "command": ["sh", "-c", script], **told}
        self.make("Pod", name, namespace, spec={"restartPolicy": "Never", "containers": [first], **(spec or {})})

    def deployment(self, name, **spec):
        pod = {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}], **spec}
        self.api.create(deployment(name, LAB, pod))

    def gang(self, name, nodes, resources=None, instance_type="", **pod):
        limits = {"limits": resources} if resources else {}
        container = {"name": "c", "image": "local/python", "command": ["sleep", "3600"], "resources": limits}
        where = {"nodeSelector": {"node.kubernetes.io/instance-type": instance_type}} if instance_type else {}
        self.api.create(gang(name, LAB, "test", nodes, {"containers": [container], **where, **pod}))

    def nodes(self, kind=""):
        found = self.api.list("v1", "Node")
        return sorted(
            each["metadata"]["name"]
            for each in found
            if each["metadata"]["labels"]["node.kubernetes.io/instance-type"].startswith(kind)
        )

    def findings(self, *arguments):
        where = ("--stack", "local", "--directory", str(self.project.path), "--json")
        done = CliRunner().invoke(app, ["doctor", *arguments, *where], catch_exceptions=False)
        found = [each for each in json.loads(done.stdout)["findings"] if each["status"] == "fail"]
        assert done.exit_code == (1 if found else 0), done.stderr
        return found


FAULTY_PODS = yaml.safe_load(Path(__file__).with_name("faulty_pods.yaml").read_text())


def not_shown(resource):
    change = {"status": {"allocatable": {resource: None}, "capacity": {resource: None}}}
    return lambda cloud: cloud.patch("Node", cloud.nodes("trn1")[0], change, below="/status")


def scaled_to_zero(name):
    return lambda cloud: cloud.patch("Deployment", name, {"spec": {"replicas": 0}}, "kube-system")


def pressed(cloud):
    name = cloud.nodes("m")[0]
    [node] = [each for each in cloud.api.list("v1", "Node") if each["metadata"]["name"] == name]
    conditions = [each for each in node["status"]["conditions"] if each["type"] != "DiskPressure"]
    pressure = {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure", "message": "disk is full"}
    ill = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NeuronHBMUncorrectableError"}
    cloud.patch("Node", name, {"status": {"conditions": [*conditions, pressure, ill]}}, below="/status")


HELD = {"finalizers": ["example.org/gone"]}


def stuck_namespace(cloud):
    stuck = cloud.make("Namespace", "stuck")
    cloud.make("ConfigMap", "kept", "stuck", metadata=HELD)
    cloud.api.request("DELETE", path(cloud.api, stuck))


def stuck_pod(cloud):
    container = {"name": "c", "image": "local/python", "command": ["sleep", "3600"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    stuck = cloud.make("Pod", "stuck", LAB, metadata=HELD, spec=spec)
    cloud.api.request("DELETE", path(cloud.api, stuck))


def evicted(cloud):
    spec = {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}], "nodeName": cloud.nodes("m")[-1]}
    pod = path(cloud.api, cloud.make("Pod", "evicted", LAB, spec=spec))
    until(lambda: cloud.api.request("GET", pod).get("status", {}).get("phase") == "Running", "it runs")
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
    cloud.patch("Pod", "evicted", {"status": status}, LAB, "/status")


def hook(cloud):
    selector = {"matchLabels": {"example.org/none": "true"}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    client = {"service": {"name": "nobody", "namespace": LAB, "path": "/"}}
    one = {"name": "nobody.example.org", "clientConfig": client, "rules": rules, "objectSelector": selector}
    one |= {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail"}
    cloud.make("ValidatingWebhookConfiguration", "nobody", webhooks=[one])


def closed_queue(cloud):
    [queue] = [each for each in cloud.api.list(QUEUE_API, "Queue") if each["metadata"]["name"] == "second"]
    target = {"apiVersion": QUEUE_API, "kind": "Queue", "name": "second", "controller": True}
    target |= {"uid": queue["metadata"]["uid"]}
    bus = "bus.volcano.sh/v1alpha1"
    cloud.make("Command", "close", LAB, api_version=bus, action="CloseQueue", target=target)


QUEUE_API = "scheduling.volcano.sh/v1beta1"
GREEDY = {"weight": 1, "deserved": {"cpu": "100000"}, "guarantee": {"resource": {"cpu": "100000"}}}

INJECTED = {
    # The cluster.
    "devices-not-shown": not_shown(NEURON_RESOURCE),
    "efa-not-shown": not_shown(EFA_RESOURCE),
    "node-cordoned": lambda cloud: cloud.patch("Node", cloud.nodes("m")[-1], {"spec": {"unschedulable": True}}),
    "node-pressure": pressed,
    "accelerator-unhealthy": lambda _: None,  # set with the pressure
    "dns-not-running": scaled_to_zero("coredns"),
    "workload-not-running": scaled_to_zero("metrics-server"),
    "webhook-not-answering": hook,
    "object-added": lambda cloud: cloud.make(
        "NetworkPolicy", "open", "training", spec={"podSelector": {}, "ingress": [{}]}
    ),
    "hypernodes-doubled": lambda cloud: cloud.make(
        "HyperNode",
        "by-hand",
        api_version="topology.volcano.sh/v1alpha1",
        spec={"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": cloud.nodes("trn1")[0]}}}]},
    ),
    "namespace-terminating": stuck_namespace,
    "service-account-missing": lambda cloud: cloud.deployment("nobody", serviceAccountName="nobody"),
    "priority-class-missing": lambda cloud: cloud.deployment("urgent", priorityClassName="nowhere"),
    "queue-closed": closed_queue,
    "queue-guarantees-too-large": lambda cloud: cloud.make("Queue", "greedy", spec=GREEDY),
    "claim-not-bound": lambda cloud: cloud.api.create(claim("waits", LAB, storageClassName="nowhere")),
    "storage-class-missing": lambda cloud: cloud.patch(
        "StorageClass", "gp3", {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}}
    ),
    "object-drifted": lambda cloud: cloud.api.request(
        "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/trainium-eks-training-pods"
    ),
    "driver-not-registered": lambda cloud: cloud.api.request(
        "DELETE", f"/apis/storage.k8s.io/v1/csinodes/{cloud.nodes('trn1')[0]}"
    ),
    "switch-unknown": lambda cloud: cloud.patch(
        "Node", cloud.nodes("trn1")[1], {"metadata": {"labels": {"topology.k8s.aws/network-node-layer-3": None}}}
    ),
    # Pods.
    **{name: functools.partial(Cloud.pod, name=name, **told) for name, told in FAULTY_PODS.items()},
    "pod-stuck-terminating": stuck_pod,
    "pod-evicted": evicted,
    # Gangs.
    "claim-missing": lambda cloud: cloud.gang(
        "unmounted", 1, volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    ),
    "pool-at-zero": lambda cloud: cloud.gang("waits-for-nodes", 1, {NEURON_RESOURCE: 16}, "trn1n.32xlarge"),
    "job-larger-than-pool": lambda cloud: cloud.gang("too-many", 40, {"cpu": "1m"}, "trn1.32xlarge"),
    "pod-too-large": lambda cloud: cloud.gang("too-much", 1, {"cpu": "1000"}, "trn1.32xlarge"),
    "queue-too-small": lambda cloud: cloud.gang("beyond", 9, {NEURON_RESOURCE: 16}),
}
"""Fault to what makes it; all stand beside each other."""


@pytest.fixture(scope="module")
def cloud(binaries, tmp_path_factory):
    """A stack with two queues, up and without a fault."""
    folder = tmp_path_factory.mktemp("doctor") / "project"
    with repository_cloud(folder, queues=[{"name": "test"}, {"name": "second"}]) as project:
        yield Cloud(project, Api.connect(folder / ".local" / "local" / "kubeconfig"))


@pytest.fixture(scope="module")
def found(cloud):
    """The findings by fault, once all injected faults are found, or their time has run out."""
    assert cloud.findings() == [], "a stack that has just come up has no fault"
    cloud.make("Namespace", LAB)
    for inject in INJECTED.values():
        inject(cloud)
    deadline, findings = time.monotonic() + LONGEST, cloud.findings()
    while time.monotonic() < deadline and not INJECTED.keys() <= {each["fault"] for each in findings}:
        time.sleep(3)
        findings = cloud.findings()
    by_fault = {}
    for each in findings:
        by_fault.setdefault(each["fault"], []).append(each)
    return by_fault


LONGEST = 150.0
"""Seconds after which every fault must show; some count as faults only after a minute."""


@pytest.mark.parametrize("fault", INJECTED)
def test_fault_is_reported_with_its_fix(fault, found):
    assert fault in found, sorted(found)
    for each in found[fault]:
        assert each["cause"] == BY_NAME[fault].cause
        start = LOCAL.get(fault, BY_NAME[fault].remedy.partition("{")[0])
        assert each["fix"].startswith(start) if start else each["fix"], each
        assert not re.search(r"\b(POD|NAMESPACE|QUEUE|CLAIM|LOOK|JOB)\b", each["fix"].replace("drain NODE", "")), each


LOCAL = {
    "devices-not-shown": "the nodes are simulated, and were changed",
    "efa-not-shown": "the nodes are simulated, and were changed",
    "dns-not-running": "kubectl -n kube-system scale deployment coredns --replicas=1",
    "workload-not-running": "kubectl -n kube-system scale deployment metrics-server --replicas=1",
    "storage-class-missing": "trn local up",
    **dict.fromkeys(("object-drifted", "driver-not-registered", "switch-unknown"), "trn local up"),
}
"""Start of remedies that the local cloud words in its own way."""


def test_healthy_cluster_has_no_other_fault(found):
    """A fault's consequences may be: a pod of the Deployment that DNS lost, a node that the cordon took out."""
    assert found.keys() - INJECTED.keys() <= {"hypernodes-outdated", "nodes-missing"}, found.keys()


def test_closed_queue_opens_with_the_suggested_command(cloud, found):
    [finding] = found["queue-closed"]
    command = re.search(r"echo '(.*)' \| kubectl create -f -$", finding["fix"])[1]
    cloud.api.request("POST", "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", yaml.safe_load(command))
    until(lambda: "queue-closed" not in {each["fault"] for each in cloud.findings()}, "it opens")


def test_doctor_of_one_job_reports_only_that_job(cloud, found):
    cloud.pod("probe", "echo 'no such precision: fp3' >&2; exit 78", namespace="training")
    until(lambda: cloud.findings("probe"), "it ends")
    [finding] = cloud.findings("probe")
    assert (finding["fault"], finding["subject"]) == ("job-refused", "pod probe of training")
    assert finding["fix"].startswith("trn logs probe shows the reason")


def test_unreachable_cluster_is_reported(cloud, found, tmp_path):
    config = yaml.safe_load((cloud.project.path / ".local" / "local" / "kubeconfig").read_text())
    [cluster], [user] = ([each["cluster"] for each in config["clusters"]], [each["user"] for each in config["users"]])
    server, authority = cluster["server"], dict(cluster)

    def asked():
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        [finding] = cloud.findings("--kubeconfig", str(file))
        assert finding["fix"] == BY_NAME[finding["fault"]].remedy
        return finding["fault"]

    cluster["server"] = "https://127.0.0.1:1"
    assert asked() == "api-unreachable"
    cluster["server"] = "https://no-such-host.invalid:6443"
    assert asked() == "api-name-unknown"
    cluster |= {"server": server, "certificate-authority-data": user["client-certificate-data"]}
    assert asked() == "certificate-ended"
    cluster |= authority
    user.clear()
    user["token"] = "not-a-token"
    assert asked() == "api-unauthorized"


def test_ended_volcano_process_is_reported(cloud, found):
    name = "vc-scheduler"
    [process] = [each for each in processes.running(Paths.of(cloud.project.path, "local")) if each.name == name]
    os.kill(process.pid, signal.SIGKILL)
    findings = until(lambda: [each for each in cloud.findings() if each["fault"] == "volcano-process-down"], "it ends")
    assert [(each["subject"], each["fix"]) for each in findings] == [
        ("volcano-scheduler", "trn local logs vc-scheduler; trn local up")
    ]


def test_every_ended_process_is_named_and_restarted_by_up(cloud, found):
    for each in processes.running(Paths.of(cloud.project.path, "local")):
        if each.name in ("kwok", "kube-scheduler"):
            os.kill(each.pid, signal.SIGKILL)
    ended = [each["subject"] for each in cloud.findings() if each["fault"] == "local-process-ended"]
    assert ended == ["kube-scheduler", "kwok"]
    drifted = {each["subject"]: each["text"] for each in cloud.findings() if each["fault"] == "object-drifted"}
    binding = "ValidatingAdmissionPolicyBinding trainium-eks-training-pods"
    assert drifted.pop(binding) == "does not exist"
    assert drifted.keys() == {"StorageClass gp3"}
    changed = {"data": {"volcano-scheduler.conf": "actions: allocate"}}
    cloud.patch("ConfigMap", "volcano-scheduler-configmap", changed, "volcano-system")
    assert "ConfigMap volcano-system/volcano-scheduler-configmap" in {each["subject"] for each in cloud.findings()}
    cloud.project.trn("local", "up")
    left = {each["fault"] for each in cloud.findings()}
    mended = {"object-drifted", "driver-not-registered", "switch-unknown", "local-process-ended"}
    assert left.isdisjoint({*mended, "volcano-process-down"})
    for each in processes.running(Paths.of(cloud.project.path, "local")):
        if each.name in ("etcd", "kube-apiserver"):
            os.kill(each.pid, signal.SIGKILL)
    assert {each["subject"] for each in cloud.findings()} == {"etcd", "kube-apiserver"}
