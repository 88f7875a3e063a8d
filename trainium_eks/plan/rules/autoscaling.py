"""R79, R81, R82 and R90: rights of autoscalers, and facts and limits of the nodes that they buy."""

import re
from collections.abc import Iterator, Mapping

from trainium_eks.model.catalogue.instance_data import NO_DEVICES_IN_EC2
from trainium_eks.model.config.karpenter import EBS_CLUSTER_TAG
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import (
    Json,
    actions,
    allows,
    at,
    differs,
    given,
    items,
    listed,
    mapping,
    matches,
    missing,
    show,
    statements,
    text,
    true,
)
from trainium_eks.plan.resource_types.rows.karpenter import NODE_CLASS
from trainium_eks.plan.rules._autoscaled import Pool, node_pools, served_groups
from trainium_eks.plan.rules._objects import releases
from trainium_eks.plan.rules._rule import judged, rule

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

NODES = re.compile(r"\*|.*:(instance|fleet|launch-template|autoScalingGroup)[/:].*")
"""Resources of a statement that are nodes, or make nodes; images and subnets do not match."""

TAGGED = re.compile(r"(aws|autoscaling|ec2):(ResourceTag|RequestTag)/.+")


@rule("R79", "Let an autoscaler start and end only its own cluster's nodes", "high", "Cluster Autoscaler README, own")
def autoscaler_rights(graph: Graph) -> Iterator[Finding]:
    """An account holds other clusters, and other instances: a statement that may change the size of a group, or run and
    terminate instances, has a condition on a tag, or names its groups."""
    for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy"):
        found = statements(policy.inputs.get("policy")) or ()
        scaling = [(index, each) for index, each in enumerate(found) if allows(each) and _scales(each)]
        faults = [f"policy.Statement[{index}] {fault}" for index, each in scaling for fault in _unbound(each)]
        if scaling:
            yield from judged(policy, faults, "starts and ends nodes by a tag")


def _scales(statement: Mapping[str, Json]) -> bool:
    return any(matches(action, each) for action in actions(statement) for each in SCALING_ACTIONS)


def _unbound(statement: Mapping[str, Json]) -> Iterator[str]:
    keys = [key for operator in mapping(statement.get("Condition")).values() for key in mapping(operator)]
    nodes = [text(each) for each in listed(statement.get("Resource")) if NODES.fullmatch(text(each))]
    if "*" in "".join(nodes) and not any(TAGGED.fullmatch(key) for key in keys):
        named = ", ".join(sorted(action for action in actions(statement) if _scales({"Action": action})))
        yield f"allows {named} on {nodes[0]}, wanted a Condition on a tag of the cluster"


@rule("R81", "Let one autoscaler serve a pod", "high", "Karpenter, migrating from Cluster Autoscaler; own")
def one_autoscaler(graph: Graph) -> Iterator[Finding]:
    """Two autoscalers that see the same waiting pod both buy a node for it. A NodePool without a taint serves every pod
    without a selector, as does each CPU group that Cluster Autoscaler serves; and a NodePool of an accelerator type
    starts nodes for gangs for which a user is about to scale the node group of that type."""
    served_cpu = [group for group in served_groups(graph) if not group.accelerated]
    owners = {group.type_name: group.resource.name for group in graph.accelerator_groups}
    for pool in node_pools(graph):
        faults = [
            f"spec.template.spec.requirements has {name}, which {owners[name]} has too, wanted one of the two"
            for name in pool.types
            if name in owners
        ]
        if served_cpu and not items(pool.spec.get("taints")):
            other = served_cpu[0].resource.name
            faults.append(f"it has no taint, and Cluster Autoscaler serves {other}: wanted one of the two")
        yield from judged(pool.resource, faults, "no other autoscaler serves its pods")


@rule(
    "R82",
    "Hold Karpenter's nodes to what other nodes are held to",
    "high",
    "CKV_AWS_79, CKV_AWS_341, Karpenter best practices, own",
)
def karpenter_nodes(graph: Graph) -> Iterator[Finding]:
    """Karpenter's nodes have no launch template of the program, so that no other rule sees them. Their metadata service
    answers one hop away and by token; their volumes are encrypted, in production with a customer key; their image is
    pinned; none has a public address. A pool has a limit. Accelerator nodes carry their taint, go only when they are
    empty and never for their age, and EC2 reports their devices: Karpenter knows no others. It hears of
    interruptions."""
    for release in releases(graph, "karpenter"):
        told = given(at(release.inputs, "values.settings.interruptionQueue"))
        faults = [] if told else ["values.settings.interruptionQueue is unset, wanted the queue of interruptions"]
        yield from judged(release, faults, "hears of interruptions")
    for pool in node_pools(graph):
        yield from judged(pool.resource, _pool_faults(graph, pool), "is bounded, and loses no node in use")
    for node_class in graph.of_type(NODE_CLASS.token):
        yield from judged(node_class, _class_faults(graph, mapping(node_class.inputs.get("spec"))), "as other nodes")


