"""Accelerators that are paid for and do nothing."""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts.alert import Alert


def alerts(settings: AlertSettings) -> Sequence[Alert]:
    """Return the alerts of nodes without work, and of devices that somebody holds and does not use. Values are USD an
    hour."""
    idle, held = f"{settings.idle_minutes}m", f"{settings.held_idle_minutes}m"
    # Where no price is known, the alert still fires, with 0 USD. A node younger than the time is let off.
    price = "(trn:node:usd_per_hour or on (node) sum by (node, node_group) (trn:node:devices_total) * 0)"
    return [
        Alert(
            "AcceleratorsIdle",
            "warning",
            f"""
            sum by (node_group) (
              {price}
              and on (node) sum by (node) (max_over_time(trn:node:devices_requested[{idle}])) == 0
              and on (node) (trn:node:devices_requested offset {idle})
            )
            """,
            "Nodes of {{ $labels.node_group }} are idle",
            f"For {settings.idle_minutes} minutes no pod has asked for a device of them. They cost"
            ' {{ $value | printf "%.2f" }} USD an hour.',
            "trn scale {{ $labels.node_group }} 0 --stack STACK",
        ),
        Alert(
            "AcceleratorsHeldIdle",
            "warning",
            f"""
            sum by (namespace) (
              max by (namespace, node) (
                trn:pod:devices_requested and on (namespace, pod) (trn:pod:devices_requested offset {held})
              ) * 0
              + on (node) group_left () (
                {price}
                and on (node) (max_over_time(trn:cores:busy_ratio[{held}]) < {settings.busy_percent / 100:g})
              )
            )
            """,
            "Pods of {{ $labels.namespace }} hold devices that do nothing",
            f"For {settings.held_idle_minutes} minutes their devices have been busy for less than"
            f" {settings.busy_percent} % of the time. The nodes cost"
            ' {{ $value | printf "%.2f" }} USD an hour.',
            "trn jobs --namespace {{ $labels.namespace }} --stack STACK",
        ),
    ]
