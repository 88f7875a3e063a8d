"""The cluster section: control plane, who may use it, and its CPU nodes."""

from typing import Literal

import pydantic

from trainium_eks.model import versions
from trainium_eks.model.shape import Flag, Shape, Whole


class EndpointConfig(Shape):
    """Who can reach the Kubernetes API. The private endpoint is always on."""

    public_access_cidrs: tuple[str, ...] = ()
    """Ranges that reach the public endpoint. Empty turns it off: the private endpoint alone remains.
    ``0.0.0.0/0`` needs a waiver of R02 (and of R03 in production)."""
    way_in: str = ""
    """With the public endpoint off: how the machine that runs ``pulumi up`` reaches the VPC, in words for the
    reader (``CodeBuild runner in the VPC``). Without one an ``up`` would hang at the first Kubernetes object."""


class CpuNodesConfig(Shape):
    """A CPU node group. Its size is per zone for system nodes, in all for the CPU pool."""

    instance_type: str = "m6i.xlarge"
    """EC2 type; 4 vCPU and 16 GiB hold the control components of one zone."""
    min_size: Whole = 1
    """Fewest nodes."""
    max_size: Whole = 3
    """Most nodes."""
    desired_size: Whole = 1
    """Nodes at first."""
    root_volume_gib: Whole = 100
    """Size of the encrypted gp3 root volume, GiB."""


class ClusterConfig(Shape):
    """The EKS control plane and its CPU nodes."""

    kubernetes_version: str = versions.KUBERNETES
    """Minor version, ``1.35``: the highest that Volcano 1.15 certifies."""
    endpoint: EndpointConfig = EndpointConfig()
    """Who can reach the Kubernetes API."""
    admin_principals: tuple[str, ...] = ()
    """IAM **role** or user ARNs that administer the cluster. The deployer is an administrator already and must not
    be listed: EKS refuses the second entry (pulumi-eks#2373)."""
    service_cidr_block: str = "172.20.0.0/16"
    """Range of Kubernetes service addresses; must not overlap the VPC or its peers."""
    log_retention_days: Whole = 365
    """Days that control-plane logs are kept (an allowed CloudWatch retention)."""
    support_type: Literal["STANDARD", "EXTENDED"] = "STANDARD"
    """What happens when a version's standard support ends: STANDARD upgrades by itself, EXTENDED costs
    0.60 USD an hour instead of 0.10."""
    deletion_protection: Flag | None = None
    """EKS refuses to delete the cluster while true. Unset: on in production, off otherwise."""
    system_nodes: CpuNodesConfig = CpuNodesConfig()
    """Node group for control components, one in each zone."""
    cpu_nodes: CpuNodesConfig = pydantic.Field(default_factory=lambda: CpuNodesConfig(min_size=0, max_size=4, desired_size=1))
    """Small pool in the accelerator zone for staging, TensorBoard and monitoring."""
    addon_versions: dict[str, str] = {}
    """EKS add-on versions that replace the pinned ones: ``{vpc-cni: v1.21.1-eksbuild.1}``."""
