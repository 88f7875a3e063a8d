"""TrainingStack: one environment, composed of all the other components from one validated config."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from trainium_eks.model import autoscaling, bill, idle, karpenter, node_templates, storage
from trainium_eks.model import config as model
from trainium_eks.model import queues as queue_model
from trainium_eks.model.capacity import CapacityBlock, Reservation
from trainium_eks.model.config import StackConfig
from trainium_eks.model.karpenter import KarpenterConfig
from trainium_eks.model.node_groups import POOL_LABEL, NodeGroupConfig
from trainium_eks.model.problems import Problem, config_path, refused
from trainium_eks.model.shape import ShapeError, judged
from trainium_eks.model.storage import S3Durability

from . import _iam
from ._args import ArgumentError, accept, extend, text, waivers_of
from ._dicts import StackConfigDict
from ._spending_alert import make_spending_alert
from .cluster import TrainiumCluster, TrainiumClusterArgs
from .cluster_autoscaler import AutoscaledGroup, ClusterAutoscaler, ClusterAutoscalerArgs
from .encryption_key import EncryptionKey, EncryptionKeyArgs
from .fsx_lustre import FsxLustre, FsxLustreArgs
from .gpu_addons import GpuAddons, GpuAddonsArgs
from .idle_guard import GuardedGroup, IdleGuard, IdleGuardArgs
from .image_repository import ImageRepository, ImageRepositoryArgs
from .karpenter import Karpenter, KarpenterArgs
from .log_shipping import LogShipping, LogShippingArgs
from .lustre_volumes import LustreVolumes, LustreVolumesArgs
from .managed_grafana import ManagedGrafana, ManagedGrafanaArgs
from .metrics_stack import MetricsStack, MetricsStackArgs
from .network import ExistingNetwork, ExistingNetworkArgs, Network, NetworkArgs
from .neuron_addons import NeuronAddons, NeuronAddonsArgs
from .training_namespace import TrainingNamespace, TrainingNamespaceArgs
from .volcano_stack import VolcanoStack, VolcanoStackArgs


def read_config() -> StackConfig:
    """The running program's config as one validated model.

    Raises:
        ArgumentError: with every problem of the whole stack, spelled as in the config file.
    """
    project, stack = pulumi.get_project(), pulumi.get_stack()
    prefix = f"{project}:"
    # pulumi.Config can only be asked for names one knows; a misspelt name must be seen too.
    every = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    values = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    subject = f"Pulumi.{stack}.yaml"
    try:
        config = model.load(values)
    except ShapeError as error:
        beside = refused(model.problems_beside(values, error.problems), waivers_of(model.decode(values)))
        raise ArgumentError(subject, [*error.problems, *beside], spell=config_path) from None
    return accept(StackConfig, config, model.problems, subject, waivers=waivers_of(config), spell=config_path)


def default_tags(config: StackConfig) -> dict[str, str]:
    """The tags of everything in the running environment: the AWS provider's default tags.

    The stack passes them to its components too, for what the provider's tags do not reach: instances, volumes and
    interfaces that a node group launches.
    """
    return model.tags(config, environment=pulumi.get_stack())


class TrainingStack(pulumi.ComponentResource):
    """Everything one environment needs to run distributed training.

    The whole config is judged here; the components get their sections marked as judged (``judged``) and check only what
    is their own.

    What holds data (file system, bucket) and what runs (cluster, groups) meet only where a claim binds: the file
    system waits for its subnet and its own rules, never for the cluster, so that both are made at the same time.
    """

    cluster_name: pulumi.Output[str]
    """Name of the EKS cluster."""
    kubeconfig: pulumi.Output[str]
    """Kubeconfig as JSON text (secret: it names the endpoint)."""
    queue_names: pulumi.Output[list[str]]
    """Volcano queues, once they exist."""

    def __init__(
        self,
        name: str,
        config: StackConfig | StackConfigDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        config = accept(
            StackConfig,
            config,
            model.problems,
            f"TrainingStack {name}",
            waivers=waivers_of(config),
            naming=lambda _: _name_problems(name),
        )
        super().__init__("trainium-eks:index:TrainingStack", name, {}, opts)
        self._config = config
        self._catalogue = model.catalogue(config)
        self._queues = queue_model.resolve(config.queues, model.pool(config))

        self._key = EncryptionKey(f"{name}-key", EncryptionKeyArgs(region=config.region), self._child())
        self._network = self._make_network()
        self._cluster = self._make_cluster()
        self._file_system = self._make_file_system()
        self._volcano = self._make_volcano()
        self._make_device_addons()
        self._make_autoscaling()
        self._volumes = self._make_volumes()
        self._namespaces = self._make_namespaces()
        self._repository = self._make_repository()
        self._make_managed_grafana(self._make_metrics())
        self._logs = self._make_logs()
        self._make_idle_guard()
        self._make_spending_alert()

        self.cluster_name = self._cluster.cluster_name
        self.kubeconfig = pulumi.Output.secret(self._cluster.kubeconfig)
        self.queue_names = self._volcano.queue_names
        self.register_outputs(
            {"cluster_name": self.cluster_name, "kubeconfig": self.kubeconfig, "queue_names": self.queue_names}
        )

    def exports(self) -> dict[str, pulumi.Input[Any]]:
        """The fields of :class:`trainium_eks.model.outputs.StackOutputs`, for ``pulumi.export``."""
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
            "sharedVolume": self._shared_volume_output(),
            "imageRepository": self._repository.repository_url if self._repository else None,
            "baseImages": dict(config.image_repository.base_images) if config.image_repository else {},
            "serviceAccount": next((each.service_account for each in self._namespaces.values()), ""),
            "rendezvous": self._volcano.rendezvous_endpoint.apply(lambda endpoint: endpoint or "c10d"),
            "instanceTypes": dict(config.instance_types),
            "training": config.training.model_dump(by_alias=True),
            "logGroup": self._logs.log_group if self._logs else None,
            "hourlyUsd": round(bill.of_config(config).hourly_usd, 4),
            "otherHourlyUsd": round(bill.of_config(config.model_copy(update={"node_groups": ()})).hourly_usd, 4),
        }

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self)

    def _in_cluster(self, *also: pulumi.Resource) -> pulumi.ResourceOptions:
        """For what lives in Kubernetes: the cluster's own provider, once system nodes and DNS are there."""
        wait_for = [*self._cluster.ready, *also]
        return pulumi.ResourceOptions(parent=self, providers=[self._cluster.provider], depends_on=wait_for)

    def _make_network(self) -> Network | ExistingNetwork:
        config, name = self._config, f"{self._name}-network"
        if config.existing_network is not None:
            wiring = extend(ExistingNetworkArgs, config.existing_network, region=config.region)
            return ExistingNetwork(name, judged(wiring), self._child())
        args = extend(
            NetworkArgs,
            config.network,
            zone_ids=model.zone_ids(config),
            region=config.region,
            kms_key_arn=self._key.key_arn,
            permissions_boundary=config.permissions_boundary,
        )
        return Network(name, judged(args), self._child())

    def _make_cluster(self) -> TrainiumCluster:
        config, network = self._config, self._network
        args = extend(
            TrainiumClusterArgs,
            config.cluster,
            region=config.region,
            vpc_id=network.vpc_id,
            vpc_cidr_block=network.cidr_block,
            subnet_ids_by_zone={zone: network.private_subnet_id(zone) for zone in network.zone_ids},
            egress=tuple(network.egress),
            node_groups=config.node_groups,
            catalogue=self._catalogue,
            kms_key_arn=self._key.key_arn,
            permissions_boundary=config.permissions_boundary,
            file_systems_on_demand=config.file_system is not None and config.file_system.on_demand,
            production=config.production,
            tags=default_tags(config),
            waivers=waivers_of(config),
        )
        return TrainiumCluster(f"{self._name}-cluster", judged(args), self._child())

    def _make_file_system(self) -> FsxLustre | None:
        config = self._config
        if config.file_system is None:
            return None
        zone = config.file_system.zone_id or model.accelerator_zone(config)
        args = extend(
            FsxLustreArgs,
            config.file_system,
            region=config.region,
            vpc_id=self._network.vpc_id,
            subnet_id=self._network.private_subnet_id(zone),
            kms_key_arn=self._key.key_arn,
            client_security_group_ids={"cluster": self._cluster.cluster_security_group_id},
            production=config.production,
            tags=default_tags(config),
            waivers=waivers_of(config),
        )
        return FsxLustre(f"{self._name}-fsx", judged(args), self._child())

    def _make_device_addons(self) -> None:
        """Device plugins for the families in use; the EFA plugin is installed once, whatever the mix."""
        config = self._config
        groups = (*config.node_groups, *karpenter.as_groups(config))
        types = dict.fromkeys(group.instance_type for group in groups)
        neuron = tuple(each for each in types if self._catalogue.find(each).family == "neuron")
        gpu = tuple(each for each in types if self._catalogue.find(each).family == "nvidia")
        efa = self._types_with_efa()
        common = {"region": config.region, "catalogue": self._catalogue}
        if neuron:
            args = extend(
                NeuronAddonsArgs, config.neuron_addons, instance_types=neuron, efa_instance_types=efa, **common
            )
            NeuronAddons(f"{self._name}-neuron", args, self._in_cluster())
        if gpu:
            gpu_args = extend(
                GpuAddonsArgs,
                config.gpu_addons,
                instance_types=gpu,
                efa_instance_types=() if neuron else efa,
                volcano=self._volcano.admission,
                **common,
            )
            GpuAddons(f"{self._name}-gpu", gpu_args, self._in_cluster())

    def _make_volcano(self) -> VolcanoStack:
        config = self._config
        args = extend(
            VolcanoStackArgs,
            config.volcano,
            queues=self._queues,
            pool=model.pool(config),
            rests_at_zero=model.rests_at_zero(config),
            rendezvous_namespaces=tuple(each.name for each in config.namespaces),
            waivers=waivers_of(config),
        )
        return VolcanoStack(f"{self._name}-volcano", args, self._in_cluster())

    def _make_autoscaling(self) -> None:
        """Both run on the system nodes, which nobody removes."""
        config = self._config
        if config.autoscaling.karpenter is not None:
            self._make_karpenter(config.autoscaling.karpenter)
        if config.autoscaling.cluster_autoscaler is None:
            return
        args = extend(
            ClusterAutoscalerArgs,
            config.autoscaling.cluster_autoscaler,
            region=config.region,
            cluster_name=self._cluster.cluster_name,
            groups=self._autoscaled_groups(),
            kubernetes_version=config.cluster.kubernetes_version,
            node_selector={POOL_LABEL: "system"},
            permissions_boundary=config.permissions_boundary,
            catalogue=self._catalogue,
            tags=default_tags(config),
        )
        ClusterAutoscaler(f"{self._name}-autoscaler", judged(args), self._in_cluster())

    def _make_karpenter(self, section: KarpenterConfig) -> None:
        config, network = self._config, self._network
        args = extend(
            KarpenterArgs,
            section,
            region=config.region,
            cluster_name=self._cluster.cluster_name,
            cluster_security_group_id=self._cluster.cluster_security_group_id,
            vpc_id=network.vpc_id,
            subnet_ids_by_zone={zone: network.private_subnet_id(zone) for zone in network.zone_ids},
            kms_key_arn=self._key.key_arn,
            kubernetes_version=config.cluster.kubernetes_version,
            node_selector={POOL_LABEL: "system"},
            permissions_boundary=config.permissions_boundary,
            catalogue=self._catalogue,
            tags=default_tags(config),
        )
        Karpenter(f"{self._name}-karpenter", args, self._in_cluster())

    def _autoscaled_groups(self) -> tuple[AutoscaledGroup, ...]:
        """The CPU pool and the accelerator groups that the config names, as an empty one of each would be."""
        cpu = self._config.cluster.cpu_nodes
        pool = AutoscaledGroup(
            name="cpu",
            instance_type=cpu.instance_type,
            autoscaling_group=self._cluster.autoscaling_group("cpu"),
            labels={POOL_LABEL: "cpu"},
            resources=node_templates.of_cpu_nodes(cpu),
        )
        accelerated = (
            AutoscaledGroup(
                name=group.name,
                instance_type=group.instance_type,
                autoscaling_group=self._cluster.autoscaling_group(group.name),
                labels=self._cluster.groups[group.name].labels,
                resources=node_templates.of_group(group, self._catalogue),
            )
            for group in autoscaling.served_groups(self._config)
        )
        return (pool, *accelerated)

    def _make_volumes(self) -> LustreVolumes | None:
        config, file_system = self._config, self._file_system
        if file_system is None or config.file_system is None:
            return None
        zone = config.file_system.zone_id or model.accelerator_zone(config)
        args = LustreVolumesArgs(
            file_system_id=file_system.file_system_id,
            dns_name=file_system.dns_name,
            mount_name=file_system.mount_name,
            storage_capacity_gib=config.file_system.storage_capacity_gib,
            subnet_id=self._network.private_subnet_id(zone),
            security_group_id=file_system.security_group_id,
            kms_key_arn=self._key.key_arn,
            root=self._team_root(),
            on_demand=config.file_system.on_demand,
            namespaces={each.name: each.training_user_id for each in config.namespaces},
        )
        return LustreVolumes(f"{self._name}-volumes", args, self._in_cluster(*file_system.client_access))

    def _team_root(self) -> str:
        """Where the teams' directories are: in what is linked to S3, or a part of them would never be exported."""
        config = self._config.file_system
        if config is None or not isinstance(config.durability, S3Durability):
            return "/"
        return config.durability.file_system_path

    def _make_namespaces(self) -> dict[str, TrainingNamespace]:
        config = self._config
        capability = {queue.name: dict(queue.capability or {}) for queue in self._queues}
        made: dict[str, TrainingNamespace] = {}
        for each in config.namespaces:
            args = extend(
                TrainingNamespaceArgs,
                each,
                region=config.region,
                cluster_name=self._cluster.cluster_name,
                queue_capability=_sum(capability[queue] for queue in each.queues if isinstance(queue, str)),
                room=model.room(config),
                volume_name=self._volumes.volume_name(each.name) if self._volumes else None,
                volume_gib=config.file_system.storage_capacity_gib if config.file_system else 0,
                volume_class=self._volumes.shared_class_name if self._volumes else "",
                **self._linked_bucket(),
                kms_key_arn=self._key.key_arn,
                permissions_boundary=config.permissions_boundary,
                rendezvous=config.volcano.rendezvous,
            )
            made[each.name] = TrainingNamespace(f"{self._name}-{each.name}", judged(args), self._in_cluster())
        return made

    def _linked_bucket(self) -> dict[str, Any]:
        """The bucket behind the file system, as a namespace's role is told of it."""
        config, file_system = self._config.file_system, self._file_system
        if config is None or file_system is None or not isinstance(config.durability, S3Durability):
            return {}
        given = config.durability.bucket
        made = file_system.bucket_arn
        arn = made if given is None else _iam.bucket_arn(self._config.region, text(given))
        return {"bucket_arn": arn, "bucket_prefix": config.durability.prefix}

    def _make_metrics(self) -> MetricsStack | None:
        config, file_system = self._config, self._config.file_system
        if config.observability.metrics is None:
            return None
        args = extend(
            MetricsStackArgs,
            config.observability.metrics,
            region=config.region,
            cluster_name=self._cluster.cluster_name,
            grafana=config.observability.grafana,
            catalogue=self._catalogue,
            instance_types=self._types_of_nodes(),
            efa_instance_types=self._types_with_efa(),
            file_system_id=self._file_system.file_system_id if self._file_system else None,
            exports_to_s3=file_system is not None and isinstance(file_system.durability, S3Durability),
            kms_key_arn=self._key.key_arn,
            permissions_boundary=config.permissions_boundary,
            tags=default_tags(config),
        )
        return MetricsStack(f"{self._name}-metrics", judged(args), self._in_cluster())

    def _make_managed_grafana(self, metrics: MetricsStack | None) -> None:
        grafana = self._config.observability.grafana
        if metrics is None or grafana is None or grafana.managed is None:
            return
        args = extend(
            ManagedGrafanaArgs,
            grafana.managed,
            workspace_arn=metrics.workspace_arn,
            permissions_boundary=self._config.permissions_boundary,
            tags=default_tags(self._config),
        )
        ManagedGrafana(f"{self._name}-grafana", judged(args), self._child())

    def _make_logs(self) -> LogShipping | None:
        config = self._config
        if config.observability.logs is None:
            return None
        args = extend(
            LogShippingArgs,
            config.observability.logs,
            region=config.region,
            cluster_name=self._cluster.cluster_name,
            kms_key_arn=self._key.key_arn,
            production=config.production,
            permissions_boundary=config.permissions_boundary,
            tags=default_tags(config),
            waivers=waivers_of(config),
        )
        return LogShipping(f"{self._name}-logs", judged(args), self._in_cluster())

    def _types_of_nodes(self) -> tuple[str, ...]:
        cluster = self._config.cluster
        of_groups = [group.instance_type for group in self._config.node_groups]
        return tuple(dict.fromkeys([*of_groups, cluster.system_nodes.instance_type, cluster.cpu_nodes.instance_type]))

    def _types_with_efa(self) -> tuple[str, ...]:
        types = dict.fromkeys(group.instance_type for group in self._config.node_groups)
        return tuple(each for each in types if self._catalogue.find(each).has_efa)

    def _make_repository(self) -> ImageRepository | None:
        config = self._config
        if config.image_repository is None:
            return None
        args = extend(ImageRepositoryArgs, config.image_repository, region=config.region, kms_key_arn=self._key.key_arn)
        return ImageRepository(f"{self._name}-images", judged(args), self._child())

    def _make_idle_guard(self) -> None:
        config = self._config
        guarded = idle.guarded(config)
        if config.idle_guard is None or not guarded:
            return
        args = extend(
            IdleGuardArgs,
            config.idle_guard,
            region=config.region,
            cluster_name=self._cluster.cluster_name,
            groups={group.name: self._guarded(group) for group in guarded},
            permissions_boundary=config.permissions_boundary,
            tags=default_tags(config),
        )
        IdleGuard(f"{self._name}-idle", judged(args), self._in_cluster())

    def _guarded(self, group: NodeGroupConfig) -> GuardedGroup:
        return GuardedGroup(
            eks_name=self._cluster.groups[group.name].node_group_name,
            devices=tuple(self._catalogue.device_resources(group.instance_type)),
            minimum=group.min_size,
            removes=idle.removes_from(group),
        )

    def _make_spending_alert(self) -> None:
        alert = self._config.budget.alert
        if alert is not None:
            make_spending_alert(f"{self._name}-budget", alert, environment=pulumi.get_stack(), parent=self)

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
        }

    def _node_group_output(self, group: NodeGroupConfig) -> dict[str, pulumi.Input[Any]]:
        return {
            "name": group.name,
            "eksName": self._cluster.groups[group.name].node_group_name,
            "instanceType": group.instance_type,
            "zoneId": model.group_zone(self._config, group),
            "minSize": group.min_size,
            "maxSize": group.max_size,
            "desiredSize": None if group.size_managed_elsewhere else group.desired_size,
            "resources": self._catalogue.device_resources(group.instance_type),
            "labels": self._catalogue.node_labels(group.instance_type),
            "capacity": group.capacity.type,
            "reservation": group.capacity.id if isinstance(group.capacity, Reservation | CapacityBlock) else "",
        }

    def _shared_volume_output(self) -> dict[str, pulumi.Input[Any]] | None:
        if self._file_system is None or self._config.file_system is None:
            return None
        return {
            "fileSystemId": self._file_system.file_system_id,
            "dnsName": self._file_system.dns_name,
            "mountName": self._file_system.mount_name,
            "root": self._team_root(),
            "capacityGib": self._config.file_system.storage_capacity_gib,
            "bucket": self._file_system.bucket_name,
            "writeMegabytesPerSecond": storage.write_megabytes_per_second(self._config.file_system),
        }


def _name_problems(name: str) -> list[Problem]:
    """The stack's name is what buckets, images and Kubernetes objects start with."""
    if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return []
    reason = f"the name {name!r} does not fit buckets and Kubernetes objects: lower-case letters, digits and dashes"
    return [Problem("", reason, "rename the stack (the environment's config file is called after it)")]


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amount in amounts:
        for resource, count in amount.items():
            total[resource] = total.get(resource, 0) + count
    return total
