"""Kubernetes objects as rules see them: pods inside workloads, Helm releases and their values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import LIST, OBJECT, Json, at, items, mapping, text
from trainium_eks.plan.resource_types.rows.helm import chart_name
from trainium_eks.plan.subjects import RELEASE

NAMESPACE = "kubernetes:core/v1:Namespace"
TENANT = "trainium-eks:index:TrainingNamespace"

POD_SPECS: Mapping[str, str] = {
    "kubernetes:core/v1:Pod": "spec",
    "kubernetes:apps/v1:DaemonSet": "spec.template.spec",
    "kubernetes:apps/v1:Deployment": "spec.template.spec",
    "kubernetes:apps/v1:ReplicaSet": "spec.template.spec",
    "kubernetes:apps/v1:StatefulSet": "spec.template.spec",
    "kubernetes:batch/v1:Job": "spec.template.spec",
    "kubernetes:batch/v1:CronJob": "spec.jobTemplate.spec.template.spec",
}
"""Kind that makes pods to the path of its pod's spec."""


@dataclass(frozen=True)
class PodMaker:
    """An object that makes pods."""

    resource: Resource
    path: str
    spec: Json

    @property
    def containers(self) -> Iterator[tuple[str, Json]]:
        """Path and content of each container, init containers too."""
        for kind in ("initContainers", "containers"):
            for index, each in enumerate(items(at(self.spec, kind))):
                yield f"{self.path}.{kind}[{index}]", each


def pod_makers(graph: Graph) -> Iterator[PodMaker]:
    """Yield every object of the program that makes pods. Objects of charts are not among them."""
    for type_, path in POD_SPECS.items():
        for resource in graph.of_type(type_):
            yield PodMaker(resource, path, at(resource.inputs, path))


def is_local(release: Resource) -> bool:
    """Return whether the chart is a directory, with content that is versioned with the program."""
    return text(release.inputs.get("chart")).startswith(("./", "../", "/"))


def releases(graph: Graph, *charts: str) -> tuple[Resource, ...]:
    """Return the Helm releases of these charts; of all charts when none are named."""
    return tuple(each for each in graph.of_type(RELEASE) if not charts or chart_name(each) in charts)


def object_name(resource: Resource) -> str:
    """Return an object's name in the cluster; its logical name when Pulumi makes one up."""
    return text(at(resource.inputs, "metadata.name")) or resource.name


def namespace(resource: Resource) -> str:
    """Return the namespace of an object or a release, ``default`` when it names none."""
    return text(at(resource.inputs, "metadata.namespace")) or text(resource.inputs.get("namespace")) or "default"


def is_tenant(graph: Graph, home: Resource) -> bool:
    """Return whether a Namespace is a team's: of a TrainingNamespace, or with a ResourceQuota."""
    if any(above.type == TENANT for above in graph.ancestors(home)):
        return True
    name = object_name(home)
    return any(
        namespace(each) == name for each in graph.cluster_objects(home).of_type("kubernetes:core/v1:ResourceQuota")
    )


def walk(value: Json, path: str = "") -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield every object inside a value, with its path, the value itself first."""
    if isinstance(value, OBJECT):
        yield path, mapping(value)
        for key, each in value.items():
            yield from walk(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, LIST) and not isinstance(value, str):
        for index, each in enumerate(value):
            yield from walk(each, f"{path}[{index}]")
