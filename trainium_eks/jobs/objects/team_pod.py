"""Pods of a team that belong to no gang: they copy data, build images, serve models, show curves."""

from typing import Any

from trainium_eks.jobs.objects.identity import KIND_LABEL
from trainium_eks.model.catalogue import lustre
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.outputs import NamespaceOutput

Json = dict[str, Any]

CPU_POOL = "cpu"
NAME_LABEL = "app.kubernetes.io/name"


def labels(kind: str, name: str = "") -> dict[str, str]:
    """Return the labels of an object that ``trn`` makes."""
    return {KIND_LABEL: kind, "app.kubernetes.io/managed-by": "trn", **({NAME_LABEL: name} if name else {})}


def container_security() -> Json:
    """Return the security context of a container without rights."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod_spec(namespace: NamespaceOutput, container: Json, volumes: list[Json], **changed: Any) -> Json:
    """Return a pod's spec, on the CPU pool: without a token of the API server, as the user that owns the team's
    directory. No other may write there, and files written as root would belong to root."""
    user = namespace.training_user_id or lustre.DEFAULT_USER_ID
    as_user = {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user}
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": namespace.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {POOL_LABEL: CPU_POOL},
        "securityContext": {**as_user, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": volumes,
    }
    return {**spec, **changed}
