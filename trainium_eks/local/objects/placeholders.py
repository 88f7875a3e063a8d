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
_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def definitions(chart: str) -> list[dict[str, Any]]:
    """Return the placeholders for a chart, by its name; empty for most charts."""
    if chart == "volcano":
        return [_queue()]
    if chart == "kube-prometheus-stack":
        return [_pod_monitor(), _service_monitor(), _prometheus_rule()]
    if chart == "karpenter":
        return [_open("karpenter.sh", "NodePool", "np"), _open("karpenter.k8s.aws", "EC2NodeClass", "ec2nc")]
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


def _queue() -> dict[str, Any]:
    """Return Volcano's Queue, with the fields that chart 1.15 defines."""
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
    schema = _object(spec=spec, status=status)
    return _definition("scheduling.volcano.sh", "v1beta1", "Queue", "Cluster", schema, "q", "queue-v1beta1")


_SCRAPE_LIMITS = ("labelLimit", "labelNameLengthLimit", "labelValueLengthLimit", "sampleLimit")


def _pod_monitor() -> dict[str, Any]:
    """Return the Prometheus Operator's PodMonitor (v0.93.1), with the fields for targets and for labels."""
    limits = {name: _integer(minimum=0) for name in _SCRAPE_LIMITS}
    spec = _object(
        **_WHO,
        **limits,
        bodySizeLimit=_TEXT,
        podMetricsEndpoints=_list(_endpoint()),
        podTargetLabels=_list(_TEXT),
    )
    return _definition(_MONITORING, "v1", "PodMonitor", "Namespaced", _object(spec=spec), "pmon")


def _service_monitor() -> dict[str, Any]:
    """Return the counterpart for the endpoints of services."""
    spec = _object(**_WHO, endpoints=_list(_endpoint()), targetLabels=_list(_TEXT), podTargetLabels=_list(_TEXT))
    return _definition(_MONITORING, "v1", "ServiceMonitor", "Namespaced", _object(spec=spec), "smon")


def _prometheus_rule() -> dict[str, Any]:
    """Return the Prometheus Operator's PrometheusRule (v0.93.1), without the webhook that checks PromQL."""
    duration = {"type": "string", "pattern": _DURATION}
    rule = {
        **_object(
            alert=_TEXT,
            annotations=_TEXTS,
            expr={"anyOf": [{"type": "integer"}, _TEXT], "x-kubernetes-int-or-string": True},
            keep_firing_for=duration,
            labels=_TEXTS,
            record=_TEXT,
            **{"for": duration},
        ),
        "required": ["expr"],
    }
    group = _object(interval=duration, labels=_TEXTS, limit=_integer(), name=_TEXT, rules=_list(rule))
    spec = _object(groups=_list({**group, "required": ["name"]}))
    return _definition(_MONITORING, "v1", "PrometheusRule", "Namespaced", _object(spec=spec), "promrule")


def _endpoint() -> dict[str, Any]:
    duration = {"type": "string", "pattern": _DURATION}
    relabelling = _object(
        action={
            "type": "string",
            "enum": ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase"],
        },
        modulus=_integer(),
        regex=_TEXT,
        replacement=_TEXT,
        separator=_TEXT,
        sourceLabels=_list(_TEXT),
        targetLabel=_TEXT,
    )
    return _object(
        honorLabels={"type": "boolean"},
        interval=duration,
        metricRelabelings=_list(relabelling),
        path=_TEXT,
        port=_TEXT,
        relabelings=_list(relabelling),
        scheme=_TEXT,
        scrapeTimeout=duration,
    )


def _definition(group: str, version: str, kind: str, scope: str, schema: dict[str, Any], *short: str) -> dict[str, Any]:
    singular = kind.lower()
    plural = f"{singular}es" if singular.endswith("s") else f"{singular}s"
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
                "shortNames": [*short],
            },
            "scope": scope,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _open(group: str, kind: str, short: str) -> dict[str, Any]:
    """Return a cluster-wide kind with unchecked fields.

    Karpenter's definitions are hundreds of lines; its own chart has them.
    """
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _definition(group, "v1", kind, "Cluster", _object(spec=anything, status=anything), short)


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties)}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def _integer(minimum: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "format": "int32", **({} if minimum is None else {"minimum": minimum})}


def _quantities() -> dict[str, Any]:
    """Return a schema of resource names to amounts: a number, or text as ``4Gi`` or ``500m``."""
    amount = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$",
    }
    return {"type": "object", "additionalProperties": amount}


_MONITORING = "monitoring.coreos.com"
_DURATION = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_WHO: dict[str, Any] = {
    "jobLabel": _TEXT,
    "namespaceSelector": _object(any={"type": "boolean"}, matchNames=_list(_TEXT)),
    "selector": _object(
        matchLabels=_TEXTS,
        matchExpressions=_list(_object(key=_TEXT, operator=_TEXT, values=_list(_TEXT))),
    ),
}
