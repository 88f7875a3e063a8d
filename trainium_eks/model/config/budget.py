"""The budget section: bounds on an environment's size and price, and e-mails about its cost."""

import re
from typing import Annotated

from trainium_eks.model.catalogue import regions
from trainium_eks.model.validation.config_model import ConfigModel, LooseFloat, LooseStr, StrictInt
from trainium_eks.model.validation.limits import Bounds, Entries
from trainium_eks.model.validation.problems import Problem, join

_NOTIFIED = Entries(1, 10, "AWS Budgets writes to as many (AWS Budgets quotas)", "name a mailing list")

_EMAIL = re.compile(r"[^@\s.]+(\.[^@\s.]+)*@[^@\s.]+(\.[^@\s.]+)+")  # RFC 5321: dots only between others


class SpendingAlertConfig(ConfigModel):
    """A budget of AWS Budgets over the resources with the environment's tag: it sends e-mails at 50, 80 and 100 % of
    the month's amount, and once 100 % is forecast. It stops nothing.

    AWS counts by the tag ``Environment`` only after the payer's account has activated it as a cost allocation tag.
    """

    monthly_usd: Annotated[LooseFloat, Bounds(0, unit="USD", above=True)]
    """USD a month, discounts and credits included as AWS bills them."""
    emails: Annotated[tuple[LooseStr, ...], _NOTIFIED]
    """Addresses of the recipients."""


class BudgetConfig(ConfigModel):
    """The most that an environment may come to by itself: with every node group at its largest."""

    hourly_usd: Annotated[LooseFloat | None, Bounds(0, unit="USD", above=True)] = None
    """Most USD an hour at list prices; usage charges (traffic, storage in S3) are not counted. Unset: no bound."""
    nodes: Annotated[StrictInt | None, Bounds(1, unit="nodes")] = None
    """Most nodes, CPU nodes included. Unset: no bound."""
    alert: SpendingAlertConfig | None = None
    """E-mails about this month's cost; null for none."""


def validate(budget: BudgetConfig, *, region: str) -> list[Problem]:
    """Return the problems of the budget section beyond its declared limits. Paths are relative to it."""
    if budget.alert is None:
        return []
    found = []
    if regions.lacks("budgets", region):
        reason = (
            f"AWS Budgets has no endpoint for the partition of {region}: its accounts are billed through another one"
        )
        found.append(Problem("alert", reason, "remove it, and make the budget in the account that pays"))
    for index, address in enumerate(budget.alert.emails):
        if not _EMAIL.fullmatch(address):
            path, fix = join("alert.emails", index), "give the whole address"
            found.append(
                Problem(path, "it is not an e-mail address", fix, value=address, allowed=("name@example.com",))
            )
    return found
