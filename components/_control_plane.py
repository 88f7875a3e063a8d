"""The EKS control plane: its log group, and pulumi_eks' component around the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

from trainium_eks.model.cluster import ClusterConfig

from ._args import Text

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All that EKS' control plane can log (botocore, ``eks`` LogType)."""


@dataclass(frozen=True)
class Setting:
    """Where the control plane is made."""

    region: str
    vpc_id: Text
    subnet_ids: Sequence[Text]
    """Private subnets, in two zones at least."""
    name: pulumi.Output[str]
    """Name of the cluster, new for each new one."""
    kms_key_arn: pulumi.Output[str]
    """Key of its secrets and logs. EKS gets at it by grants that the deployer makes through the service."""
    production: bool
    """Deletion protection unless the config says otherwise, and ``protect``."""
    tags: Mapping[str, str]


def make_control_plane(
    name: str, cluster: ClusterConfig, setting: Setting, parent: pulumi.Resource
) -> pulumi.Output[aws.eks.Cluster]:
    """Makes the control plane, after its log group: EKS would make one of its own, kept for ever and not encrypted."""
    child = pulumi.ResourceOptions(parent=parent)
    log_group = aws.cloudwatch.LogGroup(
        f"{name}-logs",
        name=pulumi.Output.concat("/aws/eks/", setting.name, "/cluster"),
        retention_in_days=cluster.log_retention_days,
        kms_key_id=setting.kms_key_arn,
        tags=dict(setting.tags),
        opts=child,
    )
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=[log_group],
        protect=True if setting.production else None,
    )
    return _make_eks(name, cluster, setting, opts).eks_cluster


def _make_eks(name: str, cluster: ClusterConfig, setting: Setting, opts: pulumi.ResourceOptions) -> eks.Cluster:
    """pulumi_eks' component with what it would add turned off: it makes the service role and the cluster alone.

    AWS providers reach it from its parent, as they reach every child.
    """
    ranges = list(cluster.endpoint.public_access_cidrs)
    kept = cluster.deletion_protection
    return eks.Cluster(
        f"{name}-eks",
        name=setting.name,
        version=cluster.kubernetes_version,
        vpc_id=setting.vpc_id,
        subnet_ids=list(setting.subnet_ids),
        endpoint_private_access=True,
        endpoint_public_access=bool(ranges),
        public_access_cidrs=ranges or None,
        enabled_cluster_log_types=list(LOG_TYPES),
        encryption_config_key_arn=setting.kms_key_arn,
        kubernetes_service_ip_address_range=cluster.service_cidr_block,
        upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type=cluster.support_type),
        deletion_protection=setting.production if kept is None else kept,
        authentication_mode=eks.AuthenticationMode.API,
        # Add-ons come pinned; EKS' own unpinned copies would run until then.
        bootstrap_self_managed_addons=False,
        use_default_vpc_cni=True,
        coredns_addon_options=eks.CoreDnsAddonOptionsArgs(enabled=False),
        kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
        skip_default_node_group=True,
        skip_default_security_groups=True,
        create_instance_role=False,
        # Pod Identity needs no OIDC provider, whose thumbprint would be fetched in every preview.
        create_oidc_provider=False,
        tags=dict(setting.tags) or None,
        opts=opts,
    )
