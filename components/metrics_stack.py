"""MetricsStack: Prometheus with its exporters, Grafana with this library's dashboards, Amazon Managed Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model.catalogue import regions, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config import namespaces, observability
from trainium_eks.model.config.observability import GrafanaConfig, MetricsConfig
from trainium_eks.model.policies.addon_policies import Statement, allow
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import LooseStr, StrictBool
from trainium_eks.model.validation.problems import Problem, under
from trainium_eks.observe import rules
from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.series import file_system, scraping

from . import _charts, _ids, _pod_identity
from . import _metrics_values as chart_values
from ._args import AwsCallerArgs, Text, computed, outputs, validate_args
from ._dicts import MetricsStackArgsDict
from ._efa_plugin import efa_problems

NAMESPACE = namespaces.MONITORING
NAMESPACE_REASON = "node-exporter and the EFA exporter read their node's /proc and /sys"
EFA_CHART = "efa-exporter"
DASHBOARDS_CHART = "grafana-dashboards"
FSX_CHART = "prometheus-yet-another-cloudwatch-exporter"
WEBHOOK_PORT = 10250
"""Port of the Prometheus Operator's admission webhook, which the API server calls for rules."""

WRITE_ACTIONS = ("aps:RemoteWrite",)
QUERY_ACTIONS = ("aps:QueryMetrics", "aps:GetSeries", "aps:GetLabels", "aps:GetMetricMetadata")
"""IAM actions for writing to and reading from a workspace (AMP user guide, IAM permissions)."""


