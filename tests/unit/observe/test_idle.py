"""What is done about idle nodes, what the guard reads from the cluster's objects, and the order of its two looks."""

import io
import json
import time
from dataclasses import replace

import pytest

from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.observe.idle import guard
from trainium_eks.observe.idle.decision import Limits, Node, steps
from trainium_eks.topology.api import ApiStatusError, Connection

NOW = 1_000_000.0
NODE = Node("node-1", "trn1", busy=False)


def since(minutes, **more):
    return replace(NODE, idle_since=NOW - minutes * 60, **more)


def done(*nodes, waiting="", minimum=0, remove_seconds=1200):
    limits = Limits(warn_seconds=600, remove_seconds=remove_seconds)
    found = steps(NOW, nodes, waiting={waiting}, minimum={"trn1": minimum} if minimum else {}, limits=limits)
    return [f"{step.action} {step.node.name}" for step in found]


CASES = {
    "a node that works is left alone": (replace(NODE, busy=True), []),
    "idleness is noted when it is seen first": (NODE, ["mark node-1"]),
    "work ends it": (since(30, busy=True), ["clear node-1"]),
    "nothing is said at first": (since(9), []),
    "then it is said": (since(10), ["warn node-1"]),
    "once": (since(11, warned=True), []),
    "then the node is held": (since(20, warned=True), ["hold node-1"]),
    "and removed at the next look": (since(21, warned=True, held=True), ["remove node-1"]),
    "a long gap between looks skips no warning": (since(60), ["warn node-1", "hold node-1"]),
    "a pod from before the hold keeps its node": (since(21, busy=True, held=True), ["release node-1", "clear node-1"]),
    "a hold whose node is no longer due ends": (since(5, held=True), ["release node-1"]),
}


@pytest.mark.parametrize(("node", "wanted"), CASES.values(), ids=CASES)
def test_guard_judges_one_node(node, wanted):
    assert done(node) == wanted


def test_waiting_gang_and_minimum_keep_nodes_longest_idle_end_first():
    idle, held = since(60, warned=True), since(60, name="node-2", warned=True, held=True)
    assert done(idle, held, waiting="trn1") == ["release node-2"]
    assert done(idle, held, waiting="another") == ["remove node-2", "hold node-1"]
    nodes = [since(20 + number, name=f"node-{number}", warned=True) for number in range(4)]
    assert done(*nodes, minimum=1) == ["hold node-3", "hold node-2", "hold node-1"]
    assert done(*nodes, minimum=4) == []
    assert done(*nodes, replace(NODE, name="busy", busy=True), minimum=4) == ["hold node-3"]
    assert done(since(6000), remove_seconds=None) == ["warn node-1"]


NEURON, TYPE = "aws.amazon.com/neuron", "node.kubernetes.io/instance-type"
GROUPS = {"trn1-a1b2": {"minimum": 0, "removes": True, "devices": [NEURON]}}
SETTINGS = {"groups": GROUPS, "warnSeconds": 180, "removeSeconds": 300}
LONG_AGO = "2026-01-01T00:00:00Z"


def node(name="node-1", *, group="trn1-a1b2", **annotations):
    labels = {GROUP_LABEL: group, TYPE: "trn1.32xlarge"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": f"aws:///us-west-2d/i-{name}"}}


def pod(node_name, *, owner="Job", gang="", type_="", resources=None):
    metadata = {"namespace": "training", "name": "pod", "ownerReferences": [{"kind": owner}]}
    metadata["annotations"] = {"scheduling.k8s.io/group-name": gang} if gang else None
    spec = {"nodeName": node_name, "containers": [{}, {"resources": resources or {"requests": {NEURON: "16"}}}]}
    spec |= {"nodeSelector": {TYPE: type_}} if type_ else {}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running" if node_name else "Pending"}}


def pod_group(phase, resource=NEURON):
    metadata = {"namespace": "training", "name": "bert"}
    return {"metadata": metadata, "spec": {"minResources": {resource: "32"}}, "status": {"phase": phase}}


class Cluster(Connection):
    """Objects by path; patches are merged in, as the API server does it for what the guard writes."""

    def __init__(self, nodes, pods=None):
        self.objects = {"/api/v1/nodes": nodes, "/api/v1/pods": pods or []}
        self.events, self.looks, self.missing = [], 0, 404

    def send(self, method, path, body=None, **_):
        path = path.partition("?")[0]
        if method == "GET":
            self.looks += path == "/api/v1/nodes"
            if path not in self.objects:
                raise ApiStatusError(self.missing, "no Volcano")
            return io.BytesIO(json.dumps({"items": self.objects[path], "metadata": {"resourceVersion": "7"}}).encode())
        if method == "POST":
            assert path == "/api/v1/namespaces/default/events"
            self.events.append(body)
            return io.BytesIO()
        (found,) = (each for each in self.objects["/api/v1/nodes"] if path.endswith("/" + each["metadata"]["name"]))
        notes = {**found["metadata"]["annotations"], **body["metadata"]["annotations"]}
        found["metadata"]["annotations"] = {note: text for note, text in notes.items() if text is not None}
        found["spec"] |= body.get("spec", {})
        return io.BytesIO()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.0)


