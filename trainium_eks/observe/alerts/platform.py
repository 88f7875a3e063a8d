"""Alerts of the parts that the cluster and its monitoring need: webhooks, certificates, exporters, remote write,
rules."""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts.alert import Alert

EXPORTERS = "neuron-monitor|dcgm-exporter|efa-exporter|node-exporter|kube-state-metrics|fsx-exporter"
"""Label ``job`` of the targets without which other alerts see nothing."""

_VERIFY = "trn doctor --stack STACK"


def alerts(settings: AlertSettings) -> Sequence[Alert]:
    """Return the alerts of webhooks by the API server, of kubelets' certificates, and of Prometheus itself."""
    return [*_api(settings), *_prometheus(settings)]


def _api(settings: AlertSettings) -> list[Alert]:
    minutes = settings.failing_minutes
    return [
        Alert(
            "WebhookFailing",
            "critical",
            # A refusal by a webhook is no failure; an unreachable one refuses everything, or lets all pass.
            f"""
            sum by (name) (
              increase(apiserver_admission_webhook_rejection_count{{error_type!="no_error"}}[{minutes}m])
              or increase(apiserver_admission_webhook_fail_open_count[{minutes}m])
            ) > 0
            """,
            "The admission webhook {{ $labels.name }} cannot be called",
            f"About {{{{ $value | humanize }}}} calls failed in {minutes} minutes: it is down, its certificate has"
            " ended, or a security group or network policy is in the way. Where it is one of Volcano's, no job can be"
            " submitted.",
            "kubectl get pods --namespace volcano-system",
        ),
        Alert(
            "CertificateEnding",
            "warning",
            f"min by (node) (kubelet_certificate_manager_server_ttl_seconds) < {86_400 * settings.certificate_days}",
            "The kubelet's certificate on {{ $labels.node }} ends in {{ $value | humanizeDuration }}",
            "It should have been renewed long before. When it has ended, logs, exec and metrics of its pods end too.",
            "kubectl get csr",
            60,
        ),
    ]


def _prometheus(settings: AlertSettings) -> list[Alert]:
    minutes = settings.failing_minutes
    return [
        Alert(
            "ExporterDown",
            "warning",
            f'max by (job, node, instance) (up{{job=~"{EXPORTERS}"}} == 0)',
            "{{ $labels.job }} on {{ $labels.node }}{{ if not $labels.node }}{{ $labels.instance }}{{ end }} does not"
            " answer",
            f"For {minutes} minutes. Alerts that need its series cannot fire for this target.",
            _VERIFY,
            minutes,
        ),
        Alert(
            "RemoteWriteFailing",
            "warning",
            f"sum by (remote_name) (rate(prometheus_remote_storage_samples_failed_total[{minutes}m])) > 0",
            "Prometheus loses samples on the way to {{ $labels.remote_name }}",
            "{{ $value | humanize }} samples a second are refused for good. Dashboards over long times will have gaps.",
            "kubectl logs --namespace monitoring --selector app.kubernetes.io/name=prometheus --tail 50",
            minutes,
        ),
        Alert(
            "RemoteWriteBehind",
            "warning",
            """
            max by (remote_name) (prometheus_remote_storage_queue_highest_timestamp_seconds)
              - max by (remote_name) (prometheus_remote_storage_queue_highest_sent_timestamp_seconds)
              > 300
            """,
            "Prometheus is {{ $value | humanizeDuration }} behind in writing to {{ $labels.remote_name }}",
            "After about two hours what was not written is dropped.",
            "kubectl logs --namespace monitoring --selector app.kubernetes.io/name=prometheus --tail 50",
            minutes,
        ),
        Alert(
            "RulesFailing",
            "critical",
            f"sum by (rule_group) (increase(prometheus_rule_evaluation_failures_total[{minutes}m])) > 0",
            "Rules of {{ $labels.rule_group }} cannot be computed",
            "Alerts that need them do not fire.",
            "kubectl logs --namespace monitoring --selector app.kubernetes.io/name=prometheus --tail 50",
            minutes,
        ),
    ]
