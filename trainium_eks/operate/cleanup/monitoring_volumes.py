"""Volumes of the monitoring's claims, deleted before a destroy deletes their CSI driver: Helm leaves a StatefulSet's
claims, and with their namespace they go seconds before the driver does, which then deletes no volume."""

import time
from collections.abc import Callable
from typing import Any

from trainium_eks.kube.api import Api, NoSuchKindError, ObjectReference
from trainium_eks.model.config.namespaces import MONITORING

SECONDS = 180.0
"""Time for pods to end, and for their volumes to be detached and deleted; seconds to a minute as a rule."""

USERS = (
    ("monitoring.coreos.com/v1", "Prometheus"),
    ("monitoring.coreos.com/v1", "Alertmanager"),
    ("apps/v1", "Deployment"),
)
"""Objects whose pods hold claims there, and which are deleted with the stack."""


def delete_claims(api: Api, sleep: Callable[[float], object] = time.sleep) -> list[str]:
    """Delete the monitoring's pods and claims; return the names of the volumes that are there after :data:`SECONDS`.
    Volumes with the reclaim policy Retain are kept, with their claims."""
    volumes = _volumes(api)
    if not volumes:
        return []
    for version, kind in USERS:
        for name in _names(api, version, kind):
            api.delete(ObjectReference(version, kind, MONITORING, name))
    for volume in volumes:
        api.delete(ObjectReference("v1", "PersistentVolumeClaim", MONITORING, volume["spec"]["claimRef"]["name"]))
    for _ in range(int(SECONDS / 5)):
        if not (volumes := _volumes(api)):
            break
        sleep(5)
    return [str(each["metadata"]["name"]) for each in volumes]


def _names(api: Api, version: str, kind: str) -> list[str]:
    try:
        return [str(each["metadata"]["name"]) for each in api.list(version, kind, namespace=MONITORING)]
    except NoSuchKindError:
        return []


def _volumes(api: Api) -> list[dict[str, Any]]:
    return [
        each
        for each in api.list("v1", "PersistentVolume")
        if (each["spec"].get("claimRef") or {}).get("namespace") == MONITORING
        and each["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    ]