@rule(
    "R90",
    "Let EBS volumes attach to Karpenter's nodes",
    "high",
    "AmazonEBSCSIDriverEKSClusterScopedPolicy",
    follows_ids=True,
)
def attachable_nodes(graph: Graph) -> Iterator[Finding]:
    """The EBS driver's role attaches a volume only to an instance with a tag of its cluster. EKS tags the nodes of
    managed groups; nodes of an EC2NodeClass have the tags of its `spec.tags`, and without the tag a pod with a claim
    waits for its volume for ever."""
    names = [plane.name for plane in graph.control_planes if plane.name]
    for node_class in graph.of_type(NODE_CLASS.token) if graph.addons("aws-ebs-csi-driver") else ():
        found = mapping(at(node_class.inputs, "spec.tags")).get(EBS_CLUSTER_TAG)
        good = found in names if names else given(found)
        wanted = show(names[0]) if names else "the cluster's name"
        faults = [] if good else [f"spec.tags has {EBS_CLUSTER_TAG} {show(found)}, wanted {wanted}"]
        yield from judged(node_class, faults, "its nodes are the cluster's to the EBS driver")


def _pool_faults(graph: Graph, pool: Pool) -> Iterator[str]:
    inputs = pool.resource.inputs
    yield from missing(inputs, "spec.limits", "a limit, such as {cpu: 64}")
    if pool.node_class is None:
        yield "spec.template.spec.nodeClassRef names no EC2NodeClass of this program, whose nodes are unseen"
    accelerated = [name for name in pool.types if name in graph.catalogue and graph.catalogue.taints(name)]
    if not accelerated:
        return
    taints = {(at(each, "key"), at(each, "effect")) for each in items(pool.spec.get("taints"))}
    for name in accelerated:
        lacking = [each.key for each in graph.catalogue.taints(name) if (each.key, each.effect) not in taints]
        if lacking:
            yield f"spec.template.spec.taints lacks {', '.join(lacking)}, wanted it for {name}"
        if name in NO_DEVICES_IN_EC2:
            yield f"spec.template.spec.requirements has {name}, of which EC2 reports no devices, wanted a node group"
    yield from differs(inputs, "spec.disruption.consolidationPolicy", "WhenEmpty")
    yield from differs(inputs, "spec.template.spec.expireAfter", "Never")
    grace = pool.spec.get("terminationGracePeriod")
    if given(grace):
        yield f"spec.template.spec.terminationGracePeriod is {show(grace)}, wanted unset: drifted nodes in use would go"


def _class_faults(graph: Graph, spec: Mapping[str, Json]) -> Iterator[str]:
    if given(spec.get("metadataOptions")):
        yield from differs({"spec": spec}, "spec.metadataOptions.httpTokens", "required")
        yield from differs({"spec": spec}, "spec.metadataOptions.httpPutResponseHopLimit", 1)
    for index, disk in enumerate(items(spec.get("blockDeviceMappings")) or [{}]):
        path = f"spec.blockDeviceMappings[{index}].ebs"
        if not true(at(disk, "ebs.encrypted")):
            yield f"{path}.encrypted is {show(at(disk, 'ebs.encrypted'))}, wanted true"
        if graph.production and not given(at(disk, "ebs.kmsKeyID")):
            yield f"{path}.kmsKeyID is unset, wanted a KMS key in production"
    for term in items(spec.get("amiSelectorTerms")) or [{}]:
        alias, id_ = text(at(term, "alias")), at(term, "id")
        if not given(id_) and (not alias or alias.endswith("@latest")):
            yield f"spec.amiSelectorTerms has {show(term)}, wanted a release (al2023@v20260930) or an id"
    if spec.get("associatePublicIPAddress") is not False:
        yield "spec.associatePublicIPAddress is not false, wanted false"
