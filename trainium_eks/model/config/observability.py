"""The section for metrics, Grafana and logs. Nothing of it is installed by default."""

import re
from typing import Annotated, Any, Literal

import pydantic

from trainium_eks.model import alerts as alert_settings
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.catalogue import regions
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, Severity, under

SHORTEST_LOGS_IN_PRODUCTION_DAYS = 30
"""Shortest retention of container logs in production, days (rule R84): faults are often investigated weeks later."""

# Alertmanager publishes to FIFO topics, too, whose names end with .fifo (its notify/sns).
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:([A-Za-z0-9_-]{1,256}|[A-Za-z0-9_-]{1,251}\.fifo)")


class AlertsConfig(ConfigModel):
    """Where alerts go."""

    topic_arn: str
    """ARN of an SNS topic, which sends them on: by e-mail, to a chat, to a pager."""
    topic_key_arn: str | None = None
    """ARN of the KMS key by which the topic is encrypted, if it is a customer-managed key."""


class MetricsConfig(ConfigModel):
    """Prometheus in the cluster, with exporters for nodes, devices, EFA, the file system, Volcano and trainings."""

    retention_days: Annotated[StrictInt, Bounds(1, 365, "days")] = 15
    """Days that the cluster's own Prometheus keeps; Amazon Managed Prometheus keeps its own 150."""
    volume_gib: Annotated[StrictInt, Bounds(10, formats.LARGEST_ROOT_GIB, "GiB")] = 50
    """Size of its volume, GiB (gp3, encrypted). The oldest data goes before the volume is full."""
    scrape_interval_seconds: Annotated[StrictInt, Bounds(10, 300, "seconds")] = 30
    """How often everything is scraped."""
    managed_prometheus: StrictBool = False
    """True makes a workspace of Amazon Managed Prometheus and writes everything there too, by Pod Identity. It is
    billed by sample and outlives the cluster's own Prometheus."""
    alerts: AlertsConfig | None = None
    """Where alerts go; null: they show in Prometheus and Grafana only."""
    thresholds: AlertSettings = AlertSettings()
    """From when on alerts fire (docs/alerts.md)."""
    values: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Further values for the chart kube-prometheus-stack, merged over the stack's."""


class ManagedGrafanaConfig(ConfigModel):
    """A workspace of Amazon Managed Grafana. IAM Identity Center must be on in the organisation (or bring SAML)."""

    authentication: Literal["AWS_SSO", "SAML"] = "AWS_SSO"
    """Identity provider that decides on logins: IAM Identity Center (AWS_SSO), or your own (SAML)."""


class GrafanaConfig(ConfigModel):
    """Grafana, with the dashboards of this library."""

    in_cluster: StrictBool = True
    """Grafana in the cluster, reached by `kubectl port-forward`."""
    volume_gib: Annotated[StrictInt, Bounds(1, formats.LARGEST_ROOT_GIB, "GiB")] = 10
    """Size of its volume, GiB; it holds users' settings and their own dashboards."""
    managed: ManagedGrafanaConfig | None = None
    """Amazon Managed Grafana in addition; null for none. It is billed by user, and its dashboards are imported by
    hand."""


class LogsConfig(ConfigModel):
    """Container logs in CloudWatch Logs, kept after their pods are deleted."""

    retention_days: formats.RetentionDays = 90
    """Days that logs are kept."""
    system: StrictBool = False
    """True ships the logs of ``kube-system`` too, which are large and seldom read."""


class ObservabilityConfig(ConfigModel):
    """Metrics, Grafana and logs."""

    metrics: MetricsConfig | None = None
    """Prometheus; null for none."""
    grafana: GrafanaConfig | None = None
    """Grafana; null for none. It needs ``metrics``."""
    logs: LogsConfig | None = None
    """Container logs in CloudWatch; null for none."""


ALERTMANAGER_GIB = 1
"""Size of Alertmanager's volume, GiB: silences and sent notifications."""


