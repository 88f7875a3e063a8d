"""Values of kube-prometheus-stack and of the file system's exporter. No resource."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from trainium_eks.model.catalogue import versions
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.observability import ALERTMANAGER_GIB, AlertsConfig, GrafanaConfig, MetricsConfig
from trainium_eks.observe.series import gangs, scraping

from ._args import Text

CHART = "kube-prometheus-stack"
RELEASE_NAME = CHART
PROMETHEUS_ACCOUNT = f"{RELEASE_NAME}-prometheus"
ALERTMANAGER_ACCOUNT = f"{RELEASE_NAME}-alertmanager"
GRAFANA_ACCOUNT = f"{RELEASE_NAME}-grafana"
"""Service accounts as the chart names them after the release."""

DATA_SOURCE = "prometheus"
"""Uid of the data source that every dashboard names, be it Prometheus or a workspace."""
SELECTED = {"release": RELEASE_NAME}
"""Labels by which Prometheus selects monitors and rules."""

FSX_EXPORTER = "fsx-exporter"
FULL = 0.85
"""Share of the volume after which Prometheus drops the oldest block: the write-ahead log needs the rest."""


@dataclass(frozen=True)
class Workspace:
    """A workspace of Amazon Managed Prometheus."""

    endpoint: pulumi.Output[str]
    """Its URL, with a slash at the end."""
    region: str
    cluster_name: Text
    """Label ``cluster`` of the samples: several clusters may share a workspace."""


def stack_values(
    metrics: MetricsConfig,
    grafana: GrafanaConfig | None,
    region: str,
    workspace: Workspace | None,
    node_selector: Mapping[str, str],
) -> dict[str, Any]:
    """Return the values of kube-prometheus-stack, before the user's are merged over them. ``workspace`` is one that
    Prometheus also writes to; ``node_selector`` labels nodes for pods with a volume."""
    off = {"enabled": False}
    selected = {"nodeSelector": dict(node_selector)} if node_selector else {}
    return {
        # EKS runs these where nothing can scrape them; kube-proxy listens on its node's loopback alone.
        "kubeEtcd": off,
        "kubeScheduler": off,
        "kubeControllerManager": off,
        "kubeProxy": off,
        "defaultRules": {
            "rules": {
                "etcd": False,
                "kubeControllerManager": False,
                "kubeProxy": False,
                "kubeSchedulerAlerting": False,
                "kubeSchedulerRecording": False,
                "windows": False,
            }
        },
        # The containers' own figures every ten seconds would be most of all samples.
        "kubelet": {"serviceMonitor": {"cAdvisorInterval": f"{metrics.scrape_interval_seconds}s"}},
        "prometheus": {"prometheusSpec": {**_prometheus(metrics, workspace), **selected}},
        "prometheusOperator": {
            "resources": _resources("50m", "128Mi", "256Mi"),
            "prometheusConfigReloader": {"resources": _resources("10m", "32Mi", "64Mi")},
            "admissionWebhooks": {"patch": {"resources": _resources("10m", "32Mi", "64Mi")}},
        },
        "alertmanager": _alertmanager(metrics.alerts, region, selected),
        "kube-state-metrics": {
            "metricLabelsAllowlist": [
                f"nodes=[{','.join(scraping.NODE_LABELS)}]",
                f"pods=[{','.join(scraping.POD_LABELS)}]",
            ],
            "customResourceState": {"enabled": True, "config": gangs.custom_resources()},
            "rbac": {"extraRules": [gangs.ACCESS]},
            "resources": _resources("50m", "128Mi", "512Mi"),
        },
        "prometheus-node-exporter": {
            # On every node, whatever its taints.
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "prometheus": {"monitor": {"relabelings": [dict(scraping.NODE)]}},
            "resources": _resources("20m", "32Mi", "128Mi"),
        },
        "grafana": {**grafana_values(grafana, metrics, workspace), **selected}
        if grafana is not None and grafana.in_cluster
        else off,
    }


def _prometheus(metrics: MetricsConfig, workspace: Workspace | None) -> dict[str, Any]:
    interval = f"{metrics.scrape_interval_seconds}s"
    # Only the stack makes objects in this namespace; other teams add no targets or rules.
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespaces.MONITORING}}
    found: dict[str, Any] = {
        "retention": f"{metrics.retention_days}d",
        "retentionSize": f"{int(metrics.volume_gib * FULL)}GiB",
        "scrapeInterval": interval,
        "evaluationInterval": interval,
        "serviceMonitorNamespaceSelector": here,
        "podMonitorNamespaceSelector": here,
        "probeNamespaceSelector": here,
        "scrapeConfigNamespaceSelector": here,
        "ruleNamespaceSelector": here,
        "storageSpec": {"volumeClaimTemplate": {"spec": _claim(metrics.volume_gib)}},
        "resources": _resources("500m", "2Gi", "6Gi"),
    }
    if workspace is not None:
        found["externalLabels"] = {"cluster": workspace.cluster_name}
        found["remoteWrite"] = [
            {
                "url": pulumi.Output.concat(workspace.endpoint, "api/v1/remote_write"),
                "sigv4": {"region": workspace.region},
                # AWS' recommendation for one Prometheus (AMP user guide, remote write).
                "queueConfig": {"maxSamplesPerSend": 1000, "maxShards": 200, "capacity": 2500},
            }
        ]
    return found


def _alertmanager(alerts: AlertsConfig | None, region: str, selected: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of Alertmanager, which is off without an SNS topic: Prometheus and Grafana show firing
    alerts."""
    if alerts is None:
        return {"enabled": False}
    topic = {"topic_arn": alerts.topic_arn, "sigv4": {"region": region}, "send_resolved": True}
    return {
        "enabled": True,
        "alertmanagerSpec": {
            "storage": {"volumeClaimTemplate": {"spec": _claim(ALERTMANAGER_GIB)}},
            "resources": _resources("10m", "64Mi", "128Mi"),
            **selected,
        },
        # A list of receivers replaces the chart's, and its route names one of them.
        "config": {
            "route": {
                "receiver": "topic",
                "group_by": ["alertname", "namespace", "job_name"],
                "group_wait": "30s",
                "group_interval": "5m",
                "repeat_interval": "12h",
                "routes": [{"receiver": "null", "matchers": ['alertname =~ "Watchdog|InfoInhibitor"']}],
            },
            "receivers": [{"name": "null"}, {"name": "topic", "sns_configs": [topic]}],
        },
    }


