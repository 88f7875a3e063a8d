"""Placeholders for a chart's custom resource definitions while the chart is not available.

Only for the kinds that the stack itself creates, so that a real API server still checks its objects: but for
Karpenter's kinds the fields are the real ones, and a misspelt field is refused. The placeholders are removed before
Helm brings the chart's definitions.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.kube.api import Api, ObjectReference
from trainium_eks.local.changes import Change
from trainium_eks.local.objects.apply import Objects

LABEL = "trainium-eks/placeholder"
"""Label of every placeholder: ``true``."""
RELEASE_LABEL = "trainium-eks/placeholder-for"
"""Label with the release that would bring the real definition: ``<namespace>.<name>``."""

_API_VERSION = "apiextensions.k8s.io/v1"
_KIND = "CustomResourceDefinition"
Shape = Mapping[str, "Shape"] | list["Shape"] | tuple[str, ...] | str
"""A schema in short: an object by its fields (``!`` ends the name of a required one), a list, the possible texts, or
the name of a value in ``_VALUES``."""

_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_DURATION = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
_QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$"
_NUMBER_OR_TEXT = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_INTEGER = {"type": "integer", "format": "int32"}

_VALUES: Mapping[str, Mapping[str, Any]] = {
    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "boolean": {"type": "boolean"},
    "count": {**_INTEGER, "minimum": 0},
    "duration": {"type": "string", "pattern": _DURATION},
    "integer": _INTEGER,
    "name": {"type": "string", "maxLength": 253, "pattern": _DNS_NAME},
    "number or text": _NUMBER_OR_TEXT,
    "quantities": {"type": "object", "additionalProperties": {**_NUMBER_OR_TEXT, "pattern": _QUANTITY}},
    "text": {"type": "string"},
    "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    "weight": {**_INTEGER, "minimum": 1, "maximum": 65535, "default": 1},
}

_PLACES: Shape = {f"{when}DuringSchedulingIgnoredDuringExecution": ["text"] for when in ("required", "preferred")}
_QUEUE: Shape = {
    "affinity": {"nodeGroupAffinity": _PLACES, "nodeGroupAntiAffinity": _PLACES},
    **dict.fromkeys(("capability", "deserved"), "quantities"),
    "dequeueStrategy": ("fifo", "traverse"),
    "extendClusters": [{"name": "text", "weight": "integer", "capacity": "quantities"}],
    "guarantee": {"resource": "quantities"},
    "parent": "name",
    "priority": "count",
    "reclaimable": "boolean",
    "type": "text",
    "weight": "weight",
}
_QUEUE_STATUS: Shape = {
    "allocated": "quantities",
    "reservation": {"nodes": ["text"], "resource": "quantities"},
    "state": ("Open", "Closed", "Closing", "Unknown"),
    **dict.fromkeys(("completed", "inqueue", "pending", "running", "unknown"), "count"),
}
_RELABELLING: Shape = {
    "action": ("replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase"),
    **dict.fromkeys(("regex", "replacement", "separator", "targetLabel"), "text"),
    "modulus": "integer",
    "sourceLabels": ["text"],
}
_ENDPOINTS: Shape = [
    {
        "honorLabels": "boolean",
        **dict.fromkeys(("path", "port", "scheme"), "text"),
        **dict.fromkeys(("interval", "scrapeTimeout"), "duration"),
        **{f"{which}elabelings": [_RELABELLING] for which in ("r", "metricR")},
    }
]
_MONITOR: Mapping[str, Shape] = {
    "jobLabel": "text",
    "namespaceSelector": {"any": "boolean", "matchNames": ["text"]},
    "podTargetLabels": ["text"],
    "selector": {"matchLabels": "texts", "matchExpressions": [{"key": "text", "operator": "text", "values": ["text"]}]},
}
_POD_MONITOR: Shape = {
    **_MONITOR,
    **{f"{limited}Limit": "count" for limited in ("label", "labelNameLength", "labelValueLength", "sample")},
    "bodySizeLimit": "text",
    "podMetricsEndpoints": _ENDPOINTS,
}
_RULE: Shape = {
    **dict.fromkeys(("alert", "record"), "text"),
    **dict.fromkeys(("annotations", "labels"), "texts"),
    **dict.fromkeys(("for", "keep_firing_for"), "duration"),
    "expr!": "number or text",
}
_GROUP: Shape = {"interval": "duration", "labels": "texts", "limit": "integer", "name!": "text", "rules": [_RULE]}


def definitions(chart: str) -> list[dict[str, Any]]:
    """Return the placeholders for a chart, by its name; empty for most charts.

    Volcano's kind has the fields of chart 1.15, the Prometheus Operator's those of v0.93.1 for targets, labels and
    rules. Karpenter's definitions are hundreds of lines; its own chart has them.
    """
    match chart:
        case "volcano":
            names = "Queue", "q", "queue-v1beta1"
            return [_definition("scheduling.volcano.sh", "v1beta1", "Cluster", names, _QUEUE, _QUEUE_STATUS)]
        case "kube-prometheus-stack":
            kinds: dict[tuple[str, ...], Shape] = {
                ("PodMonitor", "pmon"): _POD_MONITOR,
                ("ServiceMonitor", "smon"): {**_MONITOR, "endpoints": _ENDPOINTS, "targetLabels": ["text"]},
                ("PrometheusRule", "promrule"): {"groups": [_GROUP]},
            }
            return [_definition("monitoring.coreos.com", "v1", "Namespaced", *each) for each in kinds.items()]
        case "karpenter":
            groups = {"karpenter.sh": ("NodePool", "np"), "karpenter.k8s.aws": ("EC2NodeClass", "ec2nc")}
            return [_definition(each, "v1", "Cluster", groups[each], "anything", "anything") for each in groups]
    return []


def apply(api: Api, objects: Objects, chart: str, release: str, *, timeout_seconds: float) -> list[str]:
    """Apply a chart's placeholders where no definition of that name exists.

    ``release`` is ``<namespace>.<name>`` of the release that would bring the chart. Return the names of the definitions
    that were made or changed.
    """
    changed = []
    for definition in definitions(chart):
        name = definition["metadata"]["name"]
        there = api.get(ObjectReference(_API_VERSION, _KIND, "", name))
        # A chart's definition outlives its release (`helm.sh/resource-policy: keep`), and is better.
        if there is not None and LABEL not in (there["metadata"].get("labels") or {}):
            continue
        definition["metadata"]["labels"] = {LABEL: "true", RELEASE_LABEL: release}
        if objects.apply(definition, timeout_seconds=timeout_seconds).change is not Change.SAME:
            changed.append(name)
    return changed


def remove(api: Api, objects: Objects, release: str, *, timeout_seconds: float) -> list[str]:
    """Remove the placeholders of a release, and with them every object of their kinds.

    Return the names of the definitions that were removed.
    """
    found = api.list(_API_VERSION, _KIND, labels=f"{LABEL}=true,{RELEASE_LABEL}={release}")
    names = [item["metadata"]["name"] for item in found]
    for name in names:
        objects.delete(ObjectReference(_API_VERSION, _KIND, "", name), timeout_seconds=timeout_seconds)
    return names


def _definition(
    group: str, version: str, scope: str, names: tuple[str, ...], spec: Shape, status: Shape | None = None
) -> dict[str, Any]:
    kind, *short = names
    singular = kind.lower()
    plural = f"{singular}es" if singular.endswith("s") else f"{singular}s"
    schema = _schema({"spec": spec} if status is None else {"spec": spec, "status": status})
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": short,
            },
            "scope": scope,
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _schema(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, str):
        return dict(_VALUES[shape])
    if isinstance(shape, tuple):
        return {"type": "string", "enum": [*shape]}
    if isinstance(shape, list):
        return {"type": "array", "items": _schema(shape[0])}
    made = {"type": "object", "properties": {name.removesuffix("!"): _schema(each) for name, each in shape.items()}}
    required = [name[:-1] for name in shape if name.endswith("!")]
    return {**made, "required": required} if required else made
