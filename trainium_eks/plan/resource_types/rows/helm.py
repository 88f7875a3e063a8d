"""Helm: releases, made by pulumi-kubernetes."""

import re
from collections.abc import Iterable, Iterator

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import concerns
from trainium_eks.plan.resource_types.paths import leaves, value_at
from trainium_eks.plan.resource_types.resource_type import Concern, ResourceType, ShownType

RELEASE_SECONDS = 37.0
"""Median of published logs of charts with one workload."""
VOLCANO_SECONDS = 75.0
"""Chart, its admission job and ready replicas: 1 to 1.5 minutes."""


def chart_name(release: Resource) -> str:
    """Return the chart's name, without the repository or directory before it."""
    return str(release.inputs.get("chart", "")).rstrip("/").rsplit("/", 1)[-1]


def is_volcano(resource: Resource) -> bool:
    """Return whether a resource is the Helm release of Volcano."""
    return resource.type == RELEASE.token and chart_name(resource) == "volcano"


def _release(call: Call) -> Answer:
    name, namespace = call.name(), call.inputs.get("namespace") or "default"
    status = {
        "name": name,
        "namespace": namespace,
        "revision": 1,
        "status": "deployed",
        "chart": call.text("chart"),
        "version": call.text("version"),
        "appVersion": call.text("version"),
    }
    return f"{namespace}/{name}", {"name": name, "namespace": namespace, "status": status, "resourceNames": {}}


CLAIM_SIZES = re.compile(r"(\.requests\.storage|\.persistence\.size)$")
"""Paths of values from which charts take the size of a claimed volume."""


def _claims(_graph: Graph, release: Resource, _catalogue: Catalogue) -> Iterator[Line]:
    """Yield the volumes with a size in the values; volumes that a chart claims by default are billed by use."""
    for path, value in leaves("values", release.inputs.get("values")):
        size = re.fullmatch(r"(\d+)Gi", str(value)) if CLAIM_SIZES.search(path) else None
        if size:
            yield bill.claimed_volume(int(size[1]))


def _facts(_graph: Graph, release: Resource) -> Iterable[str]:
    yield " ".join(filter(None, (chart_name(release), str(release.inputs.get("version", "")))))


def scheduler_actions(release: Resource) -> str:
    """Return the actions of Volcano's scheduler, ``enqueue, allocate, backfill``; empty for another chart."""
    return _actions(value_at(release.inputs, _SCHEDULER)) if is_volcano(release) else ""


def _actions(config: object) -> str:
    found = re.search(r"^actions: *(.*)$", config, re.MULTILINE) if isinstance(config, str) else None
    return found[1].strip("\"'") if found else ""


_SCHEDULER = "values.custom.scheduler_config_override"


def _scheduled(before: object, after: object) -> bool | str:
    old, new = _actions(before), _actions(after)
    if "reclaim" in new and "reclaim" not in old:
        return "reclaim is not gang-aware: it ends single pods of several gangs"
    return f"actions: {old} → {new}" if old != new else before != after


def _sooner(before: object, after: object) -> bool:
    """Return whether Prometheus keeps fewer days (``15d``)."""
    old, new = (re.fullmatch(r"([0-9]+)d", str(each)) for each in (before, after))
    return old is None or new is None or int(new[1]) < int(old[1])


_COPIES = (
    *("custom.scheduler_replicas", "custom.controller_replicas", "custom.admission_replicas"),
    *("replicaCount", "replicas"),
)
"""Paths of values from which charts take their number of copies."""

UNDERSTOOD: tuple[str | Concern, ...] = (
    "timeout",
    "maxHistory",
    Concern("version", concerns.changed, "another version of the chart"),
    Concern("values.prometheus.prometheusSpec.retention", _sooner, "metrics are kept for a shorter time"),
    Concern(_SCHEDULER, _scheduled, "gangs are scheduled otherwise"),
    *(Concern(f"values.{path}", concerns.alone, "a single copy is left, or none") for path in _COPIES),
)
"""Understood inputs of a release: the values of charts that the config of a stack sets."""

RELEASE = ResourceType(
    token="kubernetes:helm.sh/v3:Release",
    simulated=_release,
    named_by=("namespace", "name"),
    tagged=False,
    replaced_by=("name", "namespace"),
    seconds=lambda release: VOLCANO_SECONDS if is_volcano(release) else RELEASE_SECONDS,
    price=_claims,
    shown=ShownType(_facts),
    local="release",
    understood=UNDERSTOOD,
    creation="new software in the cluster",
    deletion="what it runs goes; a chart's own definitions may go, with every object of theirs",
)
