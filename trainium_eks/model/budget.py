"""The budget section: what an environment may grow to, and who hears what it has cost."""

import math
import re

from trainium_eks.model.problems import Problem, join
from trainium_eks.model.shape import Amount, Shape, Whole, Word

MOST_EMAILS = 10
"""Addresses that one notification of AWS Budgets may have (AWS Budgets quotas)."""

_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


class SpendingAlertConfig(Shape):
    """A budget of AWS Budgets over what carries the environment's tag: its mails go out at 50, 80 and 100 % of the
    month's amount, and once 100 % is forecast. It stops nothing.

    AWS counts by the tag ``Environment`` only after the payer's account has activated it as a cost allocation tag.
    """

    monthly_usd: Amount
    """USD a month, discounts and credits included as AWS bills them."""
    emails: tuple[Word, ...]
    """Who is written to: 1 to 10 addresses."""


class BudgetConfig(Shape):
    """The most that an environment may come to by itself: with every node group at its largest."""

    hourly_usd: Amount | None = None
    """Most USD an hour at list prices; what is billed by use (traffic, storage in S3) is not counted. Unset: no
    bound."""
    nodes: Whole | None = None
    """Most nodes, CPU nodes included. Unset: no bound."""
    alert: SpendingAlertConfig | None = None
    """Mails about what it has cost this month; null for none."""


def problems(budget: BudgetConfig) -> list[Problem]:
    """What is wrong with the budget section. Paths are relative to it."""
    found = []
    for field in ("hourly_usd", "nodes"):
        value = getattr(budget, field)
        if value is not None and not 0 < value < math.inf:
            told = "a budget must be more than 0"
            found.append(Problem(field, told, "remove it for no bound", value=value, allowed=("more than 0",)))
    return found + ([] if budget.alert is None else _alert_problems(budget.alert))


def _alert_problems(alert: SpendingAlertConfig) -> list[Problem]:
    found = []
    if not 0 < alert.monthly_usd < math.inf:
        told = "a budget must be more than 0"
        found.append(Problem("alert.monthly_usd", told, value=alert.monthly_usd, allowed=("more than 0",)))
    if not 1 <= len(alert.emails) <= MOST_EMAILS:
        told = f"{len(alert.emails)} addresses; AWS Budgets writes to 1 to {MOST_EMAILS}"
        found.append(Problem("alert.emails", told, "name a mailing list"))
    for index, address in enumerate(alert.emails):
        if not _EMAIL.fullmatch(address):
            path = join("alert.emails", index)
            found.append(Problem(path, "not an e-mail address", value=address, allowed=("name@example.com",)))
    return found
