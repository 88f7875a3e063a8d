"""Node groups and Karpenter's pools, with their autoscalers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import Json, at, given, items, mapping, text
from trainium_eks.plan.resource_types.rows import karpenter
from trainium_eks.plan.rules._objects import object_name, releases
from trainium_eks.plan.subjects import NodeGroup

CLUSTER_AUTOSCALER = "cluster-autoscaler"
GROUP_TAG = "aws:autoscaling/tag:Tag"
EKS_DISCOVERY = "k8s.io/cluster-autoscaler/"
"""Prefix of the tags that EKS puts on every managed group, and that the chart looks for by default."""


def autoscalers(graph: Graph) -> tuple[Resource, ...]:
    """Return the releases of Cluster Autoscaler."""
    return releases(graph, CLUSTER_AUTOSCALER)


def served_groups(graph: Graph) -> Iterator[NodeGroup]:
    """Yield the groups that carry every tag that a Cluster Autoscaler looks for."""
    tags_of = (items(at(release.inputs, "values.autoDiscovery.tags")) for release in autoscalers(graph))
    wanted = [[text(each).partition("=")[0] for each in tags] for tags in tags_of]
    for group in graph.node_groups if wanted else ():
        tags = group_tags(graph, group)
        if any(all(key in tags or key.startswith(EKS_DISCOVERY) for key in keys) for keys in wanted):
            yield group


def group_tags(graph: Graph, group: NodeGroup) -> Mapping[str, Json]:
    """Return the tags that the program puts on a group's Auto Scaling group."""
    tags = graph.referring(group.resource, "autoscalingGroupName", GROUP_TAG)
    return {text(at(each.inputs, "tag.key")): at(each.inputs, "tag.value") for each in tags}


@dataclass(frozen=True)
class Pool:
    """One NodePool of Karpenter, with its EC2NodeClass; the attributes that a managed group has, too, mean the same."""

    resource: Resource
    node_class: Resource | None
    types: tuple[str, ...]
    """The instance types that it may start; empty when it names none."""
    instances: tuple[InstanceType, ...]
    """Those that the catalogue knows."""
    maximum: int
    """Most nodes, of the smallest of its types; 0 without a limit."""

    @property
    def spec(self) -> Mapping[str, Json]:
        """The template of its nodes."""
        return mapping(at(self.resource.inputs, "spec.template.spec"))

    @property
    def settings(self) -> Mapping[str, Json]:
        """The spec of its EC2NodeClass; empty without one."""
        return mapping(at(self.node_class.inputs, "spec")) if self.node_class else {}

    @property
    def subnets(self) -> Sequence[Json]:
        """Ids of the subnets that its nodes start in; some may be known only during the update."""
        return [at(each, "id") for each in items(self.settings.get("subnetSelectorTerms")) if given(at(each, "id"))]

    @property
    def scripts(self) -> tuple[str, ...]:
        """The user data."""
        return (text(self.settings.get("userData")),)

    @property
    def is_bottlerocket(self) -> bool:
        """Whether its nodes run Bottlerocket."""
        terms = items(self.settings.get("amiSelectorTerms"))
        return any(text(at(each, "alias")).startswith("bottlerocket") for each in terms)

    @property
    def accelerated(self) -> bool:
        """Whether it may start nodes with Neuron devices or GPUs."""
        return any(each.family != "cpu" for each in self.instances)


def node_pools(graph: Graph) -> Iterator[Pool]:
    """Yield Karpenter's pools."""
    classes = {object_name(each): each for each in graph.of_type(karpenter.NODE_CLASS.token)}
    for each in graph.of_type(karpenter.NODE_POOL.token):
        types = karpenter.instance_types(each)
        name = text(at(each.inputs, "spec.template.spec.nodeClassRef.name"))
        most = max((karpenter.most_nodes(each, type_, graph.catalogue) for type_ in types), default=0)
        known = tuple(graph.catalogue[type_] for type_ in types if type_ in graph.catalogue)
        yield Pool(each, classes.get(name), types, known, most)


def nodes_of(graph: Graph) -> Iterator[NodeGroup | Pool]:
    """Yield every managed node group, and every pool of Karpenter."""
    yield from graph.node_groups
    yield from node_pools(graph)
