"""Who scales what: the node groups that a Cluster Autoscaler of the program serves, and Karpenter's pools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.judging.rules._facts import NodeGroup
from trainium_eks.graph.judging.rules._objects import object_name, releases
from trainium_eks.graph.judging.rules._read import Json, at, items, mapping, text
from trainium_eks.graph.judging.rules._view import View
from trainium_eks.graph.resource_types import karpenter

CLUSTER_AUTOSCALER = "cluster-autoscaler"
GROUP_TAG = "aws:autoscaling/tag:Tag"
EKS_DISCOVERY = "k8s.io/cluster-autoscaler/"
"""How the tags begin that EKS puts on every managed group, and by which the chart looks where it is told nothing."""


def autoscalers(view: View) -> tuple[Resource, ...]:
    """The releases of Cluster Autoscaler."""
    return releases(view, CLUSTER_AUTOSCALER)


def served_groups(view: View) -> Iterator[NodeGroup]:
    """The groups that carry every tag that a Cluster Autoscaler looks for."""
    wanted = [_discovery_keys(release) for release in autoscalers(view)]
    for group in view.node_groups if wanted else ():
        tags = group_tags(view, group)
        if any(all(key in tags or key.startswith(EKS_DISCOVERY) for key in keys) for keys in wanted):
            yield group


def group_tags(view: View, group: NodeGroup) -> Mapping[str, Json]:
    """The tags that the program puts on a group's Auto Scaling group."""
    tags = view.referring(group.resource, "autoscalingGroupName", GROUP_TAG)
    return {text(at(each.inputs, "tag.key")): at(each.inputs, "tag.value") for each in tags}


@dataclass(frozen=True)
class Pool:
    """One NodePool of Karpenter, with its EC2NodeClass."""

    resource: Resource
    node_class: Resource | None
    types: tuple[str, ...]
    """The instance types that it may start; empty where it names none."""
    maximum: int
    """Most nodes, of the smallest of its types; 0 without a limit."""

    @property
    def spec(self) -> Mapping[str, Json]:
        """What it says of each node."""
        return mapping(at(self.resource.inputs, "spec.template.spec"))


def node_pools(view: View) -> Iterator[Pool]:
    """Karpenter's pools."""
    classes = {object_name(each): each for each in view.of(karpenter.NODE_CLASS.token)}
    for each in view.of(karpenter.NODE_POOL.token):
        types = karpenter.instance_types(each)
        name = text(at(each.inputs, "spec.template.spec.nodeClassRef.name"))
        most = max((karpenter.most_nodes(each, type_, view.catalogue) for type_ in types), default=0)
        yield Pool(each, classes.get(name), types, most)


def _discovery_keys(release: Resource) -> tuple[str, ...]:
    return tuple(text(each).partition("=")[0] for each in items(at(release.inputs, "values.autoDiscovery.tags")))
