"""The EKS control plane: its role, its log group, and pulumi_eks' component around the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

from trainium_eks.model.config.cluster import LOG_TYPES, ClusterConfig

from . import _iam
from ._args import Text


@dataclass(frozen=True)
class Setting:
    """Settings of the control plane beside the config's cluster section."""

    region: str
    vpc_id: Text
    subnet_ids: Sequence[Text]
    """Private subnets, in two zones at least."""
    kms_key_arn: pulumi.Output[str]
    """Key of its secrets and logs. EKS uses it by grants that the deployer makes through the service."""
    production: bool
    """Deletion protection unless the config says otherwise, and ``protect``."""
    boundary: Text | None
    """ARN of the policy that bounds its role."""
    tags: Mapping[str, Text]


def make_control_plane(
    name: str, cluster: ClusterConfig, setting: Setting, parent: pulumi.Resource
) -> pulumi.Output[aws.eks.Cluster]:
    """Make the control plane, after its role's policy and, with logs, its log group.

    The role is made here, so that it does not wait for the VPC as the role of pulumi_eks would. Its generated name is
    the cluster's: EKS makes a deleted cluster's log group anew for its last lines, and the next cluster of that name
    would find its group taken (terraform-aws-eks#2446, #2763).
    """
    child = pulumi.ResourceOptions(parent=parent)
    role = _iam.make_role(
        f"{name}-eks",
        description="Taken by the EKS control plane",
        trust=_iam.service_trust("eks.amazonaws.com"),
        boundary=setting.boundary,
        tags=setting.tags,
        parent=parent,
    )
    attachment = aws.iam.RolePolicyAttachment(
        f"{name}-eks",
        role=role.name,
        policy_arn=_iam.managed_policy_arn(setting.region, "AmazonEKSClusterPolicy"),
        opts=child,
    )
    first: list[pulumi.Resource] = [attachment]
    if cluster.logs:
        log_group = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            name=role.name.apply(lambda cluster_name: f"/aws/eks/{cluster_name}/cluster"),
            retention_in_days=cluster.log_retention_days,
            kms_key_id=setting.kms_key_arn,
            tags=dict(setting.tags),
            opts=child,
        )
        first.append(log_group)
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=first,
        protect=True if setting.production else None,
    )
    made = _make_eks(name, cluster, setting, role, opts).eks_cluster
    return made.apply(lambda found: _mocked(name, setting.region) if found is None else found)


def _mocked(name: str, region: str) -> Any:
    """Return the attributes of a cluster that are read here. pulumi_eks makes the cluster in a separate process, which
    does not run under Pulumi's mocks; a real engine always has the cluster."""
    return SimpleNamespace(
        name=f"{name}-mocked",
        arn=f"arn:aws:eks:{region}:000000000000:cluster/{name}-mocked",
        endpoint="https://mocked.invalid",
        certificate_authority=SimpleNamespace(data=""),
        vpc_config=SimpleNamespace(cluster_security_group_id="sg-mocked"),
    )


def _make_eks(
    name: str, cluster: ClusterConfig, setting: Setting, role: aws.iam.Role, opts: pulumi.ResourceOptions
) -> eks.Cluster:
    """Make the component of pulumi_eks with every addition turned off: it makes the cluster alone.

    AWS providers reach it from its parent, as they reach every child.
    """
    ranges = sorted(cluster.endpoint.public_access_cidrs)
    kept, tier = cluster.deletion_protection, cluster.control_plane_tier
    if tier is not None:
        opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(transforms=[_with_tier(tier)]))
    return eks.Cluster(
        f"{name}-eks",
        name=role.name,
        service_role=role,
        version=cluster.kubernetes_version,
        vpc_id=setting.vpc_id,
        subnet_ids=list(setting.subnet_ids),
        endpoint_private_access=True,
        endpoint_public_access=bool(ranges),
        public_access_cidrs=ranges or None,
        enabled_cluster_log_types=list(LOG_TYPES) if cluster.logs else [],
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


def _with_tier(tier: str) -> pulumi.ResourceTransform:
    """Return the transform that gives the cluster inside pulumi_eks' component its tier, for which the component has no
    argument (4.4). The engine applies it to the children that the other process registers."""

    def set_tier(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if args.type_ != "aws:eks/cluster:Cluster":
            return None
        return pulumi.ResourceTransformResult({**args.props, "controlPlaneScalingConfig": {"tier": tier}}, args.opts)

    return set_tier