def claimed_gib(config: ObservabilityConfig) -> tuple[int, ...]:
    """Return the sizes of the volumes that Prometheus, Grafana and Alertmanager claim, GiB."""
    metrics, grafana = config.metrics, config.grafana
    if metrics is None:
        return ()
    shown = (grafana.volume_gib,) if grafana is not None and grafana.in_cluster else ()
    told = (ALERTMANAGER_GIB,) if metrics.alerts is not None else ()
    return (metrics.volume_gib, *shown, *told)


def validate(config: ObservabilityConfig, *, region: str, production: bool) -> list[Problem]:
    """Return the problems of the section. Paths are relative to it."""
    found: list[Problem] = []
    if config.metrics is not None:
        found += under("metrics", metrics_problems(config.metrics, region=region))
    if config.grafana is not None:
        found += under("grafana", grafana_problems(config.grafana, config.metrics))
        if config.grafana.managed is not None and regions.lacks("grafana", region):
            reason = f"this release knows no Amazon Managed Grafana in {region}"
            found.append(formats.warn("grafana.managed", reason, "use Grafana in the cluster: remove `managed`"))
    if config.logs is not None:
        found += under("logs", logs_problems(config.logs, production=production))
    return found


def metrics_problems(metrics: MetricsConfig, *, region: str) -> list[Problem]:
    """Return the problems of the metrics. Paths are relative to the section."""
    found = under("thresholds", alert_settings.validate(metrics.thresholds))
    if metrics.managed_prometheus and regions.lacks("amp", region):
        reason = f"this release knows no Amazon Managed Service for Prometheus in {region}"
        found.append(Problem("managed_prometheus", reason, severity=Severity.WARN, value=True, good=False))
    if metrics.alerts is not None:
        found += under("alerts", _alerts_problems(metrics.alerts, region))
    return found


def grafana_problems(grafana: GrafanaConfig, metrics: MetricsConfig | None) -> list[Problem]:
    """Return the problems of Grafana, given the metrics that it shows. Paths are relative to the section."""
    found = []
    if metrics is None:
        reason = "there are no metrics that Grafana could show"
        found.append(Problem("", reason, "set `observability.metrics: {}`, or remove `observability.grafana`"))
    elif grafana.managed is not None and not metrics.managed_prometheus:
        reason = "Amazon Managed Grafana cannot reach the cluster's own Prometheus, which is private"
        found.append(Problem("managed", reason, "set `observability.metrics.managed_prometheus: true`"))
    if not grafana.in_cluster and grafana.managed is None:
        found.append(
            Problem(
                "in_cluster",
                "it is off, and none is in AWS either: there would be no Grafana at all",
                "remove the section",
                value=False,
            )
        )
    return found


def logs_problems(logs: LogsConfig, *, production: bool) -> list[Problem]:
    """Return the problems of the logs. Paths are relative to the section."""
    found = []
    if production and logs.retention_days < SHORTEST_LOGS_IN_PRODUCTION_DAYS:
        reason = f"production keeps {SHORTEST_LOGS_IN_PRODUCTION_DAYS} days or more: what failed is asked about later"
        found.append(Problem("retention_days", reason, rule="R84", value=logs.retention_days, good=90))
    return found


def _alerts_problems(alerts: AlertsConfig, region: str) -> list[Problem]:
    partition, found = regions.partition(region), []
    if not _TOPIC.fullmatch(alerts.topic_arn):
        good = f"arn:{partition}:sns:{region}:<account>:<name>"
        found.append(Problem("topic_arn", "it is not the ARN of an SNS topic", value=alerts.topic_arn, good=good))
    if alerts.topic_key_arn is not None and not formats.KMS_KEY_ARN.fullmatch(alerts.topic_key_arn):
        good = f"arn:{partition}:kms:{region}:<account>:key/<id>"
        found.append(Problem("topic_key_arn", "it is not the ARN of a KMS key", value=alerts.topic_key_arn, good=good))
    return found
