"""The order in which the engine makes a program's resources: one list, and the dependencies of each."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource

ALL = "#all"
"""Suffix of a component's second node: the component and everything in it."""


@dataclass(frozen=True)
class Order:
    """A topological order over URNs, plus a node ``<urn>#all`` for each component."""

    nodes: tuple[str, ...]
    """Nodes, each after every node that it waits for."""
    before: Mapping[str, tuple[str, ...]]
    """Node to the nodes it waits for directly, sorted."""


def order(graph: Graph) -> Order:
    """Return the engine's order. Linear in resources and edges; a circle is a ValueError that names its resources.

    A resource waits for its parent's registration, for its dependencies, for its provider, and for the dependencies of
    the components above it (they register late, and their children with them). A dependency on a component is a
    dependency on every resource in it.
    """
    before: dict[str, set[str]] = {resource.urn: set() for resource in graph.resources}
    for resource in graph.resources:
        if not resource.custom and resource.type != STACK_TYPE:
            before[resource.urn + ALL] = {resource.urn}
    for resource in graph.resources:
        above = {ancestor.urn for ancestor in graph.ancestors(resource)}
        waits = before[resource.urn]
        for urn in _named(resource):
            # An output of a component above is known before the component is whole.
            waits.add(urn + ALL if urn + ALL in before and urn not in above else urn)
        parent = graph.by_urn.get(resource.parent)
        if parent is not None and parent.type != STACK_TYPE:
            waits.add(parent.urn)
            if parent.urn + ALL in before:
                before[parent.urn + ALL].add(resource.urn + ALL if resource.urn + ALL in before else resource.urn)
        waits.discard(resource.urn)
        waits.intersection_update(before)
    return _sorted({node: tuple(sorted(nodes)) for node, nodes in before.items()})


def _named(resource: Resource) -> set[str]:
    """Return the URNs of a resource's dependencies and of its provider."""
    named = set(resource.dependencies)
    for urns in resource.property_dependencies.values():
        named.update(urns)
    if resource.provider:
        named.add(resource.provider.split("::id=", 1)[0])
    return named


def _sorted(before: Mapping[str, tuple[str, ...]]) -> Order:
    after: dict[str, list[str]] = {node: [] for node in before}
    waiting = {node: len(nodes) for node, nodes in before.items()}
    for node, earlier_nodes in before.items():
        for earlier in earlier_nodes:
            after[earlier].append(node)
    ready = [node for node, count in sorted(waiting.items(), reverse=True) if not count]
    nodes: list[str] = []
    while ready:
        node = ready.pop()
        nodes.append(node)
        for later in after[node]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if len(nodes) < len(before):
        circle = " -> ".join(_circle({node: before[node] for node, count in waiting.items() if count}))
        raise ValueError(f"the resources wait for each other in a circle: {circle}")
    return Order(tuple(nodes), before)


def _circle(stuck: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a circle, found by walking back over nodes that cannot start until one repeats."""
    walked: dict[str, int] = {}
    node = min(stuck)
    while node not in walked:
        walked[node] = len(walked)
        node = next(earlier for earlier in stuck[node] if earlier in stuck)
    return [*list(walked)[walked[node] :], node]
