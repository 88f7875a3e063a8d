"""TrainingStack: one environment, composed of all the other components from one validated config."""

from collections import Counter
from typing import Any

import pulumi
import pulumi_aws as aws

from trainium_eks.model.catalogue import node_templates
from trainium_eks.model.config import idle
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.autoscaling import served_groups
from trainium_eks.model.config.capacity import CapacityBlock, Reservation
from trainium_eks.model.config.namespaces import NamespaceConfig
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing import queues as queue_model

from ._args import outputs, validate_args, waivers_of
from ._dicts import StackConfigDict
from ._fabric_gate import make_gate
from ._foundation import Foundation
from ._shared_storage import SharedStorage
from ._stack_config import name_problems
from .cluster_autoscaler import AutoscaledGroup, ClusterAutoscaler
from .fsx_lustre import FsxLustre
from .gpu_addons import GpuAddons
from .idle_guard import GuardedGroup, IdleGuard
from .image_cache import cache_of, from_cache
from .image_repository import ImageRepository
from .karpenter import Karpenter
from .log_shipping import LogShipping
from .lustre_volumes import LustreVolumes
from .managed_grafana import ManagedGrafana
from .metrics_stack import MetricsStack
from .neuron_addons import NeuronAddons
from .sagemaker_training import SageMakerTraining
from .training_namespace import TrainingNamespace
from .volcano_stack import VolcanoStack