def test_pod_other_than_a_daemon_makes_its_node_busy():
    assert guard.GROUP_LABEL == GROUP_LABEL
    idle = (pod("node-1", owner="DaemonSet"), pod("node-1", owner="Node"), pod("node-2"), pod(None))  # Node: static
    (read,) = guard.read([node()], idle)
    assert (read.busy, read.group, read.instance) == (False, "trn1-a1b2", "i-node-1")
    noted = node(**{guard.SINCE: "1970-01-01T00:10:00Z", guard.WARNED: "true", guard.HELD: "true"})
    (read,) = guard.read([noted], [pod("node-1")])
    assert (read.busy, read.idle_since, read.warned, read.held) == (True, 600.0, True, True)


@pytest.mark.parametrize(
    ("pods", "pod_groups", "waits"),
    [
        ([], [], False),
        *(([], [pod_group(phase)], phase != "Running") for phase in ("Pending", "Inqueue", "Unknown", "Running")),
        ([], [{**pod_group(""), "spec": {}, "status": None}], True),  # Volcano has not looked at it yet
        ([], [pod_group("Pending", f"requests.{NEURON}")], True),
        ([], [pod_group("Pending", "nvidia.com/gpu")], False),
        ([], [pod_group("Pending", "cpu")], True),  # Volcano leaves out devices that a template has as limits alone
        ([pod(None)], [], True),
        ([pod(None, resources={"limits": {NEURON: "16"}})], [], True),
        ([pod(None, resources={"requests": {"cpu": "1"}})], [], False),
        ([pod("node-1")], [], False),
        ([pod(None, type_="trn1.32xlarge")], [], True),
        ([pod(None, gang="bert", type_="trn2.48xlarge")], [pod_group("Inqueue")], False),  # its pods say where it runs
    ],
)
def test_a_group_waits_for_gangs_that_could_use_it(pods, pod_groups, waits):
    assert guard.waiting(GROUPS, [node()], pods, pod_groups) == ({"trn1-a1b2"} if waits else set())


def test_an_idle_node_is_held_and_removed_in_one_run(tmp_path, capsys):
    over = [{**pod("node-1"), "status": {"phase": phase}} for phase in ("Succeeded", "Failed")]
    cluster = Cluster([node(**{guard.SINCE: LONG_AGO}), node("node-2", group="other", **{guard.SINCE: LONG_AGO})], over)
    warned = {"trn1-a1b2": {**GROUPS["trn1-a1b2"], "removes": False}}
    guard.main({**SETTINGS, "groups": warned}, cluster, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    for _ in range(2):  # a removal that failed is tried again
        guard.main(SETTINGS, cluster, tmp_path / "remove")
        assert (tmp_path / "remove").read_text() == "i-node-1\n"
    held, other = cluster.objects["/api/v1/nodes"]
    assert held["spec"]["unschedulable"] is True
    assert "unschedulable" not in other["spec"]
    (event,) = cluster.events
    assert event.pop("message").startswith("trn1-a1b2: idle for ")
    assert event.pop("firstTimestamp") == event.pop("lastTimestamp")
    about = {"kind": "Node", "name": "node-1", "uid": "node-1"}  # the kubelet's events of a node have its name as uid
    told = {"reason": "IdleAccelerator", "type": "Warning", "source": {"component": "idle-guard"}, "count": 1}
    assert event == {"metadata": {"generateName": "node-1.", "namespace": "default"}, "involvedObject": about, **told}
    out = capsys.readouterr().out
    assert "warning: node-1 of trn1-a1b2 is idle for" in out
    assert "node-1 (i-node-1) is removed: idle for" in out


def test_new_pod_keeps_its_node(tmp_path, monkeypatch):
    four_minutes = guard._text(time.time() - 240)
    cluster = Cluster([node(**{guard.SINCE: LONG_AGO}), node("new"), node("warned", **{guard.SINCE: four_minutes})])
    monkeypatch.setattr(guard.time, "sleep", lambda _: cluster.objects["/api/v1/pods"].append(pod("node-1")))
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == ""
    kept, new, warned = cluster.objects["/api/v1/nodes"]
    assert kept["spec"]["unschedulable"] is None
    assert kept["metadata"]["annotations"] == {}
    assert guard.read([new], [])[0].idle_since == pytest.approx(time.time(), abs=60)
    assert (guard.WARNED in warned["metadata"]["annotations"], "unschedulable" in warned["spec"]) == (True, False)
    assert cluster.events[-1]["message"] == "trn1-a1b2: idle for 4 minutes"
    (tmp_path / "remove").unlink()
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert cluster.looks == 3, "where nothing is due it looks once and writes no list"
    assert not (tmp_path / "remove").exists()
    cluster.missing = 403
    with pytest.raises(ApiStatusError):  # gangs may wait that it cannot see
        guard.look(SETTINGS, cluster)
