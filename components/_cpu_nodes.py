"""Groups of CPU nodes: for the control components, and for staging and monitoring."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config.cluster import CpuNodesConfig
from trainium_eks.model.node_labels import POOL_LABEL

from . import _launch_template as template
from . import _user_data as boot
from ._args import Tags, Text


@dataclass(frozen=True)
class CpuPool:
    """One group of CPU nodes."""

    key: str
    """``system`` or ``cpu``: logical name, and value of the pool label."""
    nodes: CpuNodesConfig
    """Type, sizes and volume."""
    subnet_ids: Sequence[Text]
    """Subnets that its nodes may be in."""
    zones: int = 1
    """Factor of the sizes: number of zones."""
    ignore_desired_size: bool = False
    """Whether an `up` leaves the number of nodes as it is."""


def make_cpu_nodes(
    name: str,
    pool: CpuPool,
    *,
    cluster_name: Text,
    kubernetes_version: str,
    node_role_arn: Text,
    kms_key_arn: Text,
    catalogue: Catalogue,
    lustre_client: bool,
    tags: Tags,
    wait_for: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> aws.eks.NodeGroup:
    """Make the launch template and the managed node group.

    The template names no security group, so that EKS puts the cluster's own on every node (EKS user guide, launch
    templates).
    """
    full_name = f"{name}-{pool.key}"
    instance = catalogue.find(pool.nodes.instance_type)
    own_tags = {"Name": full_name, **tags}
    launch_template = aws.ec2.LaunchTemplate(
        f"{full_name}-template",
        description=f"{pool.nodes.instance_type} nodes, pool {pool.key}",
        block_device_mappings=template.root_volume(pool.nodes.root_volume_gib, kms_key_arn),
        metadata_options=template.metadata_options(),
        user_data=boot.user_data(
            boot.Boot(lustre_client=lustre_client, large_lustre_client=boot.is_large_lustre_client(instance))
        ),
        tag_specifications=template.tag_specifications(own_tags),
        tags=own_tags,
        opts=pulumi.ResourceOptions(parent=parent, ignore_changes=template.IGNORED),
    )
    group = aws.eks.NodeGroup(
        f"{full_name}-nodes",
        cluster_name=cluster_name,
        node_role_arn=node_role_arn,
        subnet_ids=list(pool.subnet_ids),
        version=kubernetes_version,
        ami_type=instance.ami_type,
        release_version=versions.AMI_RELEASES.get(kubernetes_version),
        capacity_type="ON_DEMAND",
        instance_types=[pool.nodes.instance_type],
        launch_template={"id": launch_template.id, "version": launch_template.latest_version.apply(str)},
        scaling_config={
            "min_size": pool.nodes.min_size * pool.zones,
            "max_size": pool.nodes.max_size * pool.zones,
            "desired_size": pool.nodes.desired_size * pool.zones,
        },
        update_config={"max_unavailable": 1, "update_strategy": "DEFAULT"},
        node_repair_config={"enabled": True},
        labels={POOL_LABEL: pool.key},
        tags=own_tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=list(wait_for),
            ignore_changes=["scalingConfig.desiredSize"] if pool.ignore_desired_size else None,
            custom_timeouts=pulumi.CustomTimeouts(create="30m", update="2h", delete="1h"),
        ),
    )
    tag_new_nodes(full_name, group, tags, parent=parent)
    return group


def tag_new_nodes(name: str, group: aws.eks.NodeGroup, tags: Tags, *, parent: pulumi.Resource) -> None:
    """Tag the instances that a managed node group launches from now on, through the Auto Scaling group's tags, which
    win over the launch template's (EC2 Auto Scaling user guide, tagging). The first nodes have the template's already,
    and so do volumes and interfaces, which take none from an Auto Scaling group. The keys of the tags are known, and
    make the names of the resources."""
    for key, value in tags.items():
        aws.autoscaling.Tag(
            f"{name}-tag-{key}",
            autoscaling_group_name=autoscaling_group(group),
            tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=True),
            opts=pulumi.ResourceOptions(parent=parent),
        )


def autoscaling_group(group: aws.eks.NodeGroup) -> pulumi.Output[str]:
    """Return the name of the Auto Scaling group that EKS made for a managed node group: one each (EKS user guide).

    Pulumi's mocks usually answer only with a resource's inputs, without this output.
    """
    return group.resources.apply(lambda made: str((made[0].autoscaling_groups or ())[0].name) if made else "mocked")
