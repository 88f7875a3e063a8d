"""Model of the duration of a whole ``pulumi up``: step times along the edges that the engine waits for.

The step times are the rows' ``seconds``: medians of published apply logs (EKS control plane, node groups, NAT
gateways, add-ons) and the middle of documented ranges for services without logs (FSx, accelerator nodes). They show the
longest chain and the effect of a change on it; no account is promised these minutes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from trainium_eks.plan.edges import EdgeCheck, check_edges
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.order import Order, order
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.resource_type import ResourceType
from trainium_eks.plan.resource_types.rows import ec2, eks, fsx, helm, kubernetes, vpc

BAR = 1.05
"""Highest accepted ratio of a design's time to its lower bound."""


@dataclass(frozen=True)
class PlanStep:
    """Creation of one resource in time."""

    urn: str
    name: str
    type: str
    start: float
    """Seconds after the beginning of the ``up``."""
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """The modelled ``up`` of a whole environment from nothing."""

    steps: tuple[PlanStep, ...]
    """Every resource that takes time, in order of start."""
    critical_path: tuple[PlanStep, ...]
    """The longest chain: each step starts when the step before it ends."""
    chains: Mapping[str, float]
    """Seconds of the chains that AWS itself orders: ``cluster`` (A) and, with a file system, ``fileSystem`` (B)."""
    edges: tuple[EdgeCheck, ...]

    @cached_property
    def seconds(self) -> float:
        """Time until the environment is ready."""
        return max((step.start + step.seconds for step in self.steps), default=0.0)

    @cached_property
    def serial_seconds(self) -> float:
        """The same steps one after the other, as a tutorial does them."""
        return sum(step.seconds for step in self.steps)

    @property
    def lower_bound_seconds(self) -> float:
        """Shortest time that any order of the same steps can reach: the longer of the chains."""
        return max(self.chains.values())

    @property
    def ratio(self) -> float:
        """Time to ready over its bound; 1 for an empty program."""
        return self.seconds / self.lower_bound_seconds if self.lower_bound_seconds else 1.0

    @property
    def forbidden_edges(self) -> tuple[tuple[str, str], ...]:
        """``(waiting URN, URN it waits for)`` of each forbidden edge that exists."""
        return tuple(pair for check in self.edges if check.forbidden for pair in check.violations)

    @property
    def missing_edges(self) -> tuple[tuple[str, str], ...]:
        """``(URN, URN it should wait for)`` of each required edge that is missing."""
        return tuple(pair for check in self.edges if not check.forbidden for pair in check.violations)


def model(graph: Graph) -> Timeline:
    """Return the modelled ``up`` of a recorded program, with no limit on parallel operations."""
    ordered = order(graph)
    start, previous = _schedule(graph, ordered)
    steps = {
        resource.urn: PlanStep(resource.urn, resource.name, resource.type, start[resource.urn], step_seconds(resource))
        for resource in graph.resources
        if resource.custom and step_seconds(resource)
    }
    return Timeline(
        steps=tuple(sorted(steps.values(), key=lambda step: (step.start, step.urn))),
        critical_path=tuple(_critical_path(steps, previous)),
        chains=chains(graph),
        edges=check_edges(graph, ordered),
    )


def step_seconds(resource: Resource) -> float:
    """Return the seconds that a resource takes to create; 0 for components and providers, which are made locally."""
    return registry.of(resource).seconds_of(resource) if resource.custom else 0.0


def chains(graph: Graph) -> dict[str, float]:
    """Return the two chains that AWS itself orders, from step times alone, without the graph's edges.

    A: network, control plane, vpc-cni, then side by side the slowest accelerator group and the CPU nodes with DNS,
    Volcano and its queues on them. B: network, security group, file system, data repository association.
    Volcano needs no accelerator node, so the slowest group is a branch of A and not a link in it.
    """

    def longest(row: ResourceType, which: Callable[[Resource], bool] = lambda _: True) -> float:
        return max((step_seconds(each) for each in graph.of_type(row.token) if which(each)), default=0.0)

    def addon(name: str) -> float:
        return longest(eks.ADDON, lambda each: each.inputs.get("addonName") == name)

    accelerated = longest(eks.NODE_GROUP, eks.is_accelerator_group)
    ordinary = longest(eks.NODE_GROUP, lambda each: not eks.is_accelerator_group(each))
    volcano = longest(helm.RELEASE, helm.is_volcano)
    network = longest(vpc.VPC) + longest(vpc.SUBNET)
    a = (
        network
        + longest(eks.CLUSTER)
        + addon("vpc-cni")
        + max(accelerated, ordinary + addon("coredns") + volcano + longest(kubernetes.QUEUE))
    )
    file_system = longest(fsx.FILE_SYSTEM)
    b = network + longest(ec2.SECURITY_GROUP) + file_system + longest(fsx.ASSOCIATION)
    return {"cluster": a, "fileSystem": b} if file_system else {"cluster": a}


def _schedule(graph: Graph, ordered: Order) -> tuple[dict[str, float], dict[str, str]]:
    """Return the start of each node of the order, and the node that it waited for last."""
    start: dict[str, float] = {}
    finish: dict[str, float] = {}
    previous: dict[str, str] = {}
    for node in ordered.nodes:
        start[node] = 0.0
        for before in ordered.before[node]:
            if finish[before] > start[node]:
                start[node], previous[node] = finish[before], before
        resource = graph.by_urn.get(node)
        finish[node] = start[node] + (step_seconds(resource) if resource else 0.0)
    return start, previous


def _critical_path(steps: Mapping[str, PlanStep], previous: Mapping[str, str]) -> Iterator[PlanStep]:
    """Yield the steps up to the last one to end; nodes that take no time are left out."""
    if not steps:
        return
    at: str | None = max(steps.values(), key=lambda step: (step.start + step.seconds, step.urn)).urn
    chain = []
    while at is not None:
        if at in steps:
            chain.append(steps[at])
        at = previous.get(at)
    yield from reversed(chain)
