"""AWS Budgets: mails about spending."""

from typing import Any

from trainium_eks.plan.backend import ACCOUNT, Answer, Call
from trainium_eks.plan.resource_types.resource_type import Concern, ResourceType, ShownType


def _budget(call: Call) -> Answer:
    name = call.name()
    # A global service: its ARNs name no region.
    partition = call.arn("budgets", "").split(":")[1]
    return f"{ACCOUNT}:{name}", {
        "name": name,
        "arn": f"arn:{partition}:budgets::{ACCOUNT}:budget/{name}",
        "accountId": ACCOUNT,
    }


def _raised(before: Any, after: Any) -> bool:
    """Return whether an amount, which is a text, rose."""
    return float(after) > float(before)


def _notifies_fewer(before: Any, after: Any) -> bool:
    """Return whether any address gets mails for fewer of the thresholds."""
    return not _notified(before) <= _notified(after)


def _notified(notifications: Any) -> set[tuple[Any, ...]]:
    return {
        (each.get("notificationType"), each.get("threshold"), email)
        for each in notifications or ()
        for email in each.get("subscriberEmailAddresses") or ()
    }


BUDGET = ResourceType(
    token="aws:budgets/budget:Budget",
    simulated=_budget,
    named_by=("name",),
    replaced_by=("accountId", "name", "namePrefix"),
    # Without actions a budget costs nothing (AWS Budgets pricing).
    shown=ShownType(lambda _graph, budget: [f"{budget.inputs.get('limitAmount', '?')} USD a month"]),
    understood=(
        Concern("limitAmount", _raised, "the mails come later"),
        Concern("notifications", _notifies_fewer, "fewer addresses are notified, or for fewer reasons"),
    ),
    creation="",
    deletion="no address is notified of the cost",
)
