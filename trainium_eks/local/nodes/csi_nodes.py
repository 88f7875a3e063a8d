"""The CSINode of a node, with its storage drivers, which the kubelet makes on EKS.

Schedulers read from it how many volumes of a driver a node takes. Volcano goes further: for a pod with a volume of a
driver that a node lacks, it adds a request that no queue can meet, so the pod's job is never admitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.kube.api import Api, ObjectReference, in_parallel
from trainium_eks.local.nodes.node_pools import SIMULATED_POOL_LABEL, NodePool
from trainium_eks.model.catalogue.chart_workloads import EBS_DRIVER
from trainium_eks.model.catalogue.instances import InstanceType

# Limit of most Nitro types for network interfaces, volumes and local disks together (EC2 User Guide, "Amazon EBS volume
# limits"). Types of the seventh generation take more, which does not matter here: nothing is attached.
_ATTACHMENTS = 28

_API_VERSION = "storage.k8s.io/v1"
_KIND = "CSINode"


def apply(api: Api, pool: NodePool, nodes: Sequence[Mapping[str, Any]], drivers: Sequence[str]) -> int:
    """Create or replace each node's CSINode where it differs, and delete the group's others.

    It is not deleted with its node: a node that a person deletes comes back without a kubelet that would make it.

    Return the number of CSINodes created or replaced.
    """
    found = api.list(_API_VERSION, _KIND, labels=f"{SIMULATED_POOL_LABEL}={pool.key}")
    live = {each["metadata"]["name"]: each for each in found}
    wanted = [manifest(pool, node["metadata"]["name"], drivers) for node in nodes]
    wrong = [each for each in wanted if not _is_as(live.get(each["metadata"]["name"]), each)]

    def make(each: Mapping[str, Any]) -> None:
        if each["metadata"]["name"] in live:
            delete(each["metadata"]["name"])  # a driver's entry cannot be changed
        api.create_or_apply(each)

    def delete(name: str) -> None:
        api.delete(ObjectReference(_API_VERSION, _KIND, "", name), propagation="Background")

    in_parallel(make, wrong)
    in_parallel(delete, [*live.keys() - {each["metadata"]["name"] for each in wanted}])
    return len(wrong)


def manifest(pool: NodePool, name: str, drivers: Sequence[str]) -> dict[str, Any]:
    """Return the CSINode of a node."""
    return {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": {"name": name, "labels": {SIMULATED_POOL_LABEL: pool.key}},
        "spec": {"drivers": [_driver(driver, name, pool.instance) for driver in sorted(drivers)]},
    }


def volumes(instance: InstanceType) -> int:
    """Return how many EBS volumes can be attached to a running instance by the driver's own rule: at least one."""
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
    return live is not None and {"drivers": live["spec"].get("drivers") or []} == wanted["spec"]
