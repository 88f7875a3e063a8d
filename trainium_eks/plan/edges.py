"""Edges that a design must and must not have, checked over direct and indirect dependencies.

A forbidden edge makes a long step wait for another long step (file system behind the cluster) or couples resources
that should fail alone. A missing edge works on a lucky day: nodes that boot before the CNI, a queue before its webhook.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.order import Order
from trainium_eks.plan.resource_types.resource_type import ResourceType
from trainium_eks.plan.resource_types.rows import cloudwatch, eks, fsx, iam, kms, kubernetes, vpc
from trainium_eks.plan.resource_types.rows.eks import is_accelerator_group
from trainium_eks.plan.resource_types.rows.helm import is_volcano
from trainium_eks.plan.resource_types.rows.vpc import is_interface_endpoint

Selector = Callable[[Resource], bool]


@dataclass(frozen=True)
class EdgeCheck:
    """One required or forbidden edge, and its violations."""

    id: str
    """``fsx-waits-for-cluster``."""
    title: str
    """The requirement, as a sentence that should be true."""
    forbidden: bool
    """True when the edge must not exist; False when it must."""
    applies: bool
    """Whether the program has both ends."""
    violations: tuple[tuple[str, str], ...] = ()
    """``(waiting URN, URN of the other end)``."""

    @property
    def ok(self) -> bool:
        """Whether no resource violates the requirement."""
        return not self.violations


def _type(*rows: ResourceType) -> Selector:
    tokens = {row.token for row in rows}
    return lambda resource: resource.type in tokens


def _addon(name: str) -> Selector:
    return lambda resource: resource.type == eks.ADDON.token and resource.inputs.get("addonName") == name


def _log_group(resource: Resource) -> bool:
    named = str(resource.inputs.get("name", ""))
    return resource.type == cloudwatch.LOG_GROUP.token and named.startswith("/aws/eks/")


def _ordinary_group(resource: Resource) -> bool:
    return resource.type == eks.NODE_GROUP.token and not is_accelerator_group(resource)


def _logs_control_plane(resource: Resource) -> bool:
    return resource.type == eks.CLUSTER.token and bool(resource.inputs.get("enabledClusterLogTypes"))


_CLUSTER = _type(eks.CLUSTER)
_NODE_GROUP = _type(eks.NODE_GROUP)
_FSX = _type(fsx.FILE_SYSTEM)
_VPC = _type(vpc.VPC)
_NAT = _type(vpc.NAT_GATEWAY)
_QUEUE = _type(kubernetes.QUEUE)


FORBIDDEN: tuple[tuple[str, str, Selector, Selector], ...] = (
    ("fsx-cluster", "The file system does not wait for the cluster", _FSX, _CLUSTER),
    ("fsx-nat", "The file system does not wait for a NAT gateway", _FSX, _NAT),
    ("accelerators-fsx", "Accelerator nodes do not wait for the file system", is_accelerator_group, _FSX),
    ("volcano-accelerators", "Volcano does not wait for accelerator nodes", is_volcano, is_accelerator_group),
    ("accelerators-system", "Accelerator nodes do not wait for CPU nodes", is_accelerator_group, _ordinary_group),
    ("kms-vpc", "Encryption keys do not wait for the VPC", _type(kms.KEY), _VPC),
)
"""``(id, sentence, sources, targets)``: no source may wait for a target."""

REQUIRED: tuple[tuple[str, str, Selector, Selector], ...] = (
    ("cluster-logs", "The cluster waits for its log group", _logs_control_plane, _log_group),
    ("nodes-cni", "Nodes wait for the vpc-cni add-on", _NODE_GROUP, _addon("vpc-cni")),
    ("queues-volcano", "Queues wait for Volcano's admission", _QUEUE, is_volcano),
)
"""``(id, sentence, sources, targets)``: each source must wait for at least one target."""


def check_edges(graph: Graph, ordered: Order) -> tuple[EdgeCheck, ...]:
    """Check every edge, forbidden ones first. Each check makes a pass or two over resources and edges.

    A required edge applies only when both ends are in the program: a pool for a cluster that is made
    elsewhere has no add-on to wait for.
    """
    reach = _Reach(graph, ordered)
    return (
        *(_not_behind(reach, id_, title, reach.of(who), reach.of(whom)) for id_, title, who, whom in FORBIDDEN),
        _iam_before_vpc(reach),
        *(_behind(reach, id_, title, reach.of(who), reach.of(whom)) for id_, title, who, whom in REQUIRED),
        _egress(reach),
        _roles(reach),
    )


class _Reach:
    """Direct and indirect dependencies of each resource."""

    def __init__(self, graph: Graph, ordered: Order) -> None:
        self.graph = graph
        self._ordered = ordered

    def of(self, kind: Selector) -> tuple[Resource, ...]:
        return tuple(resource for resource in self.graph.resources if kind(resource))

    def waiting_for(self, targets: Iterable[Resource]) -> dict[str, str]:
        """Return node to a target that it waits for (not itself), for every node that waits for one."""
        marked = {resource.urn for resource in targets}
        found: dict[str, str] = {}
        for node in self._ordered.nodes:
            for earlier in self._ordered.before[node]:
                if earlier in marked:
                    found[node] = earlier
                    break
                if earlier in found:
                    found[node] = found[earlier]
        return found

    def every_one_of(self, targets: Sequence[Resource]) -> Callable[[str, str], bool]:
        """Return a test whether a node waits for a given target; one pass, with a bit for each target."""
        bit = {resource.urn: 1 << index for index, resource in enumerate(targets)}
        seen: dict[str, int] = {}
        for node in self._ordered.nodes:
            seen[node] = 0
            for earlier in self._ordered.before[node]:
                seen[node] |= seen[earlier] | bit.get(earlier, 0)
        return lambda node, target: bool(seen[node] & bit[target])

    def waited_for_by(self, sources: Iterable[Resource]) -> set[str]:
        """Return every node that one of ``sources`` waits for, and the sources."""
        needed = {resource.urn for resource in sources}
        for node in reversed(self._ordered.nodes):
            if node in needed:
                needed.update(self._ordered.before[node])
        return needed


def _not_behind(
    reach: _Reach, id_: str, title: str, sources: tuple[Resource, ...], targets: tuple[Resource, ...]
) -> EdgeCheck:
    waits = reach.waiting_for(targets)
    broken = tuple((source.urn, waits[source.urn]) for source in sources if source.urn in waits)
    return EdgeCheck(id_, title, forbidden=True, applies=bool(sources and targets), violations=broken)


def _behind(
    reach: _Reach, id_: str, title: str, sources: tuple[Resource, ...], targets: tuple[Resource, ...]
) -> EdgeCheck:
    applies = bool(sources and targets)
    waits = reach.waiting_for(targets)
    broken = tuple((source.urn, targets[0].urn) for source in sources if applies and source.urn not in waits)
    return EdgeCheck(id_, title, forbidden=False, applies=applies, violations=broken)


def _iam_before_vpc(reach: _Reach) -> EdgeCheck:
    """Check only the roles that the cluster and its nodes wait for: a team's role may come after the cluster."""
    needed = reach.waited_for_by(reach.of(_type(eks.CLUSTER, eks.NODE_GROUP)))
    sources = reach.of(lambda resource: resource.type.startswith("aws:iam/") and resource.urn in needed)
    return _not_behind(reach, "iam-vpc", "The cluster's roles do not wait for the VPC", sources, reach.of(_VPC))


