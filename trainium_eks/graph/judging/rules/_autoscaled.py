"""Who scales what: the node groups that a Cluster Autoscaler of the program serves."""

from collections.abc import Iterator, Mapping

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.judging.rules._facts import NodeGroup
from trainium_eks.graph.judging.rules._objects import releases
from trainium_eks.graph.judging.rules._read import Json, at, items, text
from trainium_eks.graph.judging.rules._view import View

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


def _discovery_keys(release: Resource) -> tuple[str, ...]:
    return tuple(text(each).partition("=")[0] for each in items(at(release.inputs, "values.autoDiscovery.tags")))
