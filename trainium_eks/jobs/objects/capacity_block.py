"""The end of a Capacity Block, which running trainings read from a file: an extended block keeps its id and gets a new
end (EC2 API, PurchaseCapacityBlockExtension). The file follows a ConfigMap of the job's namespace, within two minutes:
the stack's, where its config has the end, which then is also that of the group's next block; else one of the jobs in
the block."""

from typing import Any

from trainium_eks.kube.types import ObjectReference
from trainium_eks.model.sizing.block_times import ENDS_CONFIG_MAP

DIRECTORY, KEY = "/etc/trn/capacity", "ends"
"""Place of the file in a container, and its name."""


def config_map(namespace: str, reservation: str, ends: str) -> dict[str, Any]:
    """Return the ConfigMap with the end (RFC 3339), one for each reservation."""
    metadata = {"name": name(reservation), "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: ends}}


def name(reservation: str) -> str:
    """Return the ConfigMap's name."""
    return f"capacity-block-{reservation}"


def kept_in(namespace: str, reservation: str, group: str) -> tuple[ObjectReference, str]:
    """Return the ConfigMap with the end, and its key: the stack's with ``group``, else the jobs'."""
    found = (ENDS_CONFIG_MAP, group) if group else (name(reservation), KEY)
    return ObjectReference("v1", "ConfigMap", namespace, found[0]), found[1]


def add_volume(pod_spec: dict[str, Any], reservation: str, group: str) -> None:
    """Add the file to a pod; without the ConfigMap the end of its variable holds."""
    source = {"name": kept_in("", reservation, group)[0].name, "optional": True}
    pod_spec["volumes"].append({"name": "capacity-block", "configMap": source})
    mount = {"name": "capacity-block", "mountPath": DIRECTORY, "readOnly": True}
    pod_spec["containers"][0]["volumeMounts"].append(mount)
