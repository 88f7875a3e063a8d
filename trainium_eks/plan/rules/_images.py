"""Images of a program's charts and pods."""

from collections.abc import Iterator

from trainium_eks.model.catalogue.cached_images import places
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import at, mapping, text
from trainium_eks.plan.resource_types.rows.helm import chart_name
from trainium_eks.plan.rules._objects import pod_makers, walk
from trainium_eks.plan.subjects import RELEASE

CACHE_RULE = "aws:ecr/pullThroughCacheRule:PullThroughCacheRule"
REPOSITORY = "aws:ecr/repository:Repository"


def images(graph: Graph) -> Iterator[tuple[Resource, frozenset[str]]]:
    """Yield the releases and the objects with pods, each with its images that are known, without tags."""
    for release in graph.of_type(RELEASE):
        values = mapping(release.inputs.get("values"))
        found = {_untagged(text(each.get("image"))) for _, each in walk(values)}
        for image, path, own in places(chart_name(release)):
            found.add((_untagged(text(at(values, path))) or own) + image.removeprefix(own))
        yield release, frozenset(found - {""})
    for workload in pod_makers(graph):
        found = {_untagged(text(at(each, "image"))) for _, each in workload.containers}
        yield workload.resource, frozenset(found - {""})


def _untagged(image: str) -> str:
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
