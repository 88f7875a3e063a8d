"""A stack's components for observability: metrics, Grafana, and the logs of containers."""

from trainium_eks.model.config.node_groups import POOL_LABEL
from trainium_eks.model.validation.config_model import mark_validated

from ._args import merge_args, waivers_of
from ._foundation import Foundation
from ._stack_nodes import accelerator_types, types_with_efa
from ._stack_storage import SharedStorage
from .log_shipping import LogShipping, LogShippingArgs
from .managed_grafana import ManagedGrafana, ManagedGrafanaArgs
from .metrics_stack import MetricsStack, MetricsStackArgs


def make_metrics(base: Foundation, shared: SharedStorage | None) -> None:
    """Make Prometheus with its exporters, and Grafana, in the cluster or as a service, if the config has them."""
    observability = base.config.observability
    if observability.metrics is None:
        return
    args = merge_args(
        MetricsStackArgs,
        observability.metrics,
        grafana=observability.grafana,
        catalogue=base.catalogue,
        instance_types=_types_of_nodes(base),
        efa_instance_types=types_with_efa(base),
        node_selector={POOL_LABEL: "cpu"},
        file_system_id=shared.file_system.file_system_id if shared else None,
        exports_to_s3=shared is not None and shared.exports_to_s3,
        kms_key_arn=base.key.key_arn,
        **base.for_aws_callers,
    )
    metrics = MetricsStack(f"{base.name}-metrics", mark_validated(args), base.in_cluster())
    if observability.grafana is not None and observability.grafana.managed is not None:
        managed = merge_args(
            ManagedGrafanaArgs,
            observability.grafana.managed,
            workspace_arn=metrics.workspace_arn,
            permissions_boundary=base.config.permissions_boundary,
            tags=base.tags,
        )
        ManagedGrafana(f"{base.name}-grafana", mark_validated(managed), base.child())


def _types_of_nodes(base: Foundation) -> tuple[str, ...]:
    cluster = base.config.cluster
    others = cluster.system_nodes.instance_type, cluster.cpu_nodes.instance_type
    return tuple(dict.fromkeys([*accelerator_types(base), *others]))


def make_logs(base: Foundation) -> LogShipping | None:
    """Make the shipping of container logs to CloudWatch, if the config has it."""
    config = base.config
    if config.observability.logs is None:
        return None
    args = merge_args(
        LogShippingArgs,
        config.observability.logs,
        kms_key_arn=base.key.key_arn,
        production=config.production,
        waivers=waivers_of(config),
        **base.for_aws_callers,
    )
    return LogShipping(f"{base.name}-logs", mark_validated(args), base.in_cluster())
