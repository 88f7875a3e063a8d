"""All alerts: each with its subject, the cost of waiting, and the next command.

An alert has a section of the same name in docs/alerts.md, which `trn doctor` prints.
"""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts import hardware, idle, jobs, platform, storage
from trainium_eks.observe.alerts.alert import Alert, Judge
from trainium_eks.observe.rule_file import Group, Rule, group, lines

_MATTERS: Sequence[tuple[str, Judge]] = (
    ("trn-alerts-hardware", hardware.alerts),
    ("trn-alerts-jobs", jobs.alerts),
    ("trn-alerts-idle", idle.alerts),
    ("trn-alerts-storage", storage.alerts),
    ("trn-alerts-platform", platform.alerts),
)


def groups(settings: AlertSettings, stack: str) -> list[Group]:
    """Return all alerts, as ``groups`` of a rule file. They need the series that
    :mod:`trainium_eks.observe.series.recording` records.

    Args:
        settings: thresholds.
        stack: name of the stack, for the commands in the texts.
    """
    return [
        group(name, [_rule(alert, settings.runbook_url, stack) for alert in judge(settings)])
        for name, judge in _MATTERS
    ]


def alerts(settings: AlertSettings) -> list[Alert]:
    """Return all alerts, in the order of the groups."""
    return [alert for _, judge in _MATTERS for alert in judge(settings)]


def names() -> list[str]:
    """Return the alerts' names, which do not depend on settings."""
    return [alert.name for alert in alerts(AlertSettings())]


def _rule(alert: Alert, runbook_url: str, stack: str) -> Rule:
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "next": alert.command.replace("STACK", stack),
        "doctor": f"trn doctor {alert.name}",
    }
    if runbook_url:
        annotations["runbook_url"] = f"{runbook_url}#{alert.name.lower()}"
    return {
        "alert": alert.name,
        "expr": lines(alert.expr),
        "for": f"{alert.wait_minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }
