"""The rule about the largest cost and the most nodes of an environment."""

import math
from collections.abc import Iterator

from trainium_eks.model.finding import Finding, Status
from trainium_eks.model.validation.problems import config_set
from trainium_eks.plan import cost
from trainium_eks.plan.cost import Cost
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import at, number
from trainium_eks.plan.rules._autoscaled import node_pools
from trainium_eks.plan.rules._rule import broken, rule


@rule("R72", "Stay within the budget", "high", "own")
def within_budget(graph: Graph) -> Iterator[Finding]:
    """With every node group at its largest, the environment costs no more an hour and has no more nodes than its
    config's budget says. A price that is not known is not within any budget. Without a budget the rule does not
    apply."""
    dollars, nodes = (number(at(graph.config, f"budget.{key}")) for key in ("hourlyUsd", "nodes"))
    if dollars is not None:
        yield _money(graph, dollars, cost.estimate(graph))
    if nodes is not None:
        yield _nodes(graph, nodes)


def _money(graph: Graph, budget: float, estimate: Cost) -> Finding:
    most = estimate.maximum_hourly_usd
    if most > budget:
        dearest = max(estimate.by_component, key=lambda each: each.maximum_hourly_usd)
        raised = config_set("budget.hourly_usd", math.ceil(most))
        message = (
            f"budget.hourlyUsd is {budget:g}, and with every group at its largest this costs {most:.2f} USD an hour"
            f" ({dearest.component or 'stack'}: {dearest.maximum_hourly_usd:.2f}): lower a group's maxSize, or {raised}"
        )
        return broken(graph.stack_urn, message)
    if estimate.unknown:
        names = ", ".join(estimate.unknown)
        path = f'instanceTypes["{estimate.unknown[0]}"].hourlyUsd'
        message = f"budget.hourlyUsd is {budget:g}, but no price is known for {names}: set {path}"
        return broken(graph.stack_urn, message)
    return Finding(Status.PASS, graph.stack_urn, f"{most:.2f} of {budget:g} USD an hour")


def _nodes(graph: Graph, budget: float) -> Finding:
    sizes = [(number(group.max_size), group.resource.name) for group in graph.node_groups]
    sizes += [(pool.maximum, pool.resource.name) for pool in node_pools(graph)]
    most = sum(size or 0 for size, _ in sizes)
    if most <= budget:
        return Finding(Status.PASS, graph.stack_urn, f"{most:g} of {budget:g} nodes")
    largest, name = max((size or 0, name) for size, name in sizes)
    raised = config_set("budget.nodes", int(most))
    message = (
        f"budget.nodes is {budget:g}, and the groups grow to {most:g} nodes ({name}: {largest:g}):"
        f" lower a group's maxSize, or {raised}"
    )
    return broken(graph.stack_urn, message)