def grafana_values(grafana: GrafanaConfig, metrics: MetricsConfig, workspace: Workspace | None) -> dict[str, Any]:
    """Return the values of the chart's Grafana. Its password is made in the cluster, by the chart, and stays in a
    Secret there: neither the program nor Pulumi's state ever has it."""
    sources = {
        "searchNamespace": namespaces.MONITORING,
        "uid": DATA_SOURCE,
        "alertmanager": {"enabled": metrics.alerts is not None},
    }
    found: dict[str, Any] = {
        "enabled": True,
        "persistence": {"enabled": True, "size": f"{grafana.volume_gib}Gi"},
        # Its volume is for one pod: the old one goes before the new one comes.
        "deploymentStrategy": {"type": "Recreate"},
        "service": {"type": "ClusterIP"},
        "ingress": {"enabled": False},
        "testFramework": {"enabled": False},
        "resources": _resources("100m", "256Mi", "512Mi"),
        "grafana.ini": {
            "analytics": {"check_for_updates": False, "reporting_enabled": False},
            "auth.anonymous": {"enabled": False},
            "users": {"allow_sign_up": False},
        },
        "sidecar": {
            "resources": _resources("10m", "96Mi", "192Mi"),
            "dashboards": {"searchNamespace": namespaces.MONITORING},
            "datasources": sources,
        },
    }
    return found if workspace is None else _with_workspace(found, workspace)


def _with_workspace(values: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """Return Grafana's values with the workspace under the uid that dashboards name, and the cluster's own Prometheus
    beside it, for the chart's own dashboards: they select a data source of the type ``prometheus``.

    The workspace uses Grafana's plugin: signing by the core data source is deprecated. Grafana installs the plugin from
    grafana.com in the background (``plugins.preinstall``) and starts without it; the chart's ``plugins`` would keep
    Grafana from starting, and Helm would roll Prometheus back with it.
    """
    source = {
        "name": "Amazon Managed Prometheus",
        "uid": DATA_SOURCE,
        "type": versions.GRAFANA_AMP_PLUGIN.partition("@")[0],
        "access": "proxy",
        "isDefault": True,
        "url": workspace.endpoint,
        "jsonData": {
            "httpMethod": "POST",
            "sigV4Auth": True,
            "sigV4AuthType": "default",
            "sigV4Region": workspace.region,
        },
    }
    sidecar = values["sidecar"]
    beside = {"name": "Prometheus of the cluster", "uid": f"{DATA_SOURCE}-cluster", "isDefaultDatasource": False}
    return {
        **values,
        "additionalDataSources": [source],
        "grafana.ini": {
            **values["grafana.ini"],
            "aws": {"allowed_auth_providers": "default"},
            "plugins": {"preinstall": versions.GRAFANA_AMP_PLUGIN},
        },
        "sidecar": {**sidecar, "datasources": {**sidecar["datasources"], **beside}},
    }


def fsx_exporter_values(config: pulumi.Input[str]) -> dict[str, Any]:
    """Return the values of the exporter of CloudWatch metrics, with its own configuration
    (``file_system.exporter_config``)."""
    return {
        "fullnameOverride": FSX_EXPORTER,
        "serviceAccount": {"name": FSX_EXPORTER, "automountServiceAccountToken": False},
        "testConnection": False,
        "config": config,
        "resources": _resources("10m", "64Mi", "128Mi"),
        "podSecurityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _claim(gib: int) -> dict[str, Any]:
    """Return the spec of a claim of the default storage class, which is encrypted gp3."""
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{gib}Gi"}}}


def _resources(cpu: str, memory: str, memory_limit: str) -> Mapping[str, Mapping[str, str]]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory_limit}}
