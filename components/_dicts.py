"""The args models as TypedDicts. Written by docs/typed_dicts.py (make docs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import pulumi

if TYPE_CHECKING:
    from components.cluster_autoscaler import AutoscaledGroup
    from components.idle_guard import GuardedGroup
    from trainium_eks.model.alerts import AlertSettings
    from trainium_eks.model.catalogue.instances import Catalogue
    from trainium_eks.model.config.addons import AddonConfig, AddonIdentityConfig
    from trainium_eks.model.config.autoscaling import AutoscalingConfig, ClusterAutoscalerConfig
    from trainium_eks.model.config.budget import BudgetConfig, SpendingAlertConfig
    from trainium_eks.model.config.capacity import CapacityBlock, OnDemand, Reservation, Spot
    from trainium_eks.model.config.cluster import ClusterConfig, CpuNodesConfig, CpuPoolConfig, EndpointConfig
    from trainium_eks.model.config.device_addons import GpuAddonsConfig, NeuronAddonsConfig
    from trainium_eks.model.config.fabric_gate import FabricGateConfig
    from trainium_eks.model.config.idle import IdleGuardConfig
    from trainium_eks.model.config.image_cache import ImageCacheConfig
    from trainium_eks.model.config.karpenter import KarpenterConfig, KarpenterPoolConfig
    from trainium_eks.model.config.namespaces import NamespaceConfig
    from trainium_eks.model.config.network import ExistingNetworkConfig, ExistingSubnet, NetworkConfig
    from trainium_eks.model.config.node_groups import NodeGroupConfig, NodeRepairConfig, NodeRepairOverrideConfig
    from trainium_eks.model.config.observability import (
        AlertsConfig,
        GrafanaConfig,
        LogsConfig,
        ManagedGrafanaConfig,
        MetricsConfig,
        ObservabilityConfig,
    )
    from trainium_eks.model.config.repository import ImageRepositoryConfig
    from trainium_eks.model.config.sagemaker import SageMakerConfig, SageMakerEndpointConfig
    from trainium_eks.model.config.storage import BackupDurability, FileSystemConfig, NoDurability, S3Durability
    from trainium_eks.model.config.training import TrainingConfig
    from trainium_eks.model.config.waivers import WaiverConfig
    from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig
else:

    def __getattr__(name: str) -> object:
        """A component that is new has its TypedDict once this file is written anew, for which it is imported."""
        if name.endswith("Dict"):
            return Mapping[str, Any]
        raise AttributeError(name)


class OnDemandDict(TypedDict):
    type: Literal["on-demand"]


class SpotDict(TypedDict):
    type: Literal["spot"]


class ReservationDict(TypedDict):
    type: Literal["reservation"]
    id: str | pulumi.Output[str]
    zone_id: str
    placement_group: NotRequired[str | pulumi.Output[str] | None]


class CapacityBlockDict(TypedDict):
    type: Literal["capacity-block"]
    id: str | pulumi.Output[str]
    zone_id: str
    starts: NotRequired[str | None]
    ends: NotRequired[str | None]
    nodes: NotRequired[int | None]


class NodeRepairOverrideConfigDict(TypedDict):
    node_monitoring_condition: Literal[
        "AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady", "Ready"
    ]
    node_unhealthy_reason: str
    repair_action: Literal["Replace", "Reboot", "NoAction"]
    min_repair_wait_time_mins: NotRequired[int]


class NodeRepairConfigDict(TypedDict):
    max_unhealthy_node_threshold_count: NotRequired[int | None]
    max_unhealthy_node_threshold_percentage: NotRequired[int | None]
    max_parallel_nodes_repaired_count: NotRequired[int | None]
    max_parallel_nodes_repaired_percentage: NotRequired[int | None]
    node_repair_config_overrides: NotRequired[Sequence[NodeRepairOverrideConfig | NodeRepairOverrideConfigDict]]


class AcceleratorNodeGroupArgsDict(TypedDict):
    name: str
    instance_type: str
    min_size: NotRequired[int]
    max_size: NotRequired[int]
    desired_size: NotRequired[int]
    capacity: NotRequired[
        OnDemand | OnDemandDict | Spot | SpotDict | Reservation | ReservationDict | CapacityBlock | CapacityBlockDict
    ]
    zone_id: NotRequired[str | None]
    interface_layout: NotRequired[Literal["catalogue", "efa-only", "ena", "efa"]]
    placement_group: NotRequired[str | pulumi.Output[str]]
    root_volume_gib: NotRequired[int | None]
    local_storage: NotRequired[Literal["raid0", "none"]]
    labels: NotRequired[Mapping[str, str]]
    max_unavailable: NotRequired[int]
    node_repair: NotRequired[NodeRepairConfig | NodeRepairConfigDict]
    ignore_desired_size: NotRequired[bool]
    all_or_nothing: NotRequired[bool]
    hugepages_2mi: NotRequired[int | None]
    install_lustre_client: NotRequired[bool | None]
    release_version: NotRequired[str | None]
    kubernetes_version: NotRequired[str]
    region: str
    cluster_name: str | pulumi.Output[str]
    cluster_security_group_id: str | pulumi.Output[str]
    vpc_id: str | pulumi.Output[str]
    subnet_id: str | pulumi.Output[str]
    node_role_arn: NotRequired[str | pulumi.Output[str] | None]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    lustre_network: NotRequired[Literal["none", "tcp", "efa"]]
    catalogue: NotRequired[Catalogue]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    waivers: NotRequired[Mapping[str, str]]
    wait_for: NotRequired[Sequence[pulumi.Resource]]


class AwsCallerArgsDict(TypedDict):
    region: str
    cluster_name: str | pulumi.Output[str]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class AutoscalerArgsDict(AwsCallerArgsDict):
    node_selector: NotRequired[Mapping[str, str]]
    catalogue: NotRequired[Catalogue]


class ClusterAutoscalerConfigDict(TypedDict):
    accelerator_groups: NotRequired[Sequence[str]]
    expander: NotRequired[Literal["least-waste", "most-pods", "least-nodes", "random"]]
    scale_down_minutes: NotRequired[int]
    accelerator_scale_down_minutes: NotRequired[int]
    max_node_provision_minutes: NotRequired[int]
    evict_local_storage: NotRequired[bool]
    replicas: NotRequired[int]


class AutoscaledGroupDict(TypedDict):
    name: str
    instance_type: str
    autoscaling_group: str | pulumi.Output[str]
    labels: NotRequired[Mapping[str, str]]
    resources: NotRequired[Mapping[str, str]]


class ClusterAutoscalerArgsDict(AutoscalerArgsDict, ClusterAutoscalerConfigDict):
    groups: Sequence[AutoscaledGroup | AutoscaledGroupDict]
    kubernetes_version: NotRequired[str]


class EncryptionKeyArgsDict(TypedDict):
    region: str
    description: NotRequired[str]
    deletion_window_days: NotRequired[int]
    retain_on_delete: NotRequired[bool]
    kept_key_arn: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class ExistingSubnetDict(TypedDict):
    id: str
    zone_id: str
    cidr_block: str


class ExistingNetworkConfigDict(TypedDict):
    vpc_id: str
    cidr_block: str
    private_subnets: Sequence[ExistingSubnet | ExistingSubnetDict]
    public_subnets: NotRequired[Sequence[ExistingSubnet | ExistingSubnetDict]]
    peer_cidr_blocks: NotRequired[Sequence[str]]


class ExistingNetworkArgsDict(ExistingNetworkConfigDict):
    region: str


class BackupDurabilityDict(TypedDict):
    type: Literal["backup"]
    retention_days: NotRequired[int]


class S3DurabilityDict(TypedDict):
    type: Literal["s3"]
    bucket: NotRequired[str | pulumi.Output[str] | None]
    bucket_key_arn: NotRequired[str | pulumi.Output[str] | None]
    prefix: NotRequired[str]
    file_system_path: NotRequired[str]


class NoDurabilityDict(TypedDict):
    type: Literal["none"]


class FileSystemConfigDict(TypedDict):
    storage_capacity_gib: NotRequired[int]
    deployment_type: NotRequired[Literal["PERSISTENT_2", "SCRATCH_2"]]
    throughput_per_tib: NotRequired[int]
    durability: NotRequired[
        BackupDurability | BackupDurabilityDict | S3Durability | S3DurabilityDict | NoDurability | NoDurabilityDict
    ]
    metadata_iops: NotRequired[int | None]
    efa_enabled: NotRequired[bool]
    zone_id: NotRequired[str | None]
    on_demand: NotRequired[bool]
    logs: NotRequired[bool | None]
    protect: NotRequired[bool | None]


class FsxLustreArgsDict(FileSystemConfigDict):
    region: str
    vpc_id: str | pulumi.Output[str]
    subnet_id: str | pulumi.Output[str]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    client_security_group_ids: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    production: NotRequired[bool]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    waivers: NotRequired[Mapping[str, str]]


class DevicePluginArgsDict(TypedDict):
    region: str
    instance_types: Sequence[str]
    catalogue: NotRequired[Catalogue]
    efa_instance_types: NotRequired[Sequence[str] | None]


class GpuAddonsConfigDict(TypedDict):
    trainers: NotRequired[Sequence[Literal["v1", "v2"]]]
    dcgm_exporter: NotRequired[bool]
    nvidia_values: NotRequired[Mapping[str, Any]]


class GpuAddonsArgsDict(DevicePluginArgsDict, GpuAddonsConfigDict):
    volcano: NotRequired[pulumi.Resource | None]


class IdleGuardConfigDict(TypedDict):
    warn_after_minutes: NotRequired[float]
    remove_after_minutes: NotRequired[float | None]


class GuardedGroupDict(TypedDict):
    eks_name: str | pulumi.Output[str]
    devices: Sequence[str]
    minimum: NotRequired[int]
    removes: NotRequired[bool]


class IdleGuardArgsDict(AwsCallerArgsDict, IdleGuardConfigDict):
    groups: Mapping[str, GuardedGroup | GuardedGroupDict]


class ImageCacheConfigDict(TypedDict):
    docker_hub_secret_arn: NotRequired[str | None]
    github_secret_arn: NotRequired[str | None]


class ImageCacheArgsDict(ImageCacheConfigDict):
    region: str
    account_id: str
    kms_key_arn: str | pulumi.Output[str]
    images: NotRequired[Sequence[str]]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class ImageRepositoryConfigDict(TypedDict):
    name: NotRequired[str | None]
    kept_images: NotRequired[int]
    untagged_days: NotRequired[int]
    force_delete: NotRequired[bool]
    base_images: NotRequired[Mapping[str, str]]


class ImageRepositoryArgsDict(ImageRepositoryConfigDict):
    region: str
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class KarpenterPoolConfigDict(TypedDict):
    name: str
    instance_type: str
    max_nodes: NotRequired[int]
    zone_id: NotRequired[str | None]
    capacity_reservation_ids: NotRequired[Sequence[str]]


class KarpenterConfigDict(TypedDict):
    cpu_limit: NotRequired[int]
    instance_types: NotRequired[Sequence[str]]
    root_volume_gib: NotRequired[int]
    consolidate_minutes: NotRequired[int]
    expire_after_hours: NotRequired[int]
    accelerator_pools: NotRequired[Sequence[KarpenterPoolConfig | KarpenterPoolConfigDict]]
    accelerator_empty_minutes: NotRequired[int]
    replicas: NotRequired[int]


class KarpenterArgsDict(AutoscalerArgsDict, KarpenterConfigDict):
    cluster_security_group_id: str | pulumi.Output[str]
    vpc_id: str | pulumi.Output[str]
    subnet_ids_by_zone: Mapping[str, str | pulumi.Output[str]]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    kubernetes_version: NotRequired[str]
    lustre_network: NotRequired[Literal["none", "tcp", "efa"]]


class LogsConfigDict(TypedDict):
    retention_days: NotRequired[int]
    system: NotRequired[bool]


class LogShippingArgsDict(AwsCallerArgsDict, LogsConfigDict):
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    production: NotRequired[bool]
    waivers: NotRequired[Mapping[str, str]]


class LustreVolumesArgsDict(TypedDict):
    file_system_id: str | pulumi.Output[str]
    dns_name: str | pulumi.Output[str]
    mount_name: str | pulumi.Output[str]
    storage_capacity_gib: int | pulumi.Output[int]
    subnet_id: str | pulumi.Output[str]
    security_group_id: str | pulumi.Output[str]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    root: NotRequired[str]
    namespaces: NotRequired[Mapping[str, int]]
    on_demand: NotRequired[bool]
    throughput_per_tib: NotRequired[int]
    storage_class: NotRequired[str]
    shared_class: NotRequired[str]
    setup_namespace: NotRequired[str]


class ManagedGrafanaConfigDict(TypedDict):
    authentication: NotRequired[Literal["AWS_SSO", "SAML"]]


class ManagedGrafanaArgsDict(ManagedGrafanaConfigDict):
    workspace_arn: str | pulumi.Output[str]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class AlertsConfigDict(TypedDict):
    topic_arn: str
    topic_key_arn: NotRequired[str | None]


class AlertSettingsDict(TypedDict):
    gang_waits_minutes: NotRequired[int]
    gang_partial_minutes: NotRequired[int]
    stalled_minutes: NotRequired[int]
    first_step_minutes: NotRequired[int]
    checkpoint_hours: NotRequired[int]
    idle_minutes: NotRequired[int]
    held_idle_minutes: NotRequired[int]
    busy_percent: NotRequired[int]
    filling_hours: NotRequired[int]
    volume_free_percent: NotRequired[int]
    export_minutes: NotRequired[int]
    capacity_block_hours: NotRequired[int]
    certificate_days: NotRequired[int]
    failing_minutes: NotRequired[int]
    node_repair_minutes: NotRequired[int]
    hardware_repair_minutes: NotRequired[int]
    hardware_xids: NotRequired[Sequence[int]]
    runbook_url: NotRequired[str]


class MetricsConfigDict(TypedDict):
    retention_days: NotRequired[int]
    volume_gib: NotRequired[int]
    scrape_interval_seconds: NotRequired[int]
    managed_prometheus: NotRequired[bool]
    alerts: NotRequired[AlertsConfig | AlertsConfigDict | None]
    thresholds: NotRequired[AlertSettings | AlertSettingsDict]
    values: NotRequired[Mapping[str, Any]]


class GrafanaConfigDict(TypedDict):
    in_cluster: NotRequired[bool]
    volume_gib: NotRequired[int]
    managed: NotRequired[ManagedGrafanaConfig | ManagedGrafanaConfigDict | None]


class MetricsStackArgsDict(AwsCallerArgsDict, MetricsConfigDict):
    grafana: NotRequired[GrafanaConfig | GrafanaConfigDict | None]
    catalogue: NotRequired[Catalogue]
    instance_types: NotRequired[Sequence[str]]
    efa_instance_types: NotRequired[Sequence[str]]
    file_system_id: NotRequired[str | pulumi.Output[str] | None]
    node_selector: NotRequired[Mapping[str, str]]
    exports_to_s3: NotRequired[bool]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]


class NetworkConfigDict(TypedDict):
    cidr_block: NotRequired[str]
    zone_ids: NotRequired[Sequence[str]]
    nat_gateways: NotRequired[Literal["single", "per-zone"]]
    interface_endpoints: NotRequired[Sequence[str]]
    flow_logs: NotRequired[bool]
    flow_log_retention_days: NotRequired[int]
    peer_cidr_blocks: NotRequired[Sequence[str]]


class NetworkArgsDict(NetworkConfigDict):
    region: str
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class NeuronAddonsConfigDict(TypedDict):
    scheduler_extension: NotRequired[bool]
    monitor: NotRequired[bool]
    neuron_values: NotRequired[Mapping[str, Any]]


class NeuronAddonsArgsDict(DevicePluginArgsDict, NeuronAddonsConfigDict):
    pass


class SageMakerEndpointConfigDict(TypedDict):
    name: str
    model: str | pulumi.Output[str]
    image: str | pulumi.Output[str]
    instance_type: str
    instances: NotRequired[int]
    max_instances: NotRequired[int | None]
    calls_per_minute: NotRequired[int]
    capture_percent: NotRequired[int]
    most_errors: NotRequired[int]
    log_retention_days: NotRequired[int]


class SageMakerEndpointArgsDict(SageMakerEndpointConfigDict):
    region: str
    vpc_id: str | pulumi.Output[str]
    subnet_ids: Sequence[str | pulumi.Output[str]]
    kms_key_arn: str | pulumi.Output[str]
    bucket: str | pulumi.Output[str]
    bucket_key_arn: NotRequired[str | pulumi.Output[str] | None]
    prefix: NotRequired[str]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    catalogue: NotRequired[Catalogue]


class SageMakerConfigDict(TypedDict):
    bucket: NotRequired[str | pulumi.Output[str] | None]
    bucket_key_arn: NotRequired[str | pulumi.Output[str] | None]
    prefix: NotRequired[str]
    log_retention_days: NotRequired[int | None]
    serving_types: NotRequired[Sequence[str]]


class SageMakerTrainingArgsDict(SageMakerConfigDict):
    region: str
    vpc_id: str | pulumi.Output[str]
    subnet_ids: Sequence[str | pulumi.Output[str]]
    kms_key_arn: str | pulumi.Output[str]
    repository_arn: NotRequired[str | pulumi.Output[str] | None]
    file_system_security_group_id: NotRequired[str | pulumi.Output[str] | None]
    protect: NotRequired[bool]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]


class NamespaceConfigDict(TypedDict):
    name: str
    queues: Sequence[str | pulumi.Output[str]]
    principals: NotRequired[Sequence[str]]
    resource_quota: NotRequired[Mapping[str, str]]
    priority_classes: NotRequired[Sequence[str]]
    data_bucket: NotRequired[str | pulumi.Output[str] | None]
    data_bucket_key_arn: NotRequired[str | pulumi.Output[str] | None]
    training_user_id: NotRequired[int]
    partial_nodes: NotRequired[bool | None]


class TrainingNamespaceArgsDict(NamespaceConfigDict):
    region: str
    cluster_name: str | pulumi.Output[str]
    queue_capability: NotRequired[Mapping[str, int]]
    room: NotRequired[Mapping[str, str]]
    shared_nodes: NotRequired[Mapping[str, Mapping[str, str]]]
    block_ends: NotRequired[Mapping[str, str]]
    volume_name: NotRequired[str | pulumi.Output[str] | None]
    volume_gib: NotRequired[int]
    volume_class: NotRequired[str | pulumi.Output[str]]
    bucket_arn: NotRequired[str | pulumi.Output[str] | None]
    bucket_prefix: NotRequired[str]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    rendezvous: NotRequired[Literal["c10d", "etcd"]]
    principal_arns: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    volcano: NotRequired[pulumi.Resource | None]


class EndpointConfigDict(TypedDict):
    public_access_cidrs: NotRequired[Sequence[str]]
    private_access_via: NotRequired[Literal["vpc", "peers"] | None]


class CpuNodesConfigDict(TypedDict):
    instance_type: NotRequired[str]
    min_size: NotRequired[int]
    max_size: NotRequired[int]
    desired_size: NotRequired[int]
    root_volume_gib: NotRequired[int]


class CpuPoolConfigDict(CpuNodesConfigDict):
    ignore_desired_size: NotRequired[bool]


class AddonIdentityConfigDict(TypedDict):
    service_account: str
    namespace: NotRequired[str]
    policies: Mapping[str, str | pulumi.Output[str]]


class AddonConfigDict(TypedDict):
    version: NotRequired[str | None]
    settings: NotRequired[Mapping[str, Any]]
    identity: NotRequired[AddonIdentityConfig | AddonIdentityConfigDict | None]


class ClusterConfigDict(TypedDict):
    kubernetes_version: NotRequired[str]
    endpoint: NotRequired[EndpointConfig | EndpointConfigDict]
    admin_principals: NotRequired[Sequence[str]]
    service_cidr_block: NotRequired[str]
    logs: NotRequired[bool]
    log_retention_days: NotRequired[int]
    support_type: NotRequired[Literal["STANDARD", "EXTENDED"]]
    control_plane_tier: NotRequired[Literal["standard", "tier-xl", "tier-2xl", "tier-4xl", "tier-8xl"] | None]
    deletion_protection: NotRequired[bool | None]
    system_nodes: NotRequired[CpuNodesConfig | CpuNodesConfigDict]
    cpu_nodes: NotRequired[CpuPoolConfig | CpuPoolConfigDict]
    addons: NotRequired[Mapping[str, AddonConfig | AddonConfigDict]]


class NodeGroupConfigDict(TypedDict):
    name: str
    instance_type: str
    min_size: NotRequired[int]
    max_size: NotRequired[int]
    desired_size: NotRequired[int]
    capacity: NotRequired[
        OnDemand | OnDemandDict | Spot | SpotDict | Reservation | ReservationDict | CapacityBlock | CapacityBlockDict
    ]
    zone_id: NotRequired[str | None]
    interface_layout: NotRequired[Literal["catalogue", "efa-only", "ena", "efa"]]
    placement_group: NotRequired[str | pulumi.Output[str]]
    root_volume_gib: NotRequired[int | None]
    local_storage: NotRequired[Literal["raid0", "none"]]
    labels: NotRequired[Mapping[str, str]]
    max_unavailable: NotRequired[int]
    node_repair: NotRequired[NodeRepairConfig | NodeRepairConfigDict]
    ignore_desired_size: NotRequired[bool]
    all_or_nothing: NotRequired[bool]
    hugepages_2mi: NotRequired[int | None]
    install_lustre_client: NotRequired[bool | None]
    release_version: NotRequired[str | None]
    kubernetes_version: NotRequired[str | None]


class TrainiumClusterArgsDict(ClusterConfigDict):
    region: str
    vpc_id: str | pulumi.Output[str]
    subnet_ids_by_zone: Mapping[str, str | pulumi.Output[str]]
    node_groups: NotRequired[Sequence[NodeGroupConfig | NodeGroupConfigDict]]
    catalogue: NotRequired[Catalogue]
    vpc_cidr_block: NotRequired[str | pulumi.Output[str] | None]
    peer_cidr_blocks: NotRequired[Sequence[str]]
    kms_key_arn: NotRequired[str | pulumi.Output[str] | None]
    permissions_boundary: NotRequired[str | pulumi.Output[str] | None]
    file_systems_on_demand: NotRequired[bool]
    lustre_network: NotRequired[Literal["none", "tcp", "efa"]]
    production: NotRequired[bool]
    admin_principal_arns: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    tags: NotRequired[Mapping[str, str | pulumi.Output[str]]]
    waivers: NotRequired[Mapping[str, str]]
    egress: NotRequired[Sequence[pulumi.Resource]]


class VolcanoConfigDict(TypedDict):
    replicas: NotRequired[int]
    scale_from_zero: NotRequired[bool | None]
    reclaim: NotRequired[bool]
    rendezvous: NotRequired[Literal["c10d", "etcd"]]
    image_registry: NotRequired[str]


class QueueConfigDict(TypedDict):
    name: str
    weight: NotRequired[int]
    capability: NotRequired[Mapping[str, int] | None]
    deserved: NotRequired[Mapping[str, int] | None]
    guarantee: NotRequired[Mapping[str, int] | None]
    reclaimable: NotRequired[bool]
    parent: NotRequired[str | None]


class VolcanoStackArgsDict(VolcanoConfigDict):
    queues: NotRequired[Sequence[QueueConfig | QueueConfigDict]]
    pool: NotRequired[Mapping[str, int]]
    rests_at_zero: NotRequired[bool]
    topology_labels: NotRequired[Sequence[str]]
    rendezvous_namespaces: NotRequired[Sequence[str]]
    waivers: NotRequired[Mapping[str, str]]


class TrainingConfigDict(TypedDict):
    checkpoint_gigabytes: NotRequired[float]
    failures_per_node_year: NotRequired[float | None]


class AutoscalingConfigDict(TypedDict):
    cluster_autoscaler: NotRequired[ClusterAutoscalerConfig | ClusterAutoscalerConfigDict | None]
    karpenter: NotRequired[KarpenterConfig | KarpenterConfigDict | None]


class ObservabilityConfigDict(TypedDict):
    metrics: NotRequired[MetricsConfig | MetricsConfigDict | None]
    grafana: NotRequired[GrafanaConfig | GrafanaConfigDict | None]
    logs: NotRequired[LogsConfig | LogsConfigDict | None]


class SpendingAlertConfigDict(TypedDict):
    monthly_usd: float
    emails: Sequence[str]


class BudgetConfigDict(TypedDict):
    hourly_usd: NotRequired[float | None]
    nodes: NotRequired[int | None]
    alert: NotRequired[SpendingAlertConfig | SpendingAlertConfigDict | None]


class FabricGateConfigDict(TypedDict):
    images: Mapping[str, str]


class WaiverConfigDict(TypedDict):
    reason: str
    expires: str


class StackConfigDict(TypedDict):
    region: str
    owner: str
    cost_center: NotRequired[str]
    production: NotRequired[bool]
    allowed_account_ids: NotRequired[Sequence[str]]
    permissions_boundary: NotRequired[str | None]
    kept_key_arn: NotRequired[str | None]
    tags: NotRequired[Mapping[str, str]]
    network: NotRequired[NetworkConfig | NetworkConfigDict]
    existing_network: NotRequired[ExistingNetworkConfig | ExistingNetworkConfigDict | None]
    cluster: NotRequired[ClusterConfig | ClusterConfigDict]
    node_groups: NotRequired[Sequence[NodeGroupConfig | NodeGroupConfigDict]]
    instance_types: NotRequired[Mapping[str, Mapping[str, Any]]]
    file_system: NotRequired[FileSystemConfig | FileSystemConfigDict | None]
    volcano: NotRequired[VolcanoConfig | VolcanoConfigDict]
    queues: NotRequired[Sequence[QueueConfig | QueueConfigDict]]
    namespaces: NotRequired[Sequence[NamespaceConfig | NamespaceConfigDict]]
    image_repository: NotRequired[ImageRepositoryConfig | ImageRepositoryConfigDict | None]
    image_cache: NotRequired[ImageCacheConfig | ImageCacheConfigDict | None]
    training: NotRequired[TrainingConfig | TrainingConfigDict]
    neuron_addons: NotRequired[NeuronAddonsConfig | NeuronAddonsConfigDict]
    gpu_addons: NotRequired[GpuAddonsConfig | GpuAddonsConfigDict]
    autoscaling: NotRequired[AutoscalingConfig | AutoscalingConfigDict]
    observability: NotRequired[ObservabilityConfig | ObservabilityConfigDict]
    budget: NotRequired[BudgetConfig | BudgetConfigDict]
    idle_guard: NotRequired[IdleGuardConfig | IdleGuardConfigDict | None]
    fabric_gate: NotRequired[FabricGateConfig | FabricGateConfigDict | None]
    sage_maker: NotRequired[SageMakerConfig | SageMakerConfigDict | None]
    sage_maker_endpoints: NotRequired[Sequence[SageMakerEndpointConfig | SageMakerEndpointConfigDict]]
    waivers: NotRequired[Mapping[str, WaiverConfig | WaiverConfigDict]]