def _egress(reach: _Reach) -> EdgeCheck:
    """Check that nodes wait for a way out: a NAT gateway if the program has one, else an interface endpoint."""
    targets = reach.of(_NAT) or reach.of(is_interface_endpoint)
    return _behind(
        reach, "nodes-egress", "Nodes wait for their way out (NAT or endpoints)", reach.of(_NODE_GROUP), targets
    )


def _roles(reach: _Reach) -> EdgeCheck:
    """Check that nodes wait for every policy of their role: a node without its policies never becomes Ready."""
    attachments = reach.of(_type(iam.ROLE_POLICY_ATTACHMENT))
    attached: dict[str, list[Resource]] = {}
    for attachment in attachments:
        for role in attachment.property_dependencies.get("role", ()):
            attached.setdefault(role, []).append(attachment)
    waits = reach.every_one_of(attachments)
    wanted = [
        (group.urn, attachment.urn)
        for group in reach.of(_NODE_GROUP)
        for role in group.property_dependencies.get("nodeRoleArn", ())
        for attachment in attached.get(role, ())
    ]
    broken = tuple((group, attachment) for group, attachment in wanted if not waits(group, attachment))
    title = "Nodes wait for their role's policies"
    return EdgeCheck("nodes-role", title, forbidden=False, applies=bool(wanted), violations=broken)
