"""Definitions that stand in for a chart's own while the chart is not available.

Only for the kinds that the stack itself creates, so that its objects are still checked by a real API server: the
fields are the real ones, a misspelt one is refused. They go before Helm brings the chart's own definitions.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.local.changes import Change
from trainium_eks.local.objects.api import Api, ObjectReference
from trainium_eks.local.objects.apply import Objects

LABEL = "trainium-eks/placeholder"
"""On every placeholder: ``true``."""
RELEASE_LABEL = "trainium-eks/placeholder-for"
"""The release that would bring the real one: ``<namespace>.<name>``."""

_API_VERSION = "apiextensions.k8s.io/v1"
_KIND = "CustomResourceDefinition"
_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def definitions(chart: str) -> list[dict[str, Any]]:
    """The placeholders for a chart, by its name; none for most."""
    return [_queue()] if chart == "volcano" else []


def apply(api: Api, objects: Objects, chart: str, release: str, *, timeout_seconds: float) -> list[str]:
    """Applies a chart's placeholders where no definition of that name is there.

    Args:
        api: the local API server.
        objects: applies them there.
        chart: the chart's name.
        release: ``<namespace>.<name>`` of the release that would bring the chart.
        timeout_seconds: how long a definition may take until it is served.

    Returns:
        Names of the definitions that were made or changed.
    """
    changed = []
    for definition in definitions(chart):
        name = definition["metadata"]["name"]
        there = api.get(ObjectReference(_API_VERSION, _KIND, "", name))
        # A chart's own definition outlives its release (`helm.sh/resource-policy: keep`), and is better.
        if there is not None and LABEL not in (there["metadata"].get("labels") or {}):
            continue
        definition["metadata"]["labels"] = {LABEL: "true", RELEASE_LABEL: release}
        if objects.apply(definition, timeout_seconds=timeout_seconds).change is not Change.SAME:
            changed.append(name)
    return changed


def remove(api: Api, objects: Objects, release: str, *, timeout_seconds: float) -> list[str]:
    """Removes the placeholders of a release, and with them every object of their kinds.

    Args:
        api: the local API server.
        objects: deletes them there.
        release: ``<namespace>.<name>`` of the release.
        timeout_seconds: how long each may take to go.

    Returns:
        Names of the definitions that were removed.
    """
    found = api.list(_API_VERSION, _KIND, labels=f"{LABEL}=true,{RELEASE_LABEL}={release}")
    names = [item["metadata"]["name"] for item in found]
    for name in names:
        objects.delete(ObjectReference(_API_VERSION, _KIND, "", name), timeout_seconds=timeout_seconds)
    return names


def _queue() -> dict[str, Any]:
    """Volcano's Queue, with the fields that chart 1.15.0 defines."""
    affinity = _object(
        requiredDuringSchedulingIgnoredDuringExecution=_list({"type": "string"}),
        preferredDuringSchedulingIgnoredDuringExecution=_list({"type": "string"}),
    )
    spec = _object(
        affinity=_object(nodeGroupAffinity=affinity, nodeGroupAntiAffinity=affinity),
        capability=_quantities(),
        dequeueStrategy={"type": "string", "enum": ["fifo", "traverse"], "default": "traverse"},
        deserved=_quantities(),
        extendClusters=_list(_object(name={"type": "string"}, weight=_integer(), capacity=_quantities())),
        guarantee=_object(resource=_quantities()),
        parent={"type": "string", "maxLength": 253, "pattern": _DNS_NAME},
        priority=_integer(minimum=0),
        reclaimable={"type": "boolean"},
        type={"type": "string", "maxLength": 253},
        weight={**_integer(minimum=1), "maximum": 65535, "default": 1},
    )
    counts = {name: _integer(minimum=0) for name in ("completed", "inqueue", "pending", "running", "unknown")}
    status = _object(
        allocated=_quantities(),
        reservation=_object(nodes=_list({"type": "string"}), resource=_quantities()),
        state={"type": "string", "enum": ["Open", "Closed", "Closing", "Unknown"]},
        **counts,
    )
    return {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": {"name": "queues.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "names": {
                "kind": "Queue",
                "listKind": "QueueList",
                "plural": "queues",
                "singular": "queue",
                "shortNames": ["q", "queue-v1beta1"],
            },
            "scope": "Cluster",
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": _object(spec=spec, status=status)},
                }
            ],
        },
    }


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties)}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def _integer(minimum: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "format": "int32", **({} if minimum is None else {"minimum": minimum})}


def _quantities() -> dict[str, Any]:
    """Resource names to amounts: a number, or text as ``4Gi`` or ``500m``."""
    amount = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$",
    }
    return {"type": "object", "additionalProperties": amount}
