"""A budget of AWS Budgets, which sends e-mails."""

import pulumi
import pulumi_aws as aws

from trainium_eks.model.config.budget import SpendingAlertConfig

NOTIFICATIONS = ((50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED"))
"""Per cent of the month's amount, and the cost that is compared: actual or forecast."""


def make_spending_alert(
    name: str, alert: SpendingAlertConfig, *, environment: str, parent: pulumi.Resource
) -> aws.budgets.Budget:
    """Make a budget over all resources with the environment's tag ``Environment``."""
    return aws.budgets.Budget(
        name,
        budget_type="COST",
        time_unit="MONTHLY",
        limit_amount=f"{alert.monthly_usd:.2f}",
        limit_unit="USD",
        # How AWS Budgets spells a tag that a user has set, and its value.
        cost_filters=[aws.budgets.BudgetCostFilterArgs(name="TagKeyValue", values=[f"user:Environment${environment}"])],
        notifications=[
            aws.budgets.BudgetNotificationArgs(
                comparison_operator="GREATER_THAN",
                threshold=threshold,
                threshold_type="PERCENTAGE",
                notification_type=kind,
                subscriber_email_addresses=sorted(alert.emails),
            )
            for threshold, kind in NOTIFICATIONS
        ],
        opts=pulumi.ResourceOptions(parent=parent),
    )