NOTIFICATIONS = ((50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED"))
"""Per cent of the budget's amount in a month, and the cost that is compared: actual or forecast."""


class TrainingStack(pulumi.ComponentResource):
    """Everything one environment needs to run distributed training.

    The whole config is validated here; components skip the validation of sections marked as validated
    (``mark_validated``).

    Data (file system, bucket) and compute (cluster, groups) are connected only by claims: the file system waits for its
    subnet and its own rules, never for the cluster, so that both are made at the same time.
    """

    cluster_name: pulumi.Output[str]
    """Name of the EKS cluster."""
    kubeconfig: pulumi.Output[str]
    """Kubeconfig as JSON text (secret: it names the endpoint)."""
    queue_names: pulumi.Output[list[str]]
    """Volcano queues, once they exist."""
    stack_outputs: dict[str, Any]
    """Everything that `trn` reads, as one output for programs in other languages; a program in Python exports each of
    `exports()`."""

    def __init__(
        self,
        name: str,
        config: StackConfig | StackConfigDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        config = validate_args(
            StackConfig,
            config,
            model.validate,
            f"TrainingStack {name}",
            waivers=waivers_of(config),
            naming=lambda _: name_problems(name),
            opts=opts,
        )
        if config.image_cache is not None:
            cache = cache_of(config.image_cache, config.region, config.allowed_account_ids[0])
            taken = pulumi.ResourceOptions(transforms=[from_cache(cache)])
            opts = pulumi.ResourceOptions.merge(opts, taken)
        super().__init__("trainium-eks:index:TrainingStack", name, {}, opts)
        self._config = config
        self._queues = queue_model.resolve(config.queues, model.pool(config))

        self._base = Foundation(self, name, config)
        self._shared = self._make_file_system()
        self._volcano = self._make_volcano()
        self._make_device_plugins()
        self._make_autoscalers()
        self._volumes = self._make_volumes()
        self._namespaces = {each.name: self._make_namespace(each) for each in config.namespaces}
        self._repository = self._make_repository()
        self._make_metrics()
        self._logs = self._make_logs()
        self._make_idle_guard()
        self._make_fabric_gate()
        self._sagemaker = self._make_sagemaker()
        self._make_spending_alert()

        self.cluster_name = self._base.cluster.cluster_name
        self.kubeconfig = pulumi.Output.secret(self._base.cluster.kubeconfig)
        self.queue_names = self._volcano.queue_names
        # No Output: in one, the kubeconfig would make all of it secret.
        self.stack_outputs = self.exports()
        self.register_outputs(outputs(self, TrainingStack))

    def exports(self) -> dict[str, pulumi.Input[Any]]:
        """Return the fields of :class:`trainium_eks.model.outputs.StackOutputs`, for ``pulumi.export``."""
        config = self._config
        return {
            "schemaVersion": 1,
            "region": config.region,
            "clusterName": self.cluster_name,
            "kubeconfig": self.kubeconfig,
            "updateKubeconfigCommand": pulumi.Output.concat(
                "aws eks update-kubeconfig --region ", config.region, " --name ", self.cluster_name
            ),
            "queueNames": self.queue_names,
            "queues": {queue.name: dict(queue.capability or {}) for queue in self._queues},
            "namespaces": [self._namespace_output(name) for name in self._namespaces],
            "nodeGroups": [self._node_group_output(group) for group in config.node_groups],
            "sharedVolume": self._shared.output() if self._shared else None,
            "imageRepository": self._repository.repository_url if self._repository else None,
            "baseImages": dict(config.image_repository.base_images) if config.image_repository else {},
            "serviceAccount": next((each.service_account for each in self._namespaces.values()), ""),
            "rendezvous": self._volcano.rendezvous_endpoint.apply(lambda endpoint: endpoint or "c10d"),
            "instanceTypes": dict(config.instance_types),
            "training": config.training.model_dump(by_alias=True),
            "logGroup": self._logs.log_group if self._logs else None,
            **({"sageMaker": self._sagemaker.output()} if self._sagemaker else {}),
            "hourlyUsd": round(bill.of_config(config).hourly_usd, 4),
            "otherHourlyUsd": round(bill.of_config(config.model_copy(update={"node_groups": ()})).hourly_usd, 4),
        }

    def _make_file_system(self) -> SharedStorage | None:
        base, section = self._base, self._config.file_system
        if section is None:
            return None
        made = base.make(
            FsxLustre,
            "fsx",
            section,
            subnet_id=self._file_system_subnet(section),
            client_security_group_ids={"cluster": base.cluster.cluster_security_group_id},
            tags=base.tags,
        )
        return SharedStorage(section, made)

    def _file_system_subnet(self, section: FileSystemConfig) -> pulumi.Output[str]:
        return self._base.network.private_subnet_id(section.zone_id or model.accelerator_zone(self._config))

    def _make_volcano(self) -> VolcanoStack:
        config = self._config
        return self._base.make(
            VolcanoStack,
            "volcano",
            config.volcano,
            self._base.in_cluster(),
            is_validated=False,
            queues=self._queues,
            pool=model.pool(config),
            rests_at_zero=model.rests_at_zero(config),
            topology_labels=model.topology_labels(config),
            rendezvous_namespaces=tuple(each.name for each in config.namespaces),
        )

    def _make_device_plugins(self) -> None:
        """Make the device plugins of the families in use; the EFA plugin is installed once, even for both families."""
        base, config = self._base, self._config
        family = {each: base.catalogue.find(each).family for each in base.accelerator_types}
        neuron = tuple(each for each, its in family.items() if its == "neuron")
        gpu = tuple(each for each, its in family.items() if its == "nvidia")
        if neuron:
            base.make(
                NeuronAddons,
                "neuron",
                config.neuron_addons,
                base.in_cluster(),
                is_validated=False,
                instance_types=neuron,
                efa_instance_types=base.efa_types,
            )
        if gpu:
            base.make(
                GpuAddons,
                "gpu",
                config.gpu_addons,
                base.in_cluster(),
                is_validated=False,
                instance_types=gpu,
                efa_instance_types=() if neuron else base.efa_types,
                volcano=self._volcano.admission,
            )

    def _make_autoscalers(self) -> None:
        """Make Karpenter and Cluster Autoscaler; they run on the system nodes, which neither removes."""
        base, autoscaling = self._base, self._config.autoscaling
        if autoscaling.karpenter is not None:
            base.make(
                Karpenter,
                "karpenter",
                autoscaling.karpenter,
                base.in_cluster(),
                is_validated=False,
                cluster_security_group_id=base.cluster.cluster_security_group_id,
                node_selector={POOL_LABEL: "system"},
                tags=base.tags,
            )
        if autoscaling.cluster_autoscaler is not None:
            base.make(
                ClusterAutoscaler,
                "autoscaler",
                autoscaling.cluster_autoscaler,
                base.in_cluster(),
                groups=(self._autoscaled_cpu_pool(), *map(self._autoscaled, served_groups(self._config))),
                node_selector={POOL_LABEL: "system"},
                tags=base.tags,
            )

    def _autoscaled_cpu_pool(self) -> AutoscaledGroup:
        nodes = self._config.cluster.cpu_nodes
        return AutoscaledGroup(
            name="cpu",
            instance_type=nodes.instance_type,
            autoscaling_group=self._base.cluster.autoscaling_group("cpu"),
            labels={POOL_LABEL: "cpu"},
            resources=node_templates.of_cpu_nodes(nodes),
        )

    def _autoscaled(self, group: NodeGroupConfig) -> AutoscaledGroup:
        """Return an accelerator group with the labels and resources of its nodes, which an empty group has not."""
        cluster = self._base.cluster
        return AutoscaledGroup(
            name=group.name,
            instance_type=group.instance_type,
            autoscaling_group=cluster.autoscaling_group(group.name),
            labels=cluster.groups[group.name].labels,
            resources=node_templates.of_group(group, self._base.catalogue),
        )

    def _make_volumes(self) -> LustreVolumes | None:
        """Make a volume for each namespace; volumes wait for the cluster, the file system does not."""
        if self._shared is None:
            return None
        section, file_system = self._shared.config, self._shared.file_system
        return self._base.make(
            LustreVolumes,
            "volumes",
            None,
            self._base.in_cluster(*file_system.client_access),
            is_validated=False,
            file_system_id=file_system.file_system_id,
            dns_name=file_system.dns_name,
            mount_name=file_system.mount_name,
            storage_capacity_gib=section.storage_capacity_gib,
            subnet_id=self._file_system_subnet(section),
            security_group_id=file_system.security_group_id,
            root=self._shared.root,
            on_demand=section.on_demand,
            namespaces={each.name: each.training_user_id for each in self._config.namespaces},
        )

    def _make_namespace(self, section: NamespaceConfig) -> TrainingNamespace:
        config, volumes = self._config, self._volumes
        capability = {queue.name: queue.capability or {} for queue in self._queues}
        own: Counter[str] = Counter()
        for queue in section.queues:
            own.update(capability[queue] if isinstance(queue, str) else {})
        linked = self._shared.linked_bucket(config.region) if self._shared else {}
        return self._base.make(
            TrainingNamespace,
            section.name,
            section,
            self._base.in_cluster(),
            queue_capability=dict(own),
            room=model.room(config),
            shared_nodes=model.shared_nodes(config, section),
            block_ends={each.name: times["ends"] for each in config.node_groups if (times := _block_times(each))},
            volume_name=volumes.volume_name(section.name) if volumes else None,
            volume_gib=config.file_system.storage_capacity_gib if config.file_system else 0,
            volume_class=volumes.shared_class_name if volumes else "",
            **linked,
            rendezvous=config.volcano.rendezvous,
            volcano=self._volcano.admission,
        )

    def _make_repository(self) -> ImageRepository | None:
        section = self._config.image_repository
        return self._base.make(ImageRepository, "images", section) if section is not None else None

    def _make_metrics(self) -> None:
        """Make Prometheus with its exporters, and Grafana, in the cluster or as a service."""
        base, shared, section = self._base, self._shared, self._config.observability
        if section.metrics is None:
            return
        cluster = self._config.cluster
        others = (cluster.system_nodes.instance_type, cluster.cpu_nodes.instance_type)
        metrics = base.make(
            MetricsStack,
            "metrics",
            section.metrics,
            base.in_cluster(),
            grafana=section.grafana,
            instance_types=tuple(dict.fromkeys((*base.accelerator_types, *others))),
            efa_instance_types=base.efa_types,
            node_selector={POOL_LABEL: "cpu"},
            file_system_id=shared.file_system.file_system_id if shared else None,
            exports_to_s3=shared is not None and shared.exports_to_s3,
            tags=base.tags,
        )
        if section.grafana is not None and section.grafana.managed is not None:
            workspace, tags = metrics.workspace_arn, base.tags
            base.make(ManagedGrafana, "grafana", section.grafana.managed, workspace_arn=workspace, tags=tags)

    def _make_logs(self) -> LogShipping | None:
        base, section = self._base, self._config.observability.logs
        return base.make(LogShipping, "logs", section, base.in_cluster(), tags=base.tags) if section else None

    def _make_idle_guard(self) -> None:
        base, section = self._base, self._config.idle_guard
        groups = {group.name: self._guarded(group) for group in idle.guarded(self._config)}
        if section is not None and groups:
            base.make(IdleGuard, "idle", section, base.in_cluster(), groups=groups, tags=base.tags)

    def _guarded(self, group: NodeGroupConfig) -> GuardedGroup:
        return GuardedGroup(
            eks_name=self._base.cluster.groups[group.name].node_group_name,
            devices=tuple(self._base.catalogue.device_resources(group.instance_type)),
            minimum=group.min_size,
            removes=idle.removes_from(group),
        )

    def _make_fabric_gate(self) -> None:
        base, section = self._base, self._config.fabric_gate
        if section is not None and base.accelerator_pools:
            make_gate(base.name, section, base.accelerator_pools, base.catalogue, base.in_cluster())

    def _make_sagemaker(self) -> SageMakerTraining | None:
        """Make role, security group and bucket of SageMaker's training jobs, and the endpoints."""
        base, config, section = self._base, self._config, self._config.sage_maker
        if section is None:
            return None
        repository, shared, subnets = self._repository, self._shared, tuple(base.subnets().values())
        linked = shared.bucket() if section.bucket is None and shared is not None else {}
        made = base.make(
            SageMakerTraining,
            "sagemaker",
            section,
            subnet_ids=subnets,
            repository_arn=repository.repository_arn if repository else None,
            file_system_security_group_id=shared.file_system.security_group_id if shared else None,
            protect=config.production,
            tags=base.tags,
            **linked,
        )
        if config.sage_maker_endpoints:
            # Here, not at the top: pulumi_aws.sagemaker takes as long to import as a tenth of all modules of a stack.
            from .sagemaker_endpoint import SageMakerEndpoint
        for each in config.sage_maker_endpoints:
            base.make(
                SageMakerEndpoint,
                each.name,
                each,
                subnet_ids=subnets,
                bucket=made.bucket_name,
                bucket_key_arn=linked.get("bucket_key_arn", section.bucket_key_arn),
                prefix=section.prefix,
                tags=base.tags,
            )
        return made

    def _make_spending_alert(self) -> None:
        """Make a budget that sends e-mails, over all resources with the environment's tag ``Environment``."""
        alert = self._config.budget.alert
        if alert is None:
            return
        aws.budgets.Budget(
            f"{self._name}-budget",
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{alert.monthly_usd:.2f}",
            limit_unit="USD",
            # How AWS Budgets spells a tag that a user has set, and its value.
            cost_filters=[
                aws.budgets.BudgetCostFilterArgs(name="TagKeyValue", values=[f"user:Environment${pulumi.get_stack()}"])
            ],
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
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _namespace_output(self, name: str) -> dict[str, pulumi.Input[Any]]:
        namespace = self._namespaces[name]
        config = next(each for each in self._config.namespaces if each.name == name)
        return {
            "name": namespace.namespace,
            "queues": namespace.queue_names,
            "serviceAccount": namespace.service_account,
            "claim": namespace.claim_name,
            "priorityClasses": list(config.priority_classes),
            "trainingUserId": config.training_user_id,
            "wholeNodes": bool(model.shared_nodes(self._config, config)) and not config.partial_nodes,
        }

    def _node_group_output(self, group: NodeGroupConfig) -> dict[str, pulumi.Input[Any]]:
        catalogue = self._base.catalogue
        return {
            "name": group.name,
            "eksName": self._base.cluster.groups[group.name].node_group_name,
            "instanceType": group.instance_type,
            "zoneId": model.group_zone(self._config, group),
            "minSize": group.min_size,
            "maxSize": group.max_size,
            "desiredSize": None if group.ignore_desired_size else group.desired_size,
            "resources": catalogue.device_resources(group.instance_type),
            "labels": catalogue.node_labels(group.instance_type),
            "capacity": group.capacity.type,
            "reservation": group.capacity.id if isinstance(group.capacity, Reservation | CapacityBlock) else "",
            "placementGroup": self._base.cluster.groups[group.name].placement_group or "",
            "allOrNothing": group.all_or_nothing,
            **_block_times(group),
        }


def _block_times(group: NodeGroupConfig) -> dict[str, str]:
    """Return the start and the end of a group's Capacity Block; empty where the config does not give them."""
    capacity = group.capacity
    if not isinstance(capacity, CapacityBlock) or not capacity.starts or not capacity.ends:
        return {}
    return {"starts": capacity.starts, "ends": capacity.ends}
