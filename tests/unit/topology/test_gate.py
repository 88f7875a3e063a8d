"""The gate of nodes: verdicts of tests, and the requests to an API server that follow from the state of nodes."""

import copy
import io
import json
import os
from pathlib import Path

import pytest

from trainium_eks.topology import gate
from trainium_eks.topology.api import ApiStatusError, Connection
from trainium_eks.topology.gate import PASSED, Gate, GateResult, judge

KEY = "trainium-eks/fabric-untested"
DEVICES = {"aws.amazon.com/neuron": "16"}
SETTINGS = {
    "namespace": "fabric-gate",
    "service": "fabric-test",
    "taint": {"key": KEY, "value": "true", "effect": "NoSchedule"},
    "poolLabel": "pool",
    "settleSeconds": 20,
    "pools": {"ng": {"devices": DEVICES, "template": {"spec": {"containers": [{"env": []}]}}}},
}
LONG_AGO = "2026-01-01T00:00:00Z"
FAULT = "rank 1 on node 1 (t-1) is gone"


def node(name, *, boot="b1", passed="", closed=True, **spec):
    ready = {"type": "Ready", "status": spec.pop("ready", "True"), "lastTransitionTime": spec.pop("since", LONG_AGO)}
    taints = [{"key": "aws.amazon.com/neuron", "effect": "NoSchedule"}]
    labels = {"pool": "ng"} | ({PASSED: passed} if passed else {})
    return {
        "metadata": {"name": name, "labels": labels, "resourceVersion": "7"},
        "spec": {"taints": [*taints, *([SETTINGS["taint"]] if closed else [])], **spec},
        "status": {"conditions": [ready], "nodeInfo": {"bootID": boot}, "allocatable": dict(DEVICES)},
    }


def report(*names, fault=None, detail=FAULT):
    findings = [{"check": "dead-rank", "ok": False, "detail": detail, "node": fault}] if detail else []
    return {"ok": not findings, "nodes": [{"name": name} for name in names], "findings": findings}


class Cluster(Connection):
    """An API server of nodes, Jobs and pods, as far as the gate uses one."""

    def __init__(self, *nodes):
        self.nodes = {each["metadata"]["name"]: copy.deepcopy(dict(each)) for each in nodes}
        self.jobs = {}
        self.pods = []
        self.logs = {}
        self.events = {}
        self.is_faster = False

    def send(self, method, path, body=None, **_):
        path, _, _ = path.partition("?")
        name = path.rpartition("/")[2]
        answer = {}
        if path.endswith("/log"):
            return io.BytesIO(self.logs[path.split("/")[-2]].encode())
        if path.endswith("/status"):
            self.nodes[path.split("/")[-2]]["status"]["conditions"] += body["status"]["conditions"]
        elif path.endswith("/events"):
            if body["metadata"]["name"] in self.events:
                raise ApiStatusError(409, "exists")
            self.events[body["metadata"]["name"]] = body["reason"]
        elif path.endswith("/jobs"):
            if method == "POST":
                self.jobs[body["metadata"]["name"]] = body
            answer = self._listed(self.jobs.values())
        elif "/jobs/" in path:
            del self.jobs[name]
        elif path.endswith("/pods"):
            answer = self._listed(self.pods)
        elif path.endswith("/nodes"):
            answer = self._listed(each for each in self.nodes.values() if each["metadata"]["labels"])
        elif method == "GET":
            answer = self.nodes[name]
        else:
            if self.is_faster or body["metadata"]["resourceVersion"] != self.nodes[name]["metadata"]["resourceVersion"]:
                raise ApiStatusError(409, "changed")
            labels = {**self.nodes[name]["metadata"]["labels"], **body["metadata"].get("labels", {})}
            self.nodes[name]["metadata"]["labels"] = {key: value for key, value in labels.items() if value}
            self.nodes[name]["spec"] |= body["spec"]
        return io.BytesIO(json.dumps(answer).encode())

    @staticmethod
    def _listed(items):
        return {"items": list(items), "metadata": {"resourceVersion": "9"}}

    def close(self):
        """Nothing is open."""

    def keep(self):
        """Let a gate that has just started look once."""
        made = Gate(lambda _: self, SETTINGS, Path(os.devnull))
        facts = gate.facts(SETTINGS)
        made.keep({name: found for name, each in self.nodes.items() if (found := facts(each))})

    def closed(self):
        return {name for name, each in self.nodes.items() if SETTINGS["taint"] in each["spec"]["taints"]}

    def end(self, *reports, seconds_ago=0.0):
        """End the one test, with these reports in the logs of its pods."""
        ((name, job),) = self.jobs.items()
        ended = {"type": "Complete", "status": "True", "lastTransitionTime": gate._now(-seconds_ago)}
        job["status"] = {"conditions": [ended]}
        tested = json.loads(job["metadata"]["annotations"][gate.TESTED])
        self.pods = [
            {"metadata": {"name": f"pod-{number}"}, "spec": {"hostname": f"t-{number}", "nodeName": place}}
            for number, place in enumerate(tested)
        ]
        lines = [f"[default0]:{json.dumps({'fabric': each}, separators=(',', ':'))}\n" for each in reports]
        self.logs = {f"pod-{number}": "noise\n" for number in range(len(tested))} | {"pod-0": "".join(lines)}
        return name


