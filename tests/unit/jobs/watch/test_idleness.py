"""Which accelerators are idle, by what the reader may read."""

from datetime import UTC, datetime

from recorded_scenes import GROUPS

from trainium_eks.jobs.watch.idleness import uses
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.idle.guard import SINCE

GROUP = GROUPS[0]
READY = "2026-11-22T05:00:00Z"
LATER = "2026-11-22T06:00:00Z"


def node(name, note=""):
    labels = {"eks.amazonaws.com/nodegroup": GROUP.eks_name}
    metadata = {"name": name, "labels": labels, "annotations": {SINCE: note} if note else {}}
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": READY}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}}


def pod(on, *, ended="", owner="Job"):
    state = {"terminated": {"finishedAt": ended}} if ended else {"running": {}}
    return {
        "metadata": {"name": "pod", "namespace": "training", "ownerReferences": [{"kind": owner}]},
        "spec": {"nodeName": on, "containers": []},
        "status": {"phase": "Succeeded" if ended else "Running", "containerStatuses": [{"state": state}]},
    }


def queue(name, devices):
    allocated = {"aws.amazon.com/neuron": str(devices), "cpu": "4"} if devices else {}
    return {"metadata": {"name": name}, "status": {"allocated": allocated}}


DAEMON = pod("b", owner="DaemonSet")


def test_idle_nodes_are_found_with_their_start():
    for nodes, read, idle, since in (
        # b has done nothing since it came.
        ([node("a"), node("b"), node("c")], {"pods": [pod("a"), DAEMON, pod("c", ended=LATER)]}, 2, READY),
        ([node("c")], {"pods": [pod("c", ended=LATER)]}, 1, LATER),
        # A researcher sees what the guard noted.
        ([node("a"), node("b", LATER)], {}, 1, LATER),
        # Without the guard the queues tell whether anything runs.
        ([node("a"), node("b")], {"queues": [queue("test", 0), queue("root", 16)]}, 2, None),
        ([node("a"), node("b")], {"queues": [queue("test", 16), queue("root", 16)]}, None, None),
        # A user without rights gets no report.
        *(([node("a")], {}, None, None), ([], {}, 0, None)),
    ):
        (found,) = uses([GROUP], nodes, **{"pods": None, "queues": None, "catalogue": CATALOGUE, **read})
        assert (found.nodes, found.idle) == (len(nodes), idle)
        assert found.since == (datetime.fromisoformat(since).astimezone(UTC) if since else None)
        price, told = CATALOGUE.find("trn1.32xlarge").hourly_usd, found.to_json()
        assert told["hourlyUsd"] == len(nodes) * price
        assert told["idleHourlyUsd"] == (None if idle is None else idle * price)
