"""Node groups and Karpenter's pools, with their autoscalers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types.rows import karpenter
from trainium_eks.plan.rules._facts import NodeGroup, interfaces
from trainium_eks.plan.rules._objects import object_name, releases
from trainium_eks.plan.rules._read import Json, at, given, items, listed, mapping, number, text, user_data
from trainium_eks.plan.rules._view import View

CLUSTER_AUTOSCALER = "cluster-autoscaler"
GROUP_TAG = "aws:autoscaling/tag:Tag"
EKS_DISCOVERY = "k8s.io/cluster-autoscaler/"
"""Prefix of the tags that EKS puts on every managed group, and that the chart looks for by default."""


def autoscalers(view: View) -> tuple[Resource, ...]:
    """Return the releases of Cluster Autoscaler."""
    return releases(view, CLUSTER_AUTOSCALER)


def served_groups(view: View) -> Iterator[NodeGroup]:
    """Yield the groups that carry every tag that a Cluster Autoscaler looks for."""
    wanted = [_discovery_keys(release) for release in autoscalers(view)]
    for group in view.node_groups if wanted else ():
        tags = group_tags(view, group)
        if any(all(key in tags or key.startswith(EKS_DISCOVERY) for key in keys) for keys in wanted):
            yield group


def group_tags(view: View, group: NodeGroup) -> Mapping[str, Json]:
    """Return the tags that the program puts on a group's Auto Scaling group."""
    tags = view.referring(group.resource, "autoscalingGroupName", GROUP_TAG)
    return {text(at(each.inputs, "tag.key")): at(each.inputs, "tag.value") for each in tags}


@dataclass(frozen=True)
class Pool:
    """One NodePool of Karpenter, with its EC2NodeClass."""

    resource: Resource
    node_class: Resource | None
    types: tuple[str, ...]
    """The instance types that it may start; empty when it names none."""
    maximum: int
    """Most nodes, of the smallest of its types; 0 without a limit."""

    @property
    def spec(self) -> Mapping[str, Json]:
        """The template of its nodes."""
        return mapping(at(self.resource.inputs, "spec.template.spec"))


def node_pools(view: View) -> Iterator[Pool]:
    """Yield Karpenter's pools."""
    classes = {object_name(each): each for each in view.of(karpenter.NODE_CLASS.token)}
    for each in view.of(karpenter.NODE_POOL.token):
        types = karpenter.instance_types(each)
        name = text(at(each.inputs, "spec.template.spec.nodeClassRef.name"))
        most = max((karpenter.most_nodes(each, type_, view.catalogue) for type_ in types), default=0)
        yield Pool(each, classes.get(name), types, most)


@dataclass(frozen=True)
class Supply:
    """The nodes of one instance type that a node group, or a NodePool of Karpenter, may have."""

    resource: Resource
    type_name: str
    """EC2 type, or empty when it cannot be seen."""
    instance: InstanceType | None
    """None for a type that the catalogue does not know."""
    most: float | None
    """Most nodes; None when it is unknown."""
    fewest: float | None
    subnets: Sequence[Json]
    """Ids of the subnets that its nodes start in; some may be known only during the update."""
    interface_types: tuple[str, ...]
    """``interface``, ``efa`` and ``efa-only``, one for each requested network interface."""
    boot: tuple[str, ...]
    bottlerocket: bool
    accelerated: bool
    """Whether the nodes carry Neuron devices or GPUs, by the catalogue, else by a group's AMI."""


def supplies(view: View) -> Iterator[Supply]:
    """Yield the possible nodes of each node group, and of each NodePool of Karpenter once for each of its types."""
    for group in view.node_groups:
        yield Supply(
            resource=group.resource,
            type_name=group.type_name,
            instance=group.instance,
            most=number(group.max_size),
            fewest=number(at(group.resource.inputs, "scalingConfig.minSize")),
            subnets=listed(group.resource.inputs.get("subnetIds")),
            interface_types=tuple(each.type for each in interfaces(group)),
            boot=user_data(group.settings.get("userData")) or (),
            bottlerocket=text(group.resource.inputs.get("amiType")).startswith("BOTTLEROCKET"),
            accelerated=group.accelerated,
        )
    for pool in node_pools(view):
        spec = mapping(at(pool.node_class.inputs, "spec")) if pool.node_class else {}
        for type_name in pool.types:
            instance = view.catalogue.get(type_name)
            yield Supply(
                resource=pool.resource,
                type_name=type_name,
                instance=instance,
                most=karpenter.most_nodes(pool.resource, type_name, view.catalogue),
                fewest=0,
                subnets=[at(each, "id") for each in items(spec.get("subnetSelectorTerms")) if given(at(each, "id"))],
                interface_types=tuple(text(at(each, "interfaceType")) for each in items(spec.get("networkInterfaces"))),
                boot=(text(spec.get("userData")),),
                bottlerocket=any(
                    text(at(each, "alias")).startswith("bottlerocket") for each in items(spec.get("amiSelectorTerms"))
                ),
                accelerated=instance is not None and instance.family != "cpu",
            )


def _discovery_keys(release: Resource) -> tuple[str, ...]:
    return tuple(text(each).partition("=")[0] for each in items(at(release.inputs, "values.autoDiscovery.tags")))
