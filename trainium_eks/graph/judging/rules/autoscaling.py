"""R79-R82: what autoscalers may change, and what they must know of the nodes that they buy."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from trainium_eks.graph.judging.rules._autoscaled import autoscalers, group_tags, served_groups
from trainium_eks.graph.judging.rules._facts import QUEUE, NodeGroup
from trainium_eks.graph.judging.rules._objects import object_name
from trainium_eks.graph.judging.rules._read import (
    Json,
    actions,
    allows,
    at,
    given,
    listed,
    mapping,
    number,
    show,
    statements,
    text,
)
from trainium_eks.graph.judging.rules._rule import Finding, Rule, judged, rule
from trainium_eks.graph.judging.rules._view import View
from trainium_eks.model.node_templates import OPTIONS, TEMPLATE
from trainium_eks.model.quantities import quantity

SCALING_ACTIONS = (
    "autoscaling:DetachInstances",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "autoscaling:UpdateAutoScalingGroup",
    "ec2:CreateFleet",
    "ec2:DeleteLaunchTemplate",
    "ec2:RunInstances",
    "ec2:TerminateInstances",
)
"""What starts and ends nodes."""

NODES = re.compile(r"\*|.*:(instance|fleet|launch-template|autoScalingGroup)[/:].*")
"""Resources of a statement that are nodes, or what makes them; images and subnets are not."""

TAGGED = re.compile(r"(aws|autoscaling|ec2):(ResourceTag|RequestTag)/.+")


@rule("R79", "Let an autoscaler start and end only its own cluster's nodes", "high", "Cluster Autoscaler README, own")
def autoscaler_rights(view: View) -> Iterator[Finding]:
    """An account has more than one cluster, and more than clusters: what may change the size of a group, or run and
    terminate instances, does so under a condition on a tag, or on groups that it names."""
    for policy in view.of("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy"):
        found = statements(policy.inputs.get("policy")) or ()
        scaling = [(index, each) for index, each in enumerate(found) if allows(each) and _scales(each)]
        faults = [f"policy.Statement[{index}] {fault}" for index, each in scaling for fault in _unbound(each)]
        if scaling:
            yield from judged(policy, faults, "starts and ends nodes by a tag")


def _scales(statement: Mapping[str, Json]) -> bool:
    patterns = [re.escape(action).replace(r"\*", ".*") for action in actions(statement)]
    return any(re.fullmatch(pattern, each) for pattern in patterns for each in SCALING_ACTIONS)


def _unbound(statement: Mapping[str, Json]) -> Iterator[str]:
    keys = [key for operator in mapping(statement.get("Condition")).values() for key in mapping(operator)]
    nodes = [text(each) for each in listed(statement.get("Resource")) if NODES.fullmatch(text(each))]
    if "*" in "".join(nodes) and not any(TAGGED.fullmatch(key) for key in keys):
        named = ", ".join(sorted(action for action in actions(statement) if _scales({"Action": action})))
        yield f"allows {named} on {nodes[0]}, wanted a Condition on a tag of the cluster"


@rule(
    "R80",
    "Tell Cluster Autoscaler what an empty group has, and let it end no gang",
    "high",
    "autoscaler#597, #2947, Cluster Autoscaler README and FAQ",
)
def described_groups(view: View) -> Iterator[Finding]:
    """It knows of an empty group what its tags say, and of a Neuron node in use its CPU and memory only. So each
    accelerator group that it serves is tagged with its devices, EFA interfaces and taints; only empty nodes of it go;
    and it is no larger than the largest gang that a queue lets run, because pods that wait for their queue buy nodes
    too. The region comes by value: a pod does not reach the instance metadata."""
    for release in autoscalers(view):
        values = mapping(release.inputs.get("values"))
        faults = [] if given(values.get("awsRegion")) else ["values.awsRegion is unset, wanted the region"]
        path = "extraArgs.skip-nodes-with-custom-controller-pods"
        if text(at(values, path)) == "false":
            faults.append(f"values.{path} is false, wanted true: jobs of Volcano would be moved")
        yield from judged(release, faults, "knows its region and leaves jobs alone")
    for group in served_groups(view):
        if group.accelerated and group.instance is not None:
            faults = [*_tag_faults(view, group), *_size_faults(view, group)]
            yield from judged(group.resource, faults, "is described, bounded, and loses empty nodes only")


def _tag_faults(view: View, group: NodeGroup) -> Iterator[str]:
    tags = group_tags(view, group)
    wanted = {
        f"{TEMPLATE}/resources/{name}": str(count)
        for name, count in view.catalogue.device_resources(group.type_name).items()
    }
    wanted |= {
        f"{TEMPLATE}/taint/{each.key}": f"{each.value}:{each.effect}" for each in view.catalogue.taints(group.type_name)
    }
    wanted |= {f"{OPTIONS}/scaledownutilizationthreshold": "0", f"{OPTIONS}/ignoredaemonsetsutilization": "true"}
    for key, value in wanted.items():
        if str(tags.get(key)) != value:
            yield f"the Auto Scaling group's tag {key} is {show(tags.get(key))}, wanted {show(value)}"


def _size_faults(view: View, group: NodeGroup) -> Iterator[str]:
    most, nodes = number(group.max_size), _largest_gang(view, group)
    if most is not None and nodes is not None and most > nodes:
        yield f"scalingConfig.maxSize is {most:g}, wanted at most {nodes}, which is all that one queue may use"


def _largest_gang(view: View, group: NodeGroup) -> int | None:
    """Nodes that the queue with the most may use; None without a bound for every queue."""
    device, count = next(iter(view.catalogue.device_resources(group.type_name).items()))
    parents = {text(at(queue.inputs, "spec.parent")) for queue in view.of(QUEUE)}
    leaves = [queue for queue in view.of(QUEUE) if object_name(queue) not in parents]
    bounds = [quantity(mapping(at(queue.inputs, "spec.capability")).get(device)) for queue in leaves]
    known = [bound for bound in bounds if bound is not None]
    return int(max(known) // Decimal(count)) if known and len(known) == len(bounds) else None


RULES: tuple[Rule, ...] = (autoscaler_rights, described_groups)
