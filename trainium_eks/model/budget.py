"""The budget section: what an environment may grow to."""

import math

from trainium_eks.model.problems import Problem
from trainium_eks.model.shape import Amount, Shape, Whole


class BudgetConfig(Shape):
    """The most that an environment may come to by itself: with every node group at its largest."""

    hourly_usd: Amount | None = None
    """Most USD an hour at list prices; what is billed by use (traffic, storage in S3) is not counted. Unset: no
    bound."""
    nodes: Whole | None = None
    """Most nodes, CPU nodes included. Unset: no bound."""


def problems(budget: BudgetConfig) -> list[Problem]:
    """What is wrong with the budget section. Paths are relative to it."""
    found = []
    for field in ("hourly_usd", "nodes"):
        value = getattr(budget, field)
        if value is not None and not 0 < value < math.inf:
            told = "a budget must be more than 0"
            found.append(Problem(field, told, "remove it for no bound", value=value, allowed=("more than 0",)))
    return found
