"""R95-R99: settings that a cluster of more than a hundred nodes needs."""

from collections.abc import Iterator

from trainium_eks.model.catalogue.cached_images import UPSTREAMS
from trainium_eks.model.finding import Finding
from trainium_eks.model.sizing import addresses
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import at, document, given, mapping, number, show, text, true
from trainium_eks.plan.rules._autoscaled import node_pools
from trainium_eks.plan.rules._images import CACHE_RULE, REPOSITORY, images
from trainium_eks.plan.rules._rule import judged, rule

LARGE = 100
"""Nodes up to which EKS' own defaults were found enough: two replicas of CoreDNS, repair without bounds."""

PLANNED = 300
"""Nodes beyond which AWS asks for a plan of the control plane (EKS best practices, scalability)."""

NODES_PER_DNS_REPLICA = 16
"""EKS runs one replica of CoreDNS for so many nodes, or for 256 vCPUs (EKS user guide, CoreDNS autoscaling)."""

REPAIRED = 5
"""Nodes up to which a group's broken nodes are always repaired (EKS user guide, node repair)."""


def most_nodes(graph: Graph) -> int:
    """Return the nodes of all groups and pools at their largest."""
    sizes = [number(group.max_size) for group in graph.node_groups] + [pool.maximum for pool in node_pools(graph)]
    return int(sum(size or 0 for size in sizes))


@rule(
    "R95",
    "Provision the control plane of more than 300 nodes",
    "medium",
    "EKS best practices scalability, EKS provisioned control plane",
)
def control_plane_tier(graph: Graph) -> Iterator[Finding]:
    """EKS scales a control plane after the load, and gangs of hundreds of nodes start at once: AWS asks for a plan
    beyond 300 nodes. A tier is there before the load; the smallest costs less than one accelerator node."""
    most = most_nodes(graph)
    for plane in graph.control_planes:
        tier = plane.cluster and at(plane.cluster.inputs, "controlPlaneScalingConfig.tier")
        faults = []
        if most > PLANNED and (not given(tier) or tier == "standard"):
            faults = [f"controlPlaneScalingConfig.tier is {show(tier)} for {most} nodes, wanted tier-xl or larger"]
        yield from judged(plane.resource, faults, f"{most} nodes, tier {show(tier)}")


@rule("R96", "Let CoreDNS grow with more than 100 nodes", "medium", "EKS CoreDNS autoscaling")
def dns_scaling(graph: Graph) -> Iterator[Finding]:
    """The add-on runs two replicas for any number of nodes. EKS' own autoscaling runs one for 16 nodes, up to its
    bound: a gang that starts looks up names on all its nodes at once."""
    most = most_nodes(graph)
    for addon in graph.addons("coredns"):
        scaling = mapping(at(document(addon.inputs.get("configurationValues")), "autoScaling"))
        wanted, bound = -(-most // NODES_PER_DNS_REPLICA), number(scaling.get("maxReplicas"))
        faults = []
        if most > LARGE and not true(scaling.get("enabled")):
            faults = [f"configurationValues.autoScaling is {show(scaling or None)} for {most} nodes, wanted it enabled"]
        elif most > LARGE and bound is not None and bound < wanted:
            faults = [
                f"configurationValues.autoScaling.maxReplicas is {bound:g} for {most} nodes, wanted {wanted} or more"
            ]
        yield from judged(addon, faults, f"its replicas fit {most} nodes")


@rule("R97", "Bound node repair in more than 100 nodes", "medium", "EKS node repair")
def repair_bounds(graph: Graph) -> Iterator[Finding]:
    """Until a fifth of a group is broken EKS replaces all its broken nodes at the same time. A fault that is elsewhere
    (an image, a driver, a switch) then takes many nodes of a large group, which capacity may not give back. R19 asks
    for repair itself."""
    most = most_nodes(graph)
    for group in graph.accelerator_groups:
        repair = mapping(group.resource.inputs.get("nodeRepairConfig"))
        bounds = {"maxUnhealthyNodeThreshold": "stops", "maxParallelNodesRepaired": "goes on at a time"}
        unset = [
            f"nodeRepairConfig.{name}Count or …Percentage is unset for {most} nodes, wanted where repair {what}"
            for name, what in bounds.items()
            if not given(repair.get(f"{name}Count")) and not given(repair.get(f"{name}Percentage"))
        ]
        large = most > LARGE and (number(group.max_size) or 0) > REPAIRED
        yield from judged(group.resource, unset if large else [], "its repair is bounded")


@rule(
    "R98", "Take pods' addresses in one call in more than 100 nodes", "medium", "amazon-vpc-cni-k8s, EKS best practices"
)
def addresses_at_once(graph: Graph) -> Iterator[Finding]:
    """With WARM_IP_TARGET alone each pod of a node costs calls of EC2, which throttles the account in large clusters,
    and nodes then wait for addresses. MINIMUM_IP_TARGET takes the addresses of a node's pods at its start, in one
    call."""
    most = most_nodes(graph)
    for addon in graph.addons("vpc-cni"):
        env = mapping(at(document(addon.inputs.get("configurationValues")), "env"))
        least, wanted = number(env.get("MINIMUM_IP_TARGET")) or 0, addresses.EXPECTED_PODS
        few = most > LARGE and given(env.get("WARM_IP_TARGET")) and least < wanted
        found = f"configurationValues.env.MINIMUM_IP_TARGET is {show(env.get('MINIMUM_IP_TARGET'))}"
        yield from judged(
            addon, [f"{found} for {most} nodes, wanted {wanted} or more"] if few else [], f"{found} for {most} nodes"
        )


@rule("R99", "Cache images for more than 100 nodes", "medium", "ECR pull through cache, Docker Hub usage limits")
def cached_images(graph: Graph) -> Iterator[Finding]:
    """All nodes behind a NAT gateway are one address for a registry: Docker Hub gives it 100 images in six hours,
    others slow it down. A pull-through cache of ECR brings each image once, where ECR can, into a repository that the
    program makes: nodes may make none. `trn check` names the images that ECR does not cache."""
    most = most_nodes(graph)
    prefixes = tuple(f"{text(each.inputs.get('ecrRepositoryPrefix'))}/" for each in graph.of_type(CACHE_RULE))
    made = {text(each.inputs.get("name")) for each in graph.of_type(REPOSITORY)}
    for resource, of_resource in images(graph):
        direct = sorted(each for each in of_resource if each.partition("/")[0] in UPSTREAMS)
        cached = {each.partition("/")[2] for each in of_resource if ".dkr.ecr." in each}
        lost = sorted(each for each in cached if each.startswith(prefixes) and each not in made)
        faults = [f"no repository {each} is made for its cached image, wanted one" for each in lost]
        if direct and most > LARGE:
            faults.append(f"{', '.join(direct)} comes from outside to {most} nodes, wanted a cache (`imageCache`)")
        yield from judged(resource, faults, "its images come from a cache, or few nodes take them")
