"""Resource quotas that count custom kinds: whether Kubernetes knows the counts, and a request to count again.

Kubernetes looks for new kinds each 30 s, and counts the objects of a quota again each 5 minutes, or when its limits
change (kube-controller-manager, ``startResourceQuotaController`` and ``addQuota``). Until both have happened after a
kind is new, the API server refuses all objects of the kind in the quota's namespace: ``status unknown for quota``.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.kube.api import Api, ApiError, ObjectReference

COUNT = "count/"
"""Prefix of a limit of a quota, before the resource and its group: the name of a kind's definition."""

DEFINITION = "apiextensions.k8s.io/v1", "CustomResourceDefinition"

_PASSING = "count/again.trainium-eks"
"""A limit that is added and removed, of a kind that does not exist: the quota's other limits keep their owners."""


def unknown_counts(api: Api, quota: Mapping[str, Any]) -> list[str]:
    """Return a quota's limits on custom kinds that it does not count yet, such as ``count/jobs.batch.volcano.sh``.

    Limits on kinds without a definition in the cluster are left out: there is nothing to count or to refuse.
    """
    used = (quota.get("status") or {}).get("used") or {}
    missing = [
        each for each in (quota.get("spec") or {}).get("hard") or {} if each.startswith(COUNT) and each not in used
    ]
    return [each for each in missing if api.get(ObjectReference(*DEFINITION, "", each.removeprefix(COUNT)))]


def count_again(api: Api, quota: Mapping[str, Any]) -> None:
    """Have Kubernetes count the objects of a quota now, instead of within 5 minutes. A quota that is gone is fine."""
    metadata = quota["metadata"]
    path = api.kind("v1", "ResourceQuota").path(metadata["namespace"], metadata["name"])
    for amount in ("0", None):
        patch = {"spec": {"hard": {_PASSING: amount}}}
        try:
            api.request("PATCH", path, patch, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status != 404:
                raise