class MetricsStackArgs(AwsCallerArgs, MetricsConfig):
    """Args of :class:`MetricsStack`, the config section with its wiring."""

    grafana: GrafanaConfig | None = None
    """Grafana; None for none."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Source of the taints of nodes with EFA, and of prices."""
    instance_types: tuple[str, ...] = ()
    """Types of the cluster's nodes: their prices are recorded, as far as the catalogue has them."""
    efa_instance_types: tuple[str, ...] = ()
    """Types with EFA interfaces: each of their nodes gets an exporter of EFA counters."""
    file_system_id: _ids.FileSystemId | None = None
    """Lustre file system to read CloudWatch metrics of; None for none."""
    node_selector: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Labels of the nodes for Prometheus, Grafana and Alertmanager, all in one zone: an EBS volume stays in its zone,
    and its pod needs a node there. Empty: any node without a taint."""
    exports_to_s3: StrictBool = False
    """Whether that file system exports to S3 automatically, so that its export lag is read."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key of the workspace of Amazon Managed Prometheus; None for a key of AWS' own. Its policy must let the service
    use it for its callers, as the policy of ``EncryptionKey`` does. Another key is another workspace."""


def validate(args: MetricsStackArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = observability.metrics_problems(args, region=args.region)
    if args.grafana is not None:
        found += under("grafana", observability.grafana_problems(args.grafana, args))
    found += efa_problems(args.efa_instance_types, args.catalogue)
    found += _charts.plain_problems(args.values, "values")
    found += formats.tags("tags", args.tags)
    return found


class MetricsStack(pulumi.ComponentResource):
    """Prometheus, kube-state-metrics, exporters on every node, Grafana, and a workspace for longer retention.

    The Kubernetes provider comes by ``opts.providers``. Everything is in a separate namespace that is closed to outside
    traffic: people use ``kubectl port-forward``. Pods get their AWS permissions by Pod Identity, and never from the
    instance metadata service.
    """

    namespace: pulumi.Output[str]
    """Namespace of everything in the cluster."""
    workspace_id: pulumi.Output[str]
    """Workspace of Amazon Managed Prometheus; empty without one."""
    workspace_arn: pulumi.Output[str]
    """Its ARN; empty without one."""
    workspace_endpoint: pulumi.Output[str]
    """Its URL, with a slash at the end; empty without one."""
    grafana_service: pulumi.Output[str]
    """Name of Grafana's Service, port 80; empty without Grafana in the cluster."""

    def __init__(
        self, name: str, args: MetricsStackArgs | MetricsStackArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(MetricsStackArgs, args, validate, f"MetricsStack {name}", opts=opts)
        super().__init__("trainium-eks:index:MetricsStack", name, {}, opts)
        self._args = args

        self._namespace = _charts.namespace(
            f"{name}-namespace", NAMESPACE, "privileged", NAMESPACE_REASON, pulumi.ResourceOptions(parent=self)
        )
        self._close_namespace()
        self._workspace = self._make_workspace() if args.managed_prometheus else None
        self._release = self._install()
        self._ask()
        self._compute()
        if args.grafana is not None and args.grafana.in_cluster:
            self._show()
        if args.efa_instance_types:
            self._export_efa()
        if args.file_system_id is not None:
            self._export_file_system(args.file_system_id)

        empty = pulumi.Output.from_input("")
        self.namespace = self._namespace.metadata["name"]
        self.workspace_id = self._workspace.id if self._workspace else empty
        self.workspace_arn = self._workspace.arn if self._workspace else empty
        self.workspace_endpoint = self._workspace.prometheus_endpoint if self._workspace else empty
        has_grafana = args.grafana is not None and args.grafana.in_cluster
        self.grafana_service = pulumi.Output.from_input(chart_values.GRAFANA_ACCOUNT if has_grafana else "")
        self.register_outputs(outputs(self, MetricsStack))

    def _within(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[self._namespace, *after])

    def _close_namespace(self) -> None:
        """Admit only traffic of the namespace's pods, and the API server's calls of the webhook, from addresses that no
        policy can know. A forwarded port comes from the pod's node, which policies always admit."""
        own = k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=k8s.meta.v1.LabelSelectorArgs())
        webhook = k8s.networking.v1.NetworkPolicyPortArgs(port=WEBHOOK_PORT, protocol="TCP")
        admitted = (
            k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[own]),
            k8s.networking.v1.NetworkPolicyIngressRuleArgs(ports=[webhook]),
        )
        _charts.close_namespace(f"{self._name}-ingress", "monitoring-ingress", NAMESPACE, self._within(), admitted)

    def _make_workspace(self) -> aws.amp.Workspace:
        return aws.amp.Workspace(
            f"{self._name}-workspace",
            alias=self._name,
            kms_key_arn=self._args.kms_key_arn,
            tags={"Name": self._name, **self._args.tags},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _install(self) -> k8s.helm.v3.Release:
        """Install the chart after the roles: a pod that starts without a role never gets one."""
        args, workspace = self._args, self._workspace
        endpoint = computed(workspace.prometheus_endpoint) if workspace else None
        written = chart_values.Workspace(endpoint, args.region, args.cluster_name) if endpoint is not None else None
        values = chart_values.stack_values(args, args.grafana, args.region, written, args.node_selector)
        return _charts.release(
            f"{self._name}-release",
            _charts.chart(chart_values.CHART),
            release_name=chart_values.RELEASE_NAME,
            namespace=NAMESPACE,
            values=_charts.overlay(values, args.values),
            opts=self._within(*self._roles()),
        )

    def _roles(self) -> Iterator[pulumi.Resource]:
        args = self._args
        if self._workspace is not None:
            arn = self._workspace.arn
            yield self._role(
                "prometheus", chart_values.PROMETHEUS_ACCOUNT, arn.apply(lambda known: [_on(known, WRITE_ACTIONS)])
            )
            if args.grafana is not None and args.grafana.in_cluster:
                yield self._role("grafana", chart_values.GRAFANA_ACCOUNT, arn.apply(query_statements))
        if args.alerts is not None:
            statements = alert_statements(args.region, args.alerts)
            yield self._role("alertmanager", chart_values.ALERTMANAGER_ACCOUNT, statements)

    def _role(
        self, key: str, service_account: str, statements: pulumi.Input[list[Statement]]
    ) -> aws.eks.PodIdentityAssociation:
        return _pod_identity.make_role(
            f"{self._name}-{key}",
            self._args,
            NAMESPACE,
            service_account,
            statements,
            role_name=f"{self._name}-{key}-role",
            parent=self,
        ).association

    def _ask(self) -> None:
        """Make the scrape targets in addition to the chart's."""
        absent = {
            scraping.EFA_EXPORTER.name: not self._args.efa_instance_types,
            scraping.FSX_EXPORTER.name: self._args.file_system_id is None,
        }
        for scrape in scraping.SCRAPES:
            if absent.get(scrape.name):
                continue
            self._make_selected(scrape.kind, scrape.name, scrape.spec())

    def _compute(self) -> None:
        """Make the recording rules, and the alerts."""
        # Types without a list price are bought by the block.
        price = self._args.catalogue.price
        prices = {name: price(name) or price(name, "capacity-block") for name in self._args.instance_types}
        found = {
            "trn-recording": rules.recording({name: each.hourly_usd for name, each in prices.items() if each}),
            "trn-alerts": rules.alerts(self._args.thresholds, pulumi.get_stack()),
        }
        for name, groups in found.items():
            self._make_selected("PrometheusRule", name, {"groups": groups})

    def _make_selected(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        """Make an object of the Prometheus Operator with the labels by which Prometheus selects it."""
        k8s.apiextensions.CustomResource(
            f"{self._name}-{name}",
            api_version=scraping.API_VERSION,
            kind=kind,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE, labels=dict(chart_values.SELECTED)),
            spec=spec,
            opts=self._within(self._release),
        )

    def _show(self) -> None:
        """Install the dashboards, which Grafana's sidecar loads as they appear. They are in a chart, because Pulumi
        replaces a ConfigMap for every change of its text and Helm updates it."""
        _charts.release(
            f"{self._name}-dashboards",
            _charts.local_chart(DASHBOARDS_CHART),
            release_name=DASHBOARDS_CHART,
            namespace=NAMESPACE,
            values={"dashboards": dict(dashboards())},
            opts=self._within(),
        )

    def _export_efa(self) -> None:
        types = sorted(set(self._args.efa_instance_types))
        _charts.release(
            f"{self._name}-{EFA_CHART}",
            _charts.local_chart(EFA_CHART),
            release_name=EFA_CHART,
            namespace=NAMESPACE,
            values={
                "image": versions.IMAGES["python"],
                "instanceTypes": types,
                "tolerations": _charts.tolerations(types, self._args.catalogue),
            },
            opts=self._within(),
            on_failure="keep",
        )

    def _export_file_system(self, file_system_id: Text) -> None:
        args = self._args
        config = pulumi.Output.from_input(file_system_id).apply(
            lambda known: file_system.exporter_config(args.region, known, exports=args.exports_to_s3)
        )
        role = self._role(chart_values.FSX_EXPORTER, chart_values.FSX_EXPORTER, CLOUDWATCH_STATEMENTS)
        _charts.release(
            f"{self._name}-{chart_values.FSX_EXPORTER}",
            _charts.chart(FSX_CHART),
            release_name=chart_values.FSX_EXPORTER,
            namespace=NAMESPACE,
            values=chart_values.fsx_exporter_values(config),
            opts=self._within(role),
            on_failure="keep",
        )


CLOUDWATCH_STATEMENTS: list[Statement] = [allow("cloudwatch:GetMetricStatistics", "*")]
"""Rights of YACE for a resource that its configuration names; CloudWatch has no ARNs of metrics to narrow them to."""


def query_statements(workspace_arn: str) -> list[Statement]:
    """Return the rights for reading one workspace."""
    return [_on(workspace_arn, QUERY_ACTIONS)]


def alert_statements(region: str, alerts: observability.AlertsConfig) -> list[Statement]:
    """Return the rights for publishing to an SNS topic: the topic, and its key through SNS alone."""
    found: list[Statement] = [_on(alerts.topic_arn, ("sns:Publish",))]
    if alerts.topic_key_arn is not None:
        through = {"kms:ViaService": f"sns.{region}.{regions.dns_suffix(region)}"}
        key = _on(alerts.topic_key_arn, ("kms:Decrypt", "kms:GenerateDataKey"))
        found.append({**key, "Condition": {"StringEquals": through}})
    return found


def _on(resource: str, actions: tuple[str, ...]) -> Statement:
    return allow(list(actions), resource)
