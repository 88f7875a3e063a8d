"""Which accelerators are idle, by what the reader may read."""

from datetime import UTC, datetime

import pytest
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


def use(nodes, **read):
    given = {"pods": None, "queues": None, "catalogue": CATALOGUE, **read}
    (found,) = uses([GROUP], nodes, **given)
    return found


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def test_who_reads_all_pods_sees_each_idle_node():
    found = use([node("a"), node("b"), node("c")], pods=[pod("a"), pod("b", owner="DaemonSet"), pod("c", ended=LATER)])
    assert (found.nodes, found.idle) == (3, 2)
    assert found.since == at(READY), "b has done nothing since it came"
    price = CATALOGUE.find("trn1.32xlarge").hourly_usd
    assert price is not None
    assert (found.idle_hourly_usd, found.hourly_usd) == (2 * price, 3 * price)
    assert use([node("c")], pods=[pod("c", ended=LATER)]).since == at(LATER)


def test_a_researcher_sees_what_the_guard_noted():
    found = use([node("a"), node("b", LATER)])
    assert (found.idle, found.since) == (1, at(LATER))


@pytest.mark.parametrize(("devices", "idle"), [(0, 2), (16, None)])
def test_without_the_guard_the_queues_tell_whether_anything_runs(devices, idle):
    found = use([node("a"), node("b")], queues=[queue("test", devices), queue("root", 16)])
    assert (found.idle, found.since) == (idle, None)


def test_who_may_read_nothing_is_told_nothing():
    assert use([node("a")]).idle is None
    assert use([]).idle == 0
