"""Karpenter's pools of nodes and the node classes of their nodes."""

from collections.abc import Iterable, Iterator

from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.model.validation.formats import SMALLEST_ROOT_GIB
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import at, items, number, text
from trainium_eks.plan.resource_types import concerns
from trainium_eks.plan.resource_types.resource_type import Concern, Holds, ShownType, Worth
from trainium_eks.plan.resource_types.rows.kubernetes import kind


def instance_types(pool: Resource) -> tuple[str, ...]:
    """Return the types that a pool's nodes may have; empty when it names none."""
    for each in items(at(pool.inputs, "spec.template.spec.requirements")):
        if at(each, "key") == INSTANCE_TYPE_LABEL and at(each, "operator") == "In":
            return tuple(map(str, items(at(each, "values"))))
    return ()


def most_nodes(pool: Resource, instance_type: str, catalogue: Catalogue) -> int:
    """Return the number of nodes of one type that a pool's limit of CPUs lets run."""
    vcpus = catalogue[instance_type].vcpus if instance_type in catalogue else 0
    cpus = int(number(at(pool.inputs, "spec.limits.cpu")) or 0)
    return cpus // vcpus if vcpus else 0


def _price(graph: Graph, pool: Resource, catalogue: Catalogue) -> Iterator[Line]:
    """Yield the price of a pool: no node at first, at most as many of the dearest type as the limit allows."""
    lines = [
        bill.node_group(name, 0, most_nodes(pool, name, catalogue), _root_gib(graph, pool), catalogue)
        for name in instance_types(pool)
    ]
    if lines:
        yield from max(lines, key=lambda each: sum(line.maximum_hourly_usd or 0.0 for line in each))


def _root_gib(graph: Graph, pool: Resource) -> int:
    wanted = at(pool.inputs, "spec.template.spec.nodeClassRef.name")
    for each in graph.of_type(NODE_CLASS.token):
        size = text(at(each.inputs, "spec.blockDeviceMappings[0].ebs.volumeSize")).removesuffix("Gi")
        if at(each.inputs, "metadata.name") == wanted and size.isdigit():
            return int(size)
    return SMALLEST_ROOT_GIB


def _facts(_graph: Graph, pool: Resource) -> Iterable[str]:
    yield f"0 to {at(pool.inputs, 'spec.limits.cpu') or 'any number of'} vCPUs"
    yield ", ".join(instance_types(pool))


DRIFTS = "Karpenter replaces the nodes that drift from it, in their turn"

NODE_CLASS = kind(
    "karpenter.k8s.aws/v1:EC2NodeClass",
    namespaced=False,
    understood=(Concern("spec", concerns.changed, DRIFTS),),
    creation="",
)

NODE_POOL = kind(
    "karpenter.sh/v1:NodePool",
    namespaced=False,
    price=_price,
    shown=ShownType(_facts),
    holds=Holds("what runs on its nodes", Worth.WORK),
    understood=(
        Concern("spec.limits", concerns.grows, "may start more nodes"),
        Concern("spec.template", concerns.changed, DRIFTS),
        Concern("spec.disruption", concerns.changed, "the time when it removes nodes changes"),
    ),
    creation="starts nodes by itself",
)
