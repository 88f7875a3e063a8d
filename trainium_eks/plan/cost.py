"""Costs of a recorded program, in the same lines as its config's (:mod:`trainium_eks.model.sizing.bill`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Bill, Line
from trainium_eks.plan.graph import Graph, Resource, grouped
from trainium_eks.plan.resource_types import registry


@dataclass(frozen=True, kw_only=True)
class CostItem(Line):
    """One priced thing of one resource. Two are equal when their lines are."""

    urn: str = field(compare=False)
    component: str = field(compare=False)
    """Name of this library's component that it belongs to; empty directly under the stack."""


@dataclass(frozen=True)
class ComponentCost(Bill[CostItem]):
    """The cost of one component."""

    component: str


@dataclass(frozen=True)
class Cost(Bill[CostItem]):
    """The cost of an environment."""

    price_dates: Mapping[str, str]
    """Day of each price list used: ``instances``, ``other``. Several days of instance prices are joined."""
    price_regions: tuple[str, ...]
    """Regions of the prices; prices of other regions differ."""
    not_counted: tuple[str, ...] = bill.BY_USE
    """Things that are billed by use, and therefore in no item."""

    @cached_property
    def by_component(self) -> tuple[ComponentCost, ...]:
        """Costs of the components, dearest first."""
        found = grouped((line.component, line) for line in self.lines)
        costs = [ComponentCost(lines, component) for component, lines in found.items()]
        return tuple(sorted(costs, key=lambda cost: (-cost.hourly_usd, -cost.maximum_hourly_usd, cost.component)))

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data; money rounded to a hundredth of a cent."""
        return {
            "hourlyUsd": _rounded(self.hourly_usd),
            "monthlyUsd": _rounded(self.monthly_usd),
            "maximumHourlyUsd": _rounded(self.maximum_hourly_usd),
            "maximumMonthlyUsd": _rounded(self.maximum_hourly_usd * prices.HOURS_PER_MONTH),
            "byComponent": [
                {
                    "component": cost.component,
                    "hourlyUsd": _rounded(cost.hourly_usd),
                    "maximumHourlyUsd": _rounded(cost.maximum_hourly_usd),
                    "unknown": list(cost.unknown),
                }
                for cost in self.by_component
            ],
            "items": [
                {
                    "urn": line.urn,
                    "component": line.component,
                    "what": line.what,
                    "quantity": line.quantity,
                    "maximumQuantity": line.maximum,
                    "hourlyUsd": _rounded(line.hourly_usd),
                    "note": line.note,
                }
                for line in self.lines
            ],
            "unknown": list(self.unknown),
            "notCounted": list(self.not_counted),
            "priceDates": dict(self.price_dates),
            "priceRegions": list(self.price_regions),
        }


def estimate(graph: Graph) -> Cost:
    """Return the cost of the environment, with the types of its config's ``instanceTypes`` beside the catalogue's."""
    catalogue = graph.catalogue
    lines = tuple(
        CostItem(**vars(line), urn=resource.urn, component=_component(graph, resource))
        for resource in graph.resources
        if resource.custom or resource in graph.not_simulated
        for line in registry.of(resource).lines(graph, resource, catalogue)
        if line.maximum
    )
    used = [price for line in lines if line.what in catalogue and (price := catalogue.price(line.what))]
    dates = {"instances": ", ".join(sorted({price.date for price in used})), "other": prices.DATE}
    regions = sorted({prices.REGION, *(price.region for price in used)})
    return Cost(lines, {key: date for key, date in dates.items() if date}, tuple(regions))


def _component(graph: Graph, resource: Resource) -> str:
    """Return the nearest component of this library: pulumi-eks' component is an inner part of it."""
    above = [each for each in graph.ancestors(resource) if not each.custom]
    ours = next((each for each in above if each.type.startswith("trainium-eks:")), None)
    nearest = ours or graph.component_of(resource)
    return nearest.name if nearest else ""


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 4)
