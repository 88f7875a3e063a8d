"""What a node says of the storage drivers on it: its CSINode, which the kubelet makes on EKS.

Schedulers ask it how many volumes of a driver a node takes. Volcano goes further: to a pod with a volume of a driver
that a node does not name it adds a request that no queue can meet, so the pod's job is never admitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.kube.api import Api, ObjectReference, in_parallel
from trainium_eks.local.nodes.node_pools import SIMULATED_POOL_LABEL, NodePool
from trainium_eks.model.catalogue.chart_workloads import EBS_DRIVER
from trainium_eks.model.catalogue.instances import InstanceType

# What most Nitro types attach in all: network interfaces, volumes and local disks (EC2 User Guide, "Amazon EBS volume
# limits"). Types of the seventh generation take more, which matters to nobody here: nothing is attached.
_ATTACHMENTS = 28

_API_VERSION = "storage.k8s.io/v1"
_KIND = "CSINode"


def apply(api: Api, pool: NodePool, nodes: Sequence[Mapping[str, Any]], drivers: Sequence[str]) -> int:
    """Makes each node's CSINode what it should be.

    It belongs to its node, and goes with it.

    Args:
        api: the API server.
        pool: the nodes' group.
        nodes: as they are on the API server.
        drivers: names of the CSI drivers that run on every node.

    Returns:
        How many were made, or made anew.
    """
    found = api.list(_API_VERSION, _KIND, labels=f"{SIMULATED_POOL_LABEL}={pool.key}")
    live = {each["metadata"]["name"]: each for each in found}
    wanted = [manifest(pool, node, drivers) for node in nodes]
    wrong = [each for each in wanted if not _is_as(live.get(each["metadata"]["name"]), each)]

    def make(each: Mapping[str, Any]) -> None:
        if each["metadata"]["name"] in live:
            # What a driver said cannot be changed, and the one of a node that was deleted is about to go.
            reference = ObjectReference(_API_VERSION, _KIND, "", each["metadata"]["name"])
            api.delete(reference, propagation="Background")
        api.create_or_apply(each)

    in_parallel(make, wrong)
    return len(wrong)


def manifest(pool: NodePool, node: Mapping[str, Any], drivers: Sequence[str]) -> dict[str, Any]:
    """One node's.

    Args:
        pool: its group.
        node: with its ``uid``.
        drivers: names of the CSI drivers on it.
    """
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": {"name": name, "labels": {SIMULATED_POOL_LABEL: pool.key}, "ownerReferences": [owner]},
        "spec": {"drivers": [_driver(driver, name, pool.instance) for driver in sorted(drivers)]},
    }


def volumes(instance: InstanceType) -> int:
    """How many EBS volumes can be attached to a running instance, as the driver reckons it: never none."""
    root = 1
    return max(_ATTACHMENTS - max(instance.efa_interfaces, 1) - instance.local_disks - root, 1)


def _driver(driver: str, node: str, instance: InstanceType) -> dict[str, Any]:
    if driver == EBS_DRIVER:
        return {
            "name": EBS_DRIVER,
            "nodeID": node.partition(".")[0],
            "topologyKeys": ["kubernetes.io/os", "topology.kubernetes.io/zone"],
            "allocatable": {"count": volumes(instance)},
        }
    # FSx' sets no limit. The API server answers with the null that is left out elsewhere.
    return {"name": driver, "nodeID": node, "topologyKeys": None}


def _is_as(live: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    if live is None:
        return False
    owners = {each["uid"] for each in live["metadata"].get("ownerReferences") or ()}
    spec = {"drivers": live["spec"].get("drivers") or []}
    return owners == {wanted["metadata"]["ownerReferences"][0]["uid"]} and bool(spec == wanted["spec"])
