"""The pods that keep a claim from being deleted."""

from collections.abc import Iterable, Mapping
from typing import Any

Pod = Mapping[str, Any]


def find_volume_users(pods: Iterable[Pod], claim_name: str) -> list[Pod]:
    """Return the pods of a namespace for which Kubernetes keeps one of its claims.

    A pod holds a claim from its binding to a node until its deletion: a finished pod does too (kube-controller-manager,
    ``pvcprotection``, ``podUsesPVC``).
    """
    return [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") and _mounts(pod, claim_name)]


def _mounts(pod: Pod, claim_name: str) -> bool:
    volumes = pod["spec"].get("volumes") or ()
    return any((each.get("persistentVolumeClaim") or {}).get("claimName") == claim_name for each in volumes)
