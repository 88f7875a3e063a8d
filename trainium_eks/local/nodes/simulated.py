"""Simulated nodes on the API server. kwok replaces their kubelets."""

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from trainium_eks.kube.api import FIELD_MANAGER, Api, ObjectReference, in_parallel
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.nodes import csi_nodes
from trainium_eks.local.nodes.node_pools import SIMULATED_POOL_LABEL, NodePool, manifest
from trainium_eks.local.patience import Patience
from trainium_eks.model.catalogue.instances import FABRIC_UNTESTED
from trainium_eks.model.sizing.quantities import quantity

TIMEOUT_SECONDS = 300.0
NODES_IN_MESSAGE = 5
LEASES = "kube-node-lease"
"""Namespace of the leases that kubelets renew as a sign of life."""

_NOT_THE_GROUPS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", FABRIC_UNTESTED.key)
"""Keys of taints that the group does not hold its nodes to: Kubernetes' own, and the gate's, which EKS sets on new
nodes and a controller takes off."""


class Nodes:
    """The nodes of all groups. Safe to use from many threads, each with another group."""

    def __init__(self, api: Api, waiting: Callable[[str], None] = lambda _: None, drivers: Sequence[str] = ()) -> None:
        self._api = api
        self._waiting = waiting
        self._drivers = drivers

    def apply(self, pool: NodePool, timeout_seconds: float = TIMEOUT_SECONDS) -> ApplyResult:
        """Create, update and delete nodes of a group, and wait until they are Ready.

        New nodes come before old ones go. The nodes with the highest numbers are the surplus. Pods of a deleted node
        are deleted by Kubernetes within a minute.
        """
        live = {node["metadata"]["name"]: node for node in self._list(pool.key)}
        wanted = {each["metadata"]["name"]: each for each in _wanted(pool, live)}
        new = [each for name, each in wanted.items() if name not in live]
        changed = [each for name, each in wanted.items() if name in live and not _is_as(live[name], each)]
        surplus = sorted(live.keys() - wanted.keys())
        made = in_parallel(self._create, new)
        in_parallel(lambda each: self._update(live[each["metadata"]["name"]], each), changed)
        kept = [live[name] for name in wanted if name in live]
        registered = csi_nodes.apply(self._api, pool, [*kept, *made], self._drivers)
        if new or changed or not all(_is_ready(live[name]) for name in wanted):
            self._await_ready(pool.key, wanted, timeout_seconds)
        in_parallel(
            lambda name: self._api.delete(ObjectReference("v1", "Node", "", name), propagation="Background"), surplus
        )
        if not (new or changed or surplus or registered):
            return ApplyResult(Change.SAME)
        if not live:
            return ApplyResult(Change.CREATED)
        parts = (
            *((len(new), "added"), (len(changed), "changed"), (len(surplus), "removed")),
            (max(registered - len(new), 0), "told of storage drivers"),
        )
        note = "nodes: " + ", ".join(f"{count} {what}" for count, what in parts if count)
        return ApplyResult(Change.UPDATED, notes=(note,))

    def delete(self, key: str) -> None:
        """Delete all nodes of a group; no error without any."""
        for api_version, kind in (("v1", "Node"), ("storage.k8s.io/v1", "CSINode")):
            self._api.delete_all(api_version, kind, labels=f"{SIMULATED_POOL_LABEL}={key}")

    def _list(self, key: str) -> list[dict[str, Any]]:
        return self._api.list("v1", "Node", labels=f"{SIMULATED_POOL_LABEL}={key}")

    def _create(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Create a node that is Ready from the start: kwok would need as long for a thousand nodes as all other steps.

        The nodes' leases show later that kwok manages them.
        """
        return self._api.create_or_apply({**wanted, "status": {**wanted["status"], **_ready_from_now()}})

    def _update(self, live: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Patch the status first, so that the annotation with the manifest's digest is never ahead of it."""
        path = f"/api/v1/nodes/{wanted['metadata']['name']}"
        status = {
            "addresses": wanted["status"]["addresses"],
            **{
                field: {**dict.fromkeys(live["status"].get(field) or {}), **wanted["status"][field]}
                for field in ("capacity", "allocatable")
            },
        }
        # The list of taints is one field to the API server, with Kubernetes' taints in it, such as a cordoned node's.
        taints = [each for each in live["spec"].get("taints") or () if str(each.get("key")).startswith(_NOT_THE_GROUPS)]
        metadata = {
            "labels": {**dict.fromkeys(_labels_of_ours(live)), **wanted["metadata"]["labels"]},
            "annotations": wanted["metadata"]["annotations"],
        }
        body = {"metadata": metadata, "spec": {"taints": [*_lasting(wanted), *taints]}}
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        for where, patch in ((f"{path}/status", {"status": status}), (path, body)):
            self._api.request("PATCH", where, patch, query=query, content_type="application/merge-patch+json")

    def _await_ready(self, key: str, names: Collection[str], timeout_seconds: float) -> None:
        """Wait until all nodes are Ready and kwok renews their leases."""
        patience = Patience(timeout_seconds, self._waiting)
        while True:
            ready = {node["metadata"]["name"] for node in self._list(key) if _is_ready(node)}
            leases = self._api.list("coordination.k8s.io/v1", "Lease", namespace=LEASES)
            missing = sorted(set(names) - ready.intersection(lease["metadata"]["name"] for lease in leases))
            if not missing:
                return
            if not patience.wait(f"node group {key}: {len(names) - len(missing)} of {len(names)} nodes are Ready"):
                end = patience.describe_end(f"{len(missing)} of {len(names)} nodes were not Ready")
                named = ", ".join(missing[:NODES_IN_MESSAGE]) + (", ..." if len(missing) > NODES_IN_MESSAGE else "")
                raise LocalCloudError(
                    f"node group {key}: {end} ({named})\n  kwok makes simulated nodes Ready: "
                    "`trn doctor` says whether it runs, `trn local logs` what it said"
                )


def _wanted(pool: NodePool, live: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the group's desired nodes. Existing nodes keep their numbers, the lowest first; gaps are filled."""
    there = sorted(int(name.partition(".")[0][-6:]) for name in live if name.startswith(pool.stem))
    size = pool.size
    if pool.keep_size:
        # While a roll is under way both generations are there, and the larger one is the group's size.
        stems = [name[: len(pool.stem)] for name in live]
        size = max((stems.count(stem) for stem in set(stems)), default=0)
        size = min(max(size, pool.min_size), pool.max_size)
    kept = there[:size]
    free = (number for number in range(1, size + 1 + len(kept)) if number not in set(kept))
    numbers = sorted([*kept, *(next(free) for _ in range(size - len(kept)))])
    return [manifest(pool, number) for number in numbers]


def _is_as(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a node has the same manifest, and still has its labels, taints and resources."""
    labels, annotations = live["metadata"].get("labels") or {}, live["metadata"].get("annotations") or {}
    taints = {(each["key"], each.get("value") or "", each["effect"]) for each in live["spec"].get("taints") or ()}
    own = {(each["key"], each["value"], each["effect"]) for each in _lasting(wanted)}
    metadata = wanted["metadata"]
    return (
        annotations.items() >= metadata["annotations"].items()
        and labels.items() >= metadata["labels"].items()
        and taints >= own
        and all(
            quantity((live["status"].get(field) or {}).get(name)) == quantity(amount)
            for field in ("capacity", "allocatable")
            for name, amount in wanted["status"][field].items()
        )
    )


def _lasting(wanted: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the taints that a group's nodes keep."""
    return [each for each in wanted["spec"]["taints"] if each["key"] != FABRIC_UNTESTED.key]


def _labels_of_ours(live: Mapping[str, Any]) -> list[str]:
    """Return the keys of the labels set by this library, not by people or controllers."""
    owned = [
        entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
        for entry in live["metadata"].get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER and not entry.get("subresource")
    ]
    return [field.removeprefix("f:") for fields in owned for field in fields if field.startswith("f:")]


def _ready_from_now() -> dict[str, Any]:
    """Return the part of a status that a kubelet renews."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = (
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    )
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason, message in said
    ]
    return {"phase": "Running", "conditions": conditions}


def _is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node is Ready, and without Kubernetes' taint of nodes that are not ready yet."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    taints = node["spec"].get("taints") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) and not any(
        each["key"] == "node.kubernetes.io/not-ready" for each in taints
    )
