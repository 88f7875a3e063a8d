"""Costs of a recorded program, in the same lines as its config's (:mod:`trainium_eks.model.sizing.bill`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.graph import Graph, Resource, grouped
from trainium_eks.plan.resource_types import registry


@dataclass(frozen=True)
class CostItem:
    """One priced thing of one resource."""

    urn: str
    component: str
    """Name of this library's component that it belongs to; empty directly under the stack."""
    line: Line

    @property
    def what(self) -> str:
        """Name of the priced thing (``trn1.32xlarge``, ``NAT gateway``)."""
        return self.line.what

    @property
    def quantity(self) -> float:
        """Number of things at the desired sizes."""
        return self.line.quantity

    @property
    def hourly_usd(self) -> float | None:
        """Cost in USD an hour; None when the price is unknown."""
        return self.line.hourly_usd

    @property
    def note(self) -> str:
        """Remark about the price for readers."""
        return self.line.note


@dataclass(frozen=True)
class _Sum:
    items: tuple[CostItem, ...]

    @property
    def hourly_usd(self) -> float:
        """Cost at the desired sizes; items without a known price are listed in :attr:`unknown` and not counted."""
        return sum(item.hourly_usd or 0.0 for item in self.items)

    @property
    def maximum_hourly_usd(self) -> float:
        """Cost with every group at its largest."""
        return sum(item.line.maximum_hourly_usd or 0.0 for item in self.items)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the items without a known price, each once."""
        return bill.unknown(item.line for item in self.items)


@dataclass(frozen=True)
class ComponentCost(_Sum):
    """The cost of one component."""

    component: str


@dataclass(frozen=True)
class Cost(_Sum):
    """The cost of an environment."""

    price_dates: Mapping[str, str]
    """Day of each price list used: ``instances``, ``other``. Several days of instance prices are joined."""
    price_regions: tuple[str, ...]
    """Regions of the prices; prices of other regions differ."""
    not_counted: tuple[str, ...] = bill.BY_USE
    """Things that are billed by use, and therefore in no item."""

    @property
    def monthly_usd(self) -> float:
        """Cost of 730 hours."""
        return self.hourly_usd * prices.HOURS_PER_MONTH

    @cached_property
    def by_component(self) -> tuple[ComponentCost, ...]:
        """Costs of the components, dearest first."""
        found = grouped((item.component, item) for item in self.items)
        costs = [ComponentCost(items, component) for component, items in found.items()]
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
                    "urn": item.urn,
                    "component": item.component,
                    "what": item.what,
                    "quantity": item.quantity,
                    "maximumQuantity": item.line.maximum,
                    "hourlyUsd": _rounded(item.hourly_usd),
                    "note": item.note,
                }
                for item in self.items
            ],
            "unknown": list(self.unknown),
            "notCounted": list(self.not_counted),
            "priceDates": dict(self.price_dates),
            "priceRegions": list(self.price_regions),
        }


def estimate(graph: Graph) -> Cost:
    """Return the cost of the environment, with the types of its config's ``instanceTypes`` beside the catalogue's."""
    catalogue = graph.catalogue
    items = tuple(
        CostItem(resource.urn, _component(graph, resource), line)
        for resource in graph.resources
        if resource.custom or resource in graph.not_simulated
        for line in registry.of(resource).lines(graph, resource, catalogue)
        if line.maximum
    )
    used = [price for item in items if item.what in catalogue and (price := catalogue.price(item.what))]
    dates = {"instances": ", ".join(sorted({price.date for price in used})), "other": prices.DATE}
    regions = sorted({prices.REGION, *(price.region for price in used)})
    return Cost(items, {key: date for key, date in dates.items() if date}, tuple(regions))


def _component(graph: Graph, resource: Resource) -> str:
    """Return the nearest component of this library: pulumi-eks' component is an inner part of it."""
    above = [each for each in graph.ancestors(resource) if not each.custom]
    ours = next((each for each in above if each.type.startswith("trainium-eks:")), None)
    nearest = ours or graph.component_of(resource)
    return nearest.name if nearest else ""


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 4)
