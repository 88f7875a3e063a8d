"""Settings of the launch templates of all nodes, and the network interfaces for EFA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi_aws as aws

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.config.node_groups import ROOT_THROUGHPUT_MIBPS

from ._args import Text

ROOT_DEVICE = "/dev/xvda"
"""Root device of Amazon Linux 2023."""

ROOT_IOPS = 3000
"""gp3's base."""

TAGGED_AT_LAUNCH = ("instance", "volume", "network-interface")
"""Resources of a launch that get neither the provider's default tags nor the node group's tags."""


@dataclass(frozen=True)
class Interface:
    """One network interface of a launch template."""

    card: int
    """Network card."""
    device: int
    """Device index on that card."""
    type: str
    """``interface``, ``efa`` or ``efa-only``."""


def interfaces(instance: InstanceType, interface_layout: str = "catalogue") -> tuple[Interface, ...]:
    """Return the interfaces of a node, one with EFA on each card that supports EFA; none for types without EFA.
    ValueError: the layout (see :func:`.addresses.address_interfaces`) has EFA on card 0, which the type's card 0 lacks.

    The node's first interface must hold an address, so it is never ``efa-only`` (EC2 user guide, EFA on accelerated
    instance types).
    """
    if not instance.has_efa:
        return ()
    layout = instance.interface_layout if interface_layout == "catalogue" else interface_layout
    cards = range(instance.first_efa_card, instance.first_efa_card + instance.efa_interfaces)
    if layout == "ena":
        # Card 0's device 0 is taken by the plain interface.
        efa = tuple(Interface(card, 0 if card else 1, "efa-only") for card in cards)
        return (Interface(0, 0, "interface"), *efa)
    if instance.first_efa_card:
        raise ValueError(f"{instance.name} has no EFA on card 0: its layout can only be ena, not {layout}")
    return tuple(Interface(card, 1 if card else 0, layout if card else "efa") for card in cards)


def launch_interfaces(
    planned: Sequence[Interface], security_groups: Sequence[Text], name: str
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs] | None:
    """Return the interfaces as args of the launch template, each in all the groups; None without interfaces.

    With interfaces in the template EKS adds no security group by itself (EKS user guide, launch templates).
    """
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=interface.card,
            device_index=interface.device,
            interface_type=interface.type,
            description=f"{name} card {interface.card} device {interface.device}",
            # An `efa-only` interface has no address of any kind.
            associate_public_ip_address=None if interface.type == "efa-only" else "false",
            delete_on_termination="true",
            security_groups=list(security_groups),
        )
        for interface in planned
    ] or None


def root_volume(size_gib: int, kms_key_arn: Text | None) -> list[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """Return the encrypted gp3 root volume; without ``kms_key_arn`` EC2 uses the account's default EBS key."""
    return [
        aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=ROOT_DEVICE,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_type="gp3",
                volume_size=size_gib,
                iops=ROOT_IOPS,
                throughput=ROOT_THROUGHPUT_MIBPS,
                encrypted="true",
                kms_key_id=kms_key_arn,
                delete_on_termination="true",
            ),
        )
    ]


def metadata_options() -> aws.ec2.LaunchTemplateMetadataOptionsArgs:
    """Return the metadata options, IMDSv2 with one hop: a pod off the host network cannot take the node's role (EKS
    best practices, IAM)."""
    return aws.ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )


IGNORED = ["tagSpecifications"]
"""Inputs of a launch template, with later changes ignored. Its tags are part of a version, and EKS replaces every node
of a group for another version; :func:`._cpu_nodes.tag_new_nodes` gives new nodes the current tags."""


def tag_specifications(tags: Mapping[str, Text]) -> list[aws.ec2.LaunchTemplateTagSpecificationArgs]:
    """Return the tags of all resources of a launch; later changes of the tags are ignored (:data:`IGNORED`)."""
    return [
        aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=dict(tags)) for kind in TAGGED_AT_LAUNCH
    ]
