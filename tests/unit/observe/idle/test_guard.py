"""What the guard reads from the cluster's objects, and the order of its two looks."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.observe.idle import guard
from trainium_eks.topology.api import ApiStatusError, Connection

GROUPS = {"trn1-a1b2": {"minimum": 0, "removes": True, "devices": ["aws.amazon.com/neuron"]}}
SETTINGS = {"groups": GROUPS, "warnSeconds": 180, "removeSeconds": 300}
LONG_AGO = "2026-01-01T00:00:00Z"


def node(name: str = "node-1", *, group: str = "trn1-a1b2", **annotations: str) -> dict[str, Any]:
    labels = {guard.GROUP_LABEL: group, "node.kubernetes.io/instance-type": "trn1.32xlarge"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": f"aws:///us-west-2d/i-{name}"}}


def pod(node_name: str | None, *, owner: str = "Job", gang: str = "", **spec: Any) -> dict[str, Any]:
    devices = {"requests": {"aws.amazon.com/neuron": "16"}}
    return {
        "metadata": {
            "namespace": "training",
            "name": "pod",
            "annotations": {"scheduling.k8s.io/group-name": gang} if gang else None,
            "ownerReferences": [{"kind": owner}],
        },
        "spec": {"nodeName": node_name, "containers": [{"resources": devices}], **spec},
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def pod_group(phase: str, resource: str = "aws.amazon.com/neuron", name: str = "bert") -> dict[str, Any]:
    metadata = {"namespace": "training", "name": name}
    return {"metadata": metadata, "spec": {"minResources": {resource: "32"}}, "status": {"phase": phase}}


class Cluster(Connection):
    """Objects by path; patches are merged in, as the API server does it for what the guard writes."""

    def __init__(self, nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None) -> None:
        self.objects = {"/api/v1/nodes": nodes, "/api/v1/pods": pods or []}
        self.events: list[Mapping[str, Any]] = []
        self.looks = 0

    def send(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        path = path.partition("?")[0]
        if method == "GET":
            self.looks += path == "/api/v1/nodes"
            if path not in self.objects:
                raise ApiStatusError(404, "no Volcano")
            return io.BytesIO(json.dumps({"items": self.objects[path], "metadata": {"resourceVersion": "7"}}).encode())
        if method == "POST":
            assert path == "/api/v1/namespaces/default/events"
            self.events.append(body)
            return io.BytesIO()
        (found,) = (each for each in self.objects["/api/v1/nodes"] if path.endswith("/" + each["metadata"]["name"]))
        for note, text in body["metadata"]["annotations"].items():
            found["metadata"]["annotations"].pop(note, None)
            if text is not None:
                found["metadata"]["annotations"][note] = text
        found["spec"] |= body.get("spec", {})
        return io.BytesIO()


def test_the_label_of_a_group_is_the_librarys() -> None:
    assert guard.GROUP_LABEL == GROUP_LABEL


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("found", "busy"),
    [
        (pod("node-1"), True),
        (pod("node-1", owner="DaemonSet"), False),
        (pod("node-1", owner="Node"), False),  # a static pod
        (pod("node-2"), False),
        (pod(None), False),
    ],
)
def test_whoever_runs_there_but_daemons_makes_a_node_busy(found: dict[str, Any], busy: bool) -> None:
    (read,) = guard.read([node()], [found])
    assert read.busy is busy
    assert (read.group, read.instance) == ("trn1-a1b2", "i-node-1")


def test_what_the_guard_noted_is_read_again() -> None:
    (read,) = guard.read([node(**{guard.SINCE: "1970-01-01T00:10:00Z", guard.WARNED: "true", guard.HELD: "true"})], [])
    assert (read.idle_since, read.warned, read.held) == (600.0, True, True)


@pytest.mark.parametrize(
    ("pods", "pod_groups", "waits"),
    [
        ([], [], False),
        ([], [pod_group("Pending")], True),
        ([], [pod_group("Inqueue")], True),
        ([], [pod_group("Unknown")], True),
        ([], [pod_group("Running")], False),
        ([], [pod_group("Pending", "requests.aws.amazon.com/neuron")], True),
        ([], [pod_group("Pending", "nvidia.com/gpu")], False),
        # Volcano left out the devices, which the job's template has as limits alone.
        ([], [pod_group("Pending", "cpu")], True),
        ([pod(None)], [], True),
        ([pod("node-1")], [], False),
        ([pod(None, nodeSelector={"node.kubernetes.io/instance-type": "trn1.32xlarge"})], [], True),
        # The gang's pods say where it may run, which its PodGroup does not.
        (
            [pod(None, gang="bert", nodeSelector={"node.kubernetes.io/instance-type": "trn2.48xlarge"})],
            [pod_group("Inqueue")],
            False,
        ),
    ],
)
def test_a_group_waits_for_gangs_that_could_use_it(
    pods: list[dict[str, Any]], pod_groups: list[dict[str, Any]], waits: bool
) -> None:
    assert guard.waiting(GROUPS, [node()], pods, pod_groups) == ({"trn1-a1b2"} if waits else set())


def test_an_idle_node_is_held_and_removed_in_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster([node(**{guard.SINCE: LONG_AGO}), node("node-2", group="other", **{guard.SINCE: LONG_AGO})])
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == "i-node-1\n"
    held, other = cluster.objects["/api/v1/nodes"]
    assert held["spec"]["unschedulable"] is True
    assert "unschedulable" not in other["spec"]
    (event,) = cluster.events
    assert event["reason"] == "IdleAccelerator"
    assert "node-1 (i-node-1) is removed: idle for" in capsys.readouterr().out


def test_a_pod_that_came_meanwhile_keeps_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([node(**{guard.SINCE: LONG_AGO})])
    monkeypatch.setattr(guard.time, "sleep", lambda _: cluster.objects["/api/v1/pods"].append(pod("node-1")))
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == ""
    (kept,) = cluster.objects["/api/v1/nodes"]
    assert kept["spec"]["unschedulable"] is None
    assert kept["metadata"]["annotations"] == {}


def test_a_removal_that_failed_is_tried_again(tmp_path: Path) -> None:
    cluster = Cluster([node(**{guard.SINCE: LONG_AGO, guard.WARNED: "true", guard.HELD: "true"})])
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == "i-node-1\n"


def test_where_nothing_is_due_it_looks_once_and_writes_no_list(tmp_path: Path) -> None:
    cluster = Cluster([node()], [pod("node-1")])
    guard.main(SETTINGS, cluster, tmp_path / "remove")
    assert cluster.looks == 1
    assert not (tmp_path / "remove").exists()
