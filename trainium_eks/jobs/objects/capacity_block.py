"""The end of a Capacity Block, which running trainings read from a file: an extended block keeps its id and gets a new
end (EC2 API, PurchaseCapacityBlockExtension). The file follows a ConfigMap of the job's namespace, within two
minutes."""

from typing import Any

DIRECTORY, KEY = "/etc/trn/capacity", "ends"
"""Place of the file in a container, and its name."""


def config_map(namespace: str, reservation: str, ends: str) -> dict[str, Any]:
    """Return the ConfigMap with the end (RFC 3339), one for each reservation."""
    metadata = {"name": name(reservation), "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: ends}}


def name(reservation: str) -> str:
    """Return the ConfigMap's name."""
    return f"capacity-block-{reservation}"


def add_volume(pod_spec: dict[str, Any], reservation: str) -> None:
    """Add the file to a pod; without the ConfigMap the end of its variable holds."""
    source = {"name": name(reservation), "optional": True}
    pod_spec["volumes"].append({"name": "capacity-block", "configMap": source})
    mount = {"name": "capacity-block", "mountPath": DIRECTORY, "readOnly": True}
    pod_spec["containers"][0]["volumeMounts"].append(mount)
