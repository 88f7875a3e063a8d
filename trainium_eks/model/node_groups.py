"""The accelerator node groups: one instance type, one zone, one way to get capacity each."""

from typing import Literal

from trainium_eks.model.capacity import Capacity, OnDemand
from trainium_eks.model.shape import Flag, Shape, Whole


class NodeGroupConfig(Shape):
    """One accelerator node group. What its type has (accelerators, EFA, taint, AMI) comes from the catalogue."""

    name: str
    """Name of the group within the stack (``trn1-32xl-ng1``): lower-case letters, digits and dashes."""
    instance_type: str
    """A type of the catalogue (``trn1.32xlarge``) or of ``instance_types`` in the stack's config."""
    min_size: Whole = 0
    """Fewest nodes; 0 lets the group rest."""
    max_size: Whole = 1
    """Most nodes, 1 to 450."""
    desired_size: Whole = 0
    """Nodes at first. Later changes act, unless ``size_managed_elsewhere``."""
    capacity: Capacity = OnDemand()
    """How EC2 provides the instances: ``{type: on-demand}``, ``{type: spot}``,
    ``{type: reservation, id: cr-…, zoneId: usw2-az4}`` or ``{type: capacity-block, id: cr-…, zoneId: usw2-az4}``."""
    zone_id: str | None = None
    """Zone of the nodes. Unset: the capacity's zone, else the network's accelerator zone."""
    interface_layout: Literal["catalogue", "efa-only", "ena", "efa"] = "catalogue"
    """How EFA interfaces are laid out over the network cards. ``efa-only``: card 0 ``efa``, further cards
    ``efa-only`` (one address a node, needs vpc-cni 1.18.5). ``ena``: card 0 ``interface``, EFA beside it.
    ``efa``: every card ``efa`` (one address a card)."""
    placement_group: str = "auto"
    """``auto``: a cluster placement group for plain On-Demand, none (or the reservation's own) otherwise.
    ``none``: never. Anything else: the name of an existing group."""
    root_volume_gib: Whole | None = None
    """Size of the encrypted gp3 root volume, GiB. Unset: 100 where containers live on local NVMe, 500 otherwise."""
    local_storage: Literal["raid0", "none"] = "raid0"
    """``raid0``: local NVMe disks become one volume that holds containers and images. ``none``: left alone."""
    labels: dict[str, str] = {}
    """Further node labels."""
    max_unavailable: Whole = 1
    """Nodes an update may take down at a time, 1 to 100."""
    size_managed_elsewhere: Flag = False
    """True leaves ``desired_size`` to ``trn scale`` or an autoscaler: later changes to it here are ignored."""
    hugepages_2mi: Whole | None = None
    """2 MiB hugepages that user data reserves on each node. Unset: the catalogue's number (0 on Trainium)."""
    install_lustre_client: Flag = False
    """True installs the Lustre client at boot, for an AMI that comes without one (amazon-eks-ami#2696)."""
    release_version: str | None = None
    """AMI release (``1.35.0-20260723``). Unset: the pinned one for the Kubernetes version and AMI type."""
