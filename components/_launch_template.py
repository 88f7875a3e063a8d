"""What every node of this library starts from, and what EFA and user data add to it."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi_aws as aws

from trainium_eks.model.instances import InstanceType
from trainium_eks.model.node_groups import ROOT_THROUGHPUT_MIBPS

from ._args import Text

ROOT_DEVICE = "/dev/xvda"
"""Root device of Amazon Linux 2023."""

ROOT_IOPS = 3000
"""gp3's base."""

TAGGED_AT_LAUNCH = ("instance", "volume", "network-interface")
"""What a launch makes that neither the provider's default tags nor the node group's tags reach."""

DEFAULT_CORES_PER_LOGICAL_CORE: Mapping[str, int] = {"Trainium2": 2, "Trainium3": 2}
"""Physical Neuron cores that the runtime shows as one (LNC), by accelerator; 1 where nothing stands."""

BOUNDARY = "==node-config=="
"""Fixed, so that the same settings give the same user data."""


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
    """The interfaces of a node, one with EFA on each card that takes it; none for types without EFA.

    The node's first interface must hold an address, so it is never ``efa-only`` (EC2 user guide, EFA on accelerated
    instance types).

    Args:
        instance: the node's type.
        interface_layout: ``catalogue`` (the type's own), ``efa-only``, ``ena`` or ``efa``.

    Raises:
        ValueError: for a layout that needs EFA on card 0 of a type whose card 0 has none.
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
    """The interfaces as the launch template spells them, each in all the groups; None when there is nothing to say.

    With interfaces in the template EKS adds no security group by itself (EKS user guide, launch templates).
    """
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=interface.card,
            device_index=interface.device,
            interface_type=interface.type,
            description=f"{name} card {interface.card} device {interface.device}",
            associate_public_ip_address="false",
            delete_on_termination="true",
            security_groups=list(security_groups),
        )
        for interface in planned
    ] or None


def root_volume(size_gib: int, kms_key_arn: Text | None) -> list[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """The encrypted gp3 root volume; without a key of its own it takes the account's default EBS key."""
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
    """IMDSv2 with one hop: a pod off the host network cannot take the node's role (EKS best practices, IAM)."""
    return aws.ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )


def tag_specifications(tags: Mapping[str, str]) -> list[aws.ec2.LaunchTemplateTagSpecificationArgs]:
    """The tags on all that a launch makes."""
    return [
        aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=dict(tags)) for kind in TAGGED_AT_LAUNCH
    ]


@dataclass(frozen=True)
class Boot:
    """What a node does with its disks, memory and packages before the kubelet starts."""

    raid0: bool = False
    """Local NVMe disks become one volume for containers and images."""
    hugepages_2mi: int = 0
    """Hugepages of 2 MiB to reserve."""
    cores_per_logical_core: int = 0
    """Neuron's LNC to set; 0 leaves the runtime's default."""
    lustre_client: bool = False
    """Install the Lustre client."""


def logical_core_setting(instance: InstanceType) -> int:
    """The LNC that user data must set for the catalogue's number of logical cores; 0 when the default gives it."""
    if not instance.logical_neuron_cores:
        return 0
    wanted = instance.neuron_cores // instance.logical_neuron_cores
    return 0 if wanted == DEFAULT_CORES_PER_LOGICAL_CORE.get(instance.accelerator, 1) else wanted


def user_data(boot: Boot) -> str | None:
    """The user data as EKS takes it, base64 of MIME parts; None when there is nothing to do.

    EKS merges its own part (cluster, endpoint, CA) as long as the template names no image (EKS user guide, launch
    templates). Scripts run before nodeadm starts the kubelet, which counts hugepages once, at its start.
    """
    parts = []
    if boot.raid0:
        parts.append(("application/node.eks.aws", _NODE_CONFIG_RAID0))
    if boot.hugepages_2mi:
        parts.append(("text/x-shellscript", _HUGEPAGES.format(count=boot.hugepages_2mi)))
    if boot.cores_per_logical_core:
        parts.append(("text/x-shellscript", _LOGICAL_CORES.format(cores=boot.cores_per_logical_core)))
    if boot.lustre_client:
        parts.append(("text/x-shellscript", _LUSTRE_CLIENT))
    if not parts:
        return None
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"', ""]
    for content_type, content in parts:
        lines += [f"--{BOUNDARY}", f'Content-Type: {content_type}; charset="us-ascii"', "", content]
    lines += [f"--{BOUNDARY}--", ""]
    return base64.b64encode("\n".join(lines).encode()).decode()


_NODE_CONFIG_RAID0 = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0
"""

_HUGEPAGES = """\
#!/bin/bash
set -euo pipefail
echo 'vm.nr_hugepages = {count}' > /etc/sysctl.d/90-hugepages.conf
sysctl --load /etc/sysctl.d/90-hugepages.conf
"""

_LOGICAL_CORES = """\
#!/bin/bash
set -euo pipefail
mkdir -p /opt/aws/neuron
echo 'NEURON_LOGICAL_NC_CONFIG={cores}' > /opt/aws/neuron/logical_nc_config
"""

_LUSTRE_CLIENT = """\
#!/bin/bash
set -euo pipefail
modinfo lustre > /dev/null 2>&1 || dnf install --assumeyes lustre-client
"""