@pytest.mark.parametrize(
    ("reports", "verdict"),
    [
        ([report("t-0", "t-1", detail="")], GateResult(passed=("a", "b"))),
        ([report("t-0", "t-1", fault=1)], GateResult(failed={"b": FAULT})),
        # Without a node to name, no node is cordoned; nor where all fail alike, by the image or the network.
        ([report("t-0", "t-1")], GateResult(note=FAULT)),
        (
            [report("t-0", "t-1", fault=0), report("t-0", "t-1", fault=1)],
            GateResult(note=f"all 2 nodes fail alike: {FAULT}"),
        ),
        # A report of fewer nodes, or of another gang's, opens none.
        ([report("t-0", detail="")], GateResult()),
        ([report("t-0", "t-9", detail="")], GateResult()),
        ([], GateResult()),
    ],
)
def test_report_judges_each_node(reports, verdict):
    assert judge({"a": "b1", "b": "b1"}, {"t-0": "a", "t-1": "b"}, reports) == verdict


@pytest.mark.parametrize(
    ("changes", "is_closed"),
    [
        ({"passed": "b1"}, False),
        ({"passed": "b1", "closed": False}, False),
        ({"passed": "b0", "closed": False}, True),
        ({"closed": False}, True),
        ({"passed": "b1", "ready": "Unknown", "closed": False}, True),
        # A node that does not tell its boot could not be told from a rebooted one.
        ({"boot": "", "closed": False}, True),
    ],
)
def test_taint_follows_the_tested_boot(changes, is_closed):
    cluster = Cluster(node("a", **changes), {**node("cpu", closed=False), "metadata": {"name": "cpu", "labels": {}}})
    cluster.keep()
    assert cluster.closed() == ({"a"} if is_closed else set())
    # The taints of others stay.
    assert cluster.nodes["a"]["spec"]["taints"][0]["key"] == "aws.amazon.com/neuron"


def test_passing_nodes_of_the_tested_boot_open_by_one_request():
    cluster = Cluster(node("a"), node("b"))
    for _ in range(2):
        cluster.keep()
    assert len(cluster.jobs) == 1, "one test of a pool at a time"
    assert cluster.closed() == {"a", "b"}
    cluster.end(report("t-0", "t-1", detail=""))
    cluster.nodes["b"]["status"]["nodeInfo"]["bootID"] = "b2"
    cluster.keep()
    assert cluster.closed() == {"b"}
    assert cluster.nodes["a"]["metadata"]["labels"][PASSED] == "b1"
    assert PASSED not in cluster.nodes["b"]["metadata"]["labels"]
    cluster = Cluster(node("a", passed="b1"))
    cluster.is_faster = True
    cluster.keep()
    assert cluster.closed() == {"a"}


def test_failing_node_is_cordoned_and_the_others_are_tested_without_it():
    cluster = Cluster(node("a"), node("b"), node("c"))
    cluster.keep()
    name = cluster.end(report("t-0", "t-1", "t-2", fault=1))
    cluster.keep()
    assert [each for each in cluster.nodes if cluster.nodes[each]["spec"].get("unschedulable")] == ["b"]
    condition = cluster.nodes["b"]["status"]["conditions"][-1]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Failed", f"{name}: {FAULT}")
    assert cluster.events == {f"b.{name}": "FabricTestFailed"}
    assert cluster.closed() == {"a", "b", "c"}
    ((_, job),) = cluster.jobs.items()
    assert json.loads(job["metadata"]["annotations"][gate.TESTED]).keys() == {"a", "c"}


def test_inconclusive_test_is_reported_once_and_repeated_later():
    cluster = Cluster(node("a"), node("b"))
    cluster.keep()
    name = cluster.end()
    cluster.pods[0]["status"] = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}
    for _ in range(2):
        cluster.keep()
        assert [*cluster.jobs] == [name]
    assert set(cluster.events.values()) == {"FabricTestUnclear"}
    cluster.end(seconds_ago=gate.RETRY_SECONDS + 1)
    cluster.keep()
    assert "status" not in cluster.jobs[name], "a new one"
    assert cluster.closed() == {"a", "b"}


@pytest.mark.parametrize(
    ("changes", "tested"),
    [
        ({}, {"a", "b"}),
        # A pool rests until no node has just joined; nodes that are held, away or at work are left alone.
        ({"since": "2100-01-01T00:00:00Z"}, set()),
        ({"unschedulable": True}, {"a"}),
        ({"ready": "False"}, {"a"}),
        # A single node has an open one as its partner, for the network between nodes.
        ({"passed": "b1", "closed": False}, {"a", "b"}),
    ],
)
def test_closed_nodes_are_tested_together(changes, tested):
    cluster = Cluster(node("a"), node("b", **changes), node("busy"))
    limits = {"resources": {"limits": DEVICES}}
    cluster.pods = [
        {"spec": {"nodeName": name, "containers": [limits]}, "status": {"phase": phase}}
        for name, phase in (("busy", "Running"), ("a", "Succeeded"))
    ]
    cluster.keep()
    found = [json.loads(each["metadata"]["annotations"][gate.TESTED]).keys() for each in cluster.jobs.values()]
    assert found == ([tested] if tested else [])
    for name, job in cluster.jobs.items():
        assert job["spec"]["completions"] == job["spec"]["parallelism"] == len(tested)
        spec = job["spec"]["template"]["spec"]
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fields = [each for term in required["nodeSelectorTerms"] for each in term["matchFields"]]
        assert [each["values"] for each in fields] == [[each] for each in sorted(tested)]
        env = {each["name"]: each["value"] for each in spec["containers"][0]["env"]}
        assert env == {"TRN_JOB": name, "GATE_NODES": str(len(tested)), "GATE_HOST": f"{name}-0.fabric-test"}
