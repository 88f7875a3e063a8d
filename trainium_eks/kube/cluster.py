"""Cluster: a snapshot of a cluster's objects, read in parallel and checked later without further requests."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

Object = Mapping[str, Any]

KINDS: Mapping[str, str] = {
    "Node": "v1",
    "Namespace": "v1",
    "ServiceAccount": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "HyperNode": "topology.volcano.sh/v1alpha1",
}
"""Kinds that are read, with the API version. No pods: there may be tens of thousands, and their owners count them."""

GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS puts it on every node of a managed group; its value is the group's name in EKS."""


class ReadError(Exception):
    """The API server did not give the requested objects; the message has its words."""


class Reader(Protocol):
    """Protocol of a cluster's reader."""

    def version(self) -> str:
        """Return the server's version (``v1.35.4``); ReadError: the server does not answer, or refuses."""

    def list(self, api_version: str, kind: str) -> Sequence[Object] | None:
        """Return all objects of a kind in all namespaces; None when the server does not serve the kind. ReadError: it
        may not be read."""


class UnreadError(Exception):
    """A check needs objects that could not be read."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind} objects could not be read: {reason}")
        self.kind = kind


@dataclass(frozen=True)
class Cluster:
    """A snapshot."""

    version: str
    """The server's (``v1.35.4``)."""
    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Kind to its objects; a kind that the server does not serve has none."""
    unserved: frozenset[str] = frozenset()
    """Kinds that the server does not know, as before their definition is installed."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kind to why it could not be read."""

    def of(self, kind: str) -> tuple[Object, ...]:
        """Return all objects of a kind; Unread: they could not be read."""
        if kind in self.unread:
            raise UnreadError(kind, self.unread[kind])
        return self.objects.get(kind, ())

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return one object; None when it does not exist."""
        matching = (each for each in self.of(kind) if name_of(each) == name and namespace_of(each) == namespace)
        return next(matching, None)

    def nodes_of(self, eks_name: str) -> tuple[Object, ...]:
        """Return the nodes of a managed node group, by its name in EKS."""
        return tuple(each for each in self.of("Node") if labels_of(each).get(GROUP_LABEL) == eks_name)


def read(reader: Reader, kinds: Mapping[str, str] = KINDS) -> Cluster:
    """Return all objects that checks need, by one list call for each kind, all at the same time.

    ReadError: not even the version can be read. A kind that may not be read is reported by the checks that need it.
    """
    version = reader.version()
    objects: dict[str, tuple[Object, ...]] = {}
    unserved, unread = set(), {}
    with ThreadPoolExecutor(len(kinds)) as pool:
        asked = {kind: pool.submit(reader.list, api_version, kind) for kind, api_version in kinds.items()}
        for kind, answer in asked.items():
            try:
                found = answer.result()
            except ReadError as error:
                unread[kind] = str(error)
                continue
            objects[kind] = tuple(found or ())
            if found is None:
                unserved.add(kind)
    return Cluster(version, objects, frozenset(unserved), unread)


def name_of(each: Object) -> str:
    """Return an object's name."""
    return str(each["metadata"]["name"])


def namespace_of(each: Object) -> str:
    """Return an object's namespace; empty when it has none."""
    return str(each["metadata"].get("namespace", ""))


def labels_of(each: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return each["metadata"].get("labels") or {}


def condition(each: Object, type_: str) -> Mapping[str, Any]:
    """Return a condition of an object's status; empty when it has none of that type."""
    conditions = each.get("status", {}).get("conditions") or ()
    return next((found for found in conditions if found.get("type") == type_), {})


def is_ready(node: Object) -> bool:
    """Return whether a node takes pods as far as its kubelet is concerned."""
    return condition(node, "Ready").get("status") == "True"


def minor(version: str) -> tuple[int, int]:
    """Return the major and minor of ``v1.35.4`` or ``v1.35.4-eks-1a2b3c4``; ValueError for text that is no version."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"{version!r} is no version")
    return int(found.group(1)), int(found.group(2))
