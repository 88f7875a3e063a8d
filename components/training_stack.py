"""TrainingStack: one environment, composed of all the other components from one validated config."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.capacity import CapacityBlock, Reservation
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing import queues as queue_model
from trainium_eks.model.validation.config_model import mark_validated

from ._args import merge_args, outputs, validate_args, waivers_of
from ._dicts import StackConfigDict
from ._foundation import make_foundation
from ._stack_config import name_problems
from ._stack_nodes import make_autoscaling, make_device_addons, make_fabric_gate, make_idle_guard
from ._stack_observability import make_logs, make_metrics
from ._stack_sagemaker import make_sagemaker
from ._stack_storage import make_storage, make_volumes
from .image_cache import cache_of, from_cache
from .image_repository import ImageRepository, ImageRepositoryArgs
from .training_namespace import TrainingNamespace, TrainingNamespaceArgs
from .volcano_stack import VolcanoStack, VolcanoStackArgs

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

        self._base = make_foundation(name, config, self)
        self._shared = make_storage(self._base)
        self._volcano = self._make_volcano()
        make_device_addons(self._base, self._volcano)
        make_autoscaling(self._base)
        self._volumes = make_volumes(self._base, self._shared)
        self._namespaces = self._make_namespaces()
        self._repository = self._make_repository()
        make_metrics(self._base, self._shared)
        self._logs = make_logs(self._base)
        make_idle_guard(self._base)
        make_fabric_gate(self._base)
        self._sagemaker = make_sagemaker(self._base, self._shared, self._repository)
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

    def _make_volcano(self) -> VolcanoStack:
        config = self._config
        args = merge_args(
            VolcanoStackArgs,
            config.volcano,
            queues=self._queues,
            pool=model.pool(config),
            rests_at_zero=model.rests_at_zero(config),
            topology_labels=model.topology_labels(config),
            rendezvous_namespaces=tuple(each.name for each in config.namespaces),
            waivers=waivers_of(config),
        )
        return VolcanoStack(f"{self._name}-volcano", args, self._base.in_cluster())

    def _make_namespaces(self) -> dict[str, TrainingNamespace]:
        config, base = self._config, self._base
        capability = {queue.name: dict(queue.capability or {}) for queue in self._queues}
        made: dict[str, TrainingNamespace] = {}
        linked = self._shared.linked_bucket(config.region) if self._shared else {}
        for each in config.namespaces:
            args = merge_args(
                TrainingNamespaceArgs,
                each,
                region=config.region,
                cluster_name=base.cluster.cluster_name,
                queue_capability=_sum(capability[queue] for queue in each.queues if isinstance(queue, str)),
                room=model.room(config),
                shared_nodes=model.shared_nodes(config, each),
                volume_name=self._volumes.volume_name(each.name) if self._volumes else None,
                volume_gib=config.file_system.storage_capacity_gib if config.file_system else 0,
                volume_class=self._volumes.shared_class_name if self._volumes else "",
                **{"kms_key_arn": base.key.key_arn, **linked},
                permissions_boundary=config.permissions_boundary,
                rendezvous=config.volcano.rendezvous,
                volcano=self._volcano.admission,
            )
            made[each.name] = TrainingNamespace(f"{self._name}-{each.name}", mark_validated(args), base.in_cluster())
        return made

    def _make_repository(self) -> ImageRepository | None:
        config, base = self._config, self._base
        if config.image_repository is None:
            return None
        args = merge_args(
            ImageRepositoryArgs, config.image_repository, region=config.region, kms_key_arn=base.key.key_arn
        )
        return ImageRepository(f"{self._name}-images", mark_validated(args), base.child())

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
        }


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amount in amounts:
        for resource, count in amount.items():
            total[resource] = total.get(resource, 0) + count
    return total
