"""Helm: releases, made by pulumi-kubernetes."""

from collections.abc import Iterable

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.recording.backend import Answer, Call
from trainium_eks.graph.resource_types.kubernetes import ITS_NODES
from trainium_eks.graph.resource_types.resource_type import ALWAYS_DELETABLE, NO_DATA, ResourceType, Shown

RELEASE_SECONDS = 37.0
"""Median of published logs of charts with one workload."""
VOLCANO_SECONDS = 75.0
"""Chart, its admission job and ready replicas: 1 to 1.5 minutes."""


def chart_name(release: Resource) -> str:
    """The chart's name, without the repository or directory before it."""
    return str(release.inputs.get("chart", "")).rstrip("/").rsplit("/", 1)[-1]


def is_volcano(resource: Resource) -> bool:
    """Whether a resource is the Helm release of Volcano."""
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


def _seconds(release: Resource) -> float:
    return VOLCANO_SECONDS if is_volcano(release) else RELEASE_SECONDS


def _facts(_graph: Graph, release: Resource) -> Iterable[str]:
    yield " ".join(filter(None, (chart_name(release), str(release.inputs.get("version", "")))))


RELEASE = ResourceType(
    token="kubernetes:helm.sh/v3:Release",
    simulated=_release,
    named_by=("namespace", "name"),
    tagged=False,
    replaced_by=("name", "namespace"),
    seconds=_seconds,
    price=ITS_NODES,
    shown=Shown(_facts),
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="release",
)

TYPES = (RELEASE,)
