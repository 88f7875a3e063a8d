"""AcceleratorNodeGroup: nodes of one accelerator type, in one zone, bought in one way."""

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import node_templates, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, InstanceType
from trainium_eks.model.config import node_groups as validators
from trainium_eks.model.config.capacity import (
    CapacityBlock,
    OnDemand,
    Reservation,
    Spot,
    block_times,
    eks_capacity_type,
)
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.sizing import addresses
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _ids
from . import _launch_template as template
from . import _user_data as boot
from ._args import LustreNetwork, Tags, Text, outputs, text, validate_args, waivers_of
from ._cpu_nodes import autoscaling_group, tag_new_nodes
from ._dicts import AcceleratorNodeGroupArgsDict
from ._efa_group import make_efa_group
from ._node_role import make_node_role

LONGEST_NAME = 49
"""A node group's name is at most 63 characters (EKS API); ``-nodes`` and Pulumi's suffix take the rest."""


class AcceleratorNodeGroupArgs(NodeGroupConfig):
    """Args of :class:`AcceleratorNodeGroup`: an entry of the config's node groups, and its wiring."""

    region: formats.Region
    """AWS region."""
    cluster_name: Text
    """EKS cluster that the nodes join."""
    cluster_security_group_id: _ids.SecurityGroupId
    """The security group that EKS made for the cluster."""
    kubernetes_version: str = versions.KUBERNETES
    """Minor version of the nodes, ``1.35``; at most the cluster's."""
    vpc_id: _ids.VpcId
    """VPC of the cluster, for the group's own EFA security group."""
    subnet_id: _ids.SubnetId
    """Private subnet in the group's zone."""
    node_role_arn: Text | None = None
    """Role of the nodes, with its policies attached; None makes one."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds a role made here; None for no bound."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for the root volume. Its policy must let Auto Scaling's service-linked role use it, or no node starts."""
    lustre_network: LustreNetwork = "none"
    """Lustre on nodes: ``tcp`` installs the client at boot, ``efa`` also gives it EFA, on types that can."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Source of the type's facts."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags for the group and for the instances, volumes and interfaces that it launches."""
    waivers: dict[str, str] = pydantic.Field(default_factory=dict)
    """Rules broken on purpose, each with its reason (R29 for Spot)."""
    wait_for: tuple[pulumi.Resource, ...] = ()
    """Resources that must exist before the first node starts: CNI, kube-proxy, Pod Identity agent, routes, policies."""


def validate(args: AcceleratorNodeGroupArgs) -> list[Problem]:
    """Return the problems of the group."""
    found = validators.validate(
        args, region=args.region, catalogue=args.catalogue, kubernetes_version=args.kubernetes_version
    )
    return [*found, *formats.tags("tags", args.tags)]


class AcceleratorNodeGroup(pulumi.ComponentResource):
    """A managed node group with a launch template made from the catalogue's entry of its type.

    Usable on a cluster made elsewhere. EFA interfaces, taints, labels, AMI, local disks and hugepages follow the type;
    how EC2 provides the instances follows ``capacity``. With the times of a Capacity Block a scheduled action of Auto
    Scaling starts its nodes.
    """

    node_group_name: pulumi.Output[str]
    """Name of the EKS node group (generated, so that a replacement can be made)."""
    node_group_arn: pulumi.Output[str]
    """ARN of the EKS node group."""
    launch_template_id: pulumi.Output[str]
    """Id of the launch template (``lt-…``)."""
    launch_template_version: pulumi.Output[str]
    """Version of the template that the nodes start from."""
    autoscaling_group_name: pulumi.Output[str]
    """Name of the Auto Scaling group that EKS made for it."""

    def __init__(
        self,
        name: str,
        args: AcceleratorNodeGroupArgs | AcceleratorNodeGroupArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(
            AcceleratorNodeGroupArgs,
            args,
            validate,
            f"AcceleratorNodeGroup {name}",
            waivers=waivers_of(args),
            naming=lambda _: name_problems(name),
            opts=opts,
        )
        super().__init__("trainium-eks:index:AcceleratorNodeGroup", name, {}, opts)
        self._args = args
        self._instance = args.catalogue.find(args.instance_type)
        self._tags = {"Name": name, **args.tags}
        self._waits_for: list[pulumi.Resource] = list(args.wait_for)
        self._now, self._block = versions.now(), block_times(args.capacity, self._instance)

        self._role_arn = self._make_role()
        self._interfaces = template.interfaces(self._instance, args.interface_layout)
        self._security_groups = self._make_efa_security_group()
        self._placement = self._make_placement_group()
        self._template = self._make_launch_template()
        self._node_group = self._make_node_group()
        tag_new_nodes(name, self._node_group, args.tags, parent=self)
        self._schedule_block()

        self.node_group_name = self._node_group.node_group_name
        self.node_group_arn = self._node_group.arn
        self.launch_template_id = self._template.id
        self.launch_template_version = self._template_version()
        self.autoscaling_group_name = autoscaling_group(self._node_group)
        self.register_outputs(outputs(self, AcceleratorNodeGroup))

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry of the group's type."""
        return self._instance

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the group's nodes, in addition to the labels of Kubernetes and EKS."""
        catalogue = self._args.catalogue.node_labels(self._args.instance_type)
        return {**catalogue, POOL_LABEL: self._args.name, **self._args.labels}

    @property
    def placement_group(self) -> Text | None:
        """Name of the cluster placement group that the nodes start in, or None."""
        return self._placement

    def _make_role(self) -> Text:
        """Return the ARN of the given role, or of a new role."""
        if self._args.node_role_arn is not None:
            return self._args.node_role_arn
        args = self._args
        role, policies = make_node_role(
            self._name, region=args.region, boundary=args.permissions_boundary, tags=args.tags, parent=self
        )
        self._waits_for += policies
        return role.arn

    def _make_efa_security_group(self) -> list[Text]:
        """Return the security groups of every interface: the cluster's, and a new group for EFA."""
        groups: list[Text] = [self._args.cluster_security_group_id]
        if not self._interfaces:
            return groups
        group, rules = make_efa_group(
            f"{self._name}-efa",
            vpc_id=self._args.vpc_id,
            nodes=f"the nodes of {self._args.name}",
            tags=self._tags,
            parent=self,
        )
        self._waits_for += rules
        return [*groups, group.id]

    def _make_placement_group(self) -> Text | None:
        """Return the name of the cluster placement group that the nodes start in, or None.

        A group is made for plain On-Demand only: for a reservation bought outside of the group, EC2 returns
        InsufficientInstanceCapacity (terraform-aws-eks#3730). Types without EFA gain nothing from it.
        """
        capacity, wanted = self._args.capacity, self._args.placement_group
        if isinstance(wanted, str) and wanted == "none":
            return None
        if not isinstance(wanted, str) or wanted != "auto":
            return text(wanted)
        if isinstance(capacity, Reservation):
            return None if capacity.placement_group is None else text(capacity.placement_group)
        if not isinstance(capacity, OnDemand) or not self._interfaces:
            return None
        child = pulumi.ResourceOptions(parent=self)
        return aws.ec2.PlacementGroup(f"{self._name}-placement", strategy="cluster", tags=self._tags, opts=child).name

    def _make_launch_template(self) -> aws.ec2.LaunchTemplate:
        args, capacity = self._args, self._args.capacity
        block = isinstance(capacity, CapacityBlock)
        return aws.ec2.LaunchTemplate(
            f"{self._name}-template",
            description=f"{args.instance_type} nodes of {args.name}",
            # EKS takes a Capacity Block's type from the template alone, any other from the group (EKS user
            # guide, Capacity Blocks with managed node groups).
            instance_type=args.instance_type if block else None,
            instance_market_options={"market_type": "capacity-block"} if block else None,
            capacity_reservation_specification=_reservation(capacity),
            placement={"group_name": self._placement} if self._placement is not None else None,
            # Without EFA there are no interfaces here, and EKS puts the cluster's group on the node by itself, which
            # it does only for a template that names no group at all (EKS user guide, launch templates).
            network_interfaces=template.launch_interfaces(self._interfaces, self._security_groups, args.name),
            block_device_mappings=template.root_volume(
                validators.root_volume_gib(args, self._instance), args.kms_key_arn
            ),
            metadata_options=template.metadata_options(),
            user_data=boot.user_data(self._boot()),
            tag_specifications=template.tag_specifications(self._tags),
            tags=self._tags,
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=template.IGNORED),
        )

    def _make_node_group(self) -> aws.eks.NodeGroup:
        args, capacity = self._args, self._args.capacity
        reserved = isinstance(capacity, Reservation | CapacityBlock)
        # Cluster Autoscaler reads these of a group without nodes.
        described = node_templates.resource_tags(node_templates.of_group(args, args.catalogue))
        scaled = described if args.ignore_desired_size else {}
        return aws.eks.NodeGroup(
            f"{self._name}-nodes",
            cluster_name=args.cluster_name,
            node_role_arn=self._role_arn,
            subnet_ids=[args.subnet_id],
            version=args.kubernetes_version,
            ami_type=self._instance.ami_type,
            release_version=args.release_version or versions.AMI_RELEASES.get(args.kubernetes_version),
            capacity_type=eks_capacity_type(capacity),
            instance_types=None if isinstance(capacity, CapacityBlock) else [args.instance_type],
            launch_template={"id": self._template.id, "version": self._template_version()},
            scaling_config={
                "min_size": args.min_size,
                "max_size": args.max_size,
                "desired_size": self._block.first_size(self._now) if self._block else args.desired_size,
            },
            # MINIMAL takes nodes down before it starts new ones: there is no spare accelerator to surge with.
            update_config={"max_unavailable": args.max_unavailable, "update_strategy": "MINIMAL"},
            node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(
                enabled=True, **{name: each for name, each in args.node_repair.model_dump().items() if each}
            ),
            labels=self.labels,
            taints=[
                {"key": taint.key, "value": taint.value, "effect": taint.eks_effect}
                for taint in (
                    *args.catalogue.taints(args.instance_type),
                    *args.catalogue.startup_taints(args.instance_type),
                )
            ],
            tags={**self._tags, **scaled},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=self._waits_for,
                ignore_changes=["scalingConfig.desiredSize"] if args.ignore_desired_size else None,
                # A reservation holds the old group's nodes: the new one could never start beside them.
                delete_before_replace=True if reserved else None,
                # No capacity shows as a group that stays CREATING: 30 minutes, not the hour of the provider. Drains
                # take 15 minutes a node, so that updates and deletions get longer.
                custom_timeouts=pulumi.CustomTimeouts(create="30m", update="2h", delete="1h"),
            ),
        )

    def _schedule_block(self) -> None:
        """Make the scheduled actions of a Capacity Block that are still to come. Auto Scaling removes one that has run,
        and refuses one in the past; so does the program, and the provider takes what is gone for deleted
        (terraform-provider-aws, ``internal/service/autoscaling/schedule.go``). The action that EKS itself puts on the
        group, "Amazon EKS Node Group Capacity Scaledown Before Reservation End", has another name."""
        for action in self._block.actions(self._now) if self._block else ():
            aws.autoscaling.Schedule(
                f"{self._name}-block-{action.key}",
                scheduled_action_name=f"capacity-block-{action.key}",
                autoscaling_group_name=autoscaling_group(self._node_group),
                start_time=formats.utc_text(action.at),
                desired_capacity=action.nodes,
                # The group's own bounds stay.
                min_size=-1,
                max_size=-1,
                opts=pulumi.ResourceOptions(parent=self),
            )

    def _template_version(self) -> pulumi.Output[str]:
        return self._template.latest_version.apply(str)

    def _boot(self) -> boot.Boot:
        args, instance = self._args, self._instance
        most = addresses.max_pods(instance, args.interface_layout)
        wanted = args.install_lustre_client
        return boot.Boot(
            raid0=validators.uses_local_disks(args, instance),
            max_pods=most if most < instance.max_pods else 0,
            lockable_memory=instance.has_efa,
            nvidia_devices_by_mount=instance.family == "nvidia",
            hugepages_2mi=instance.hugepages_2mi if args.hugepages_2mi is None else args.hugepages_2mi,
            cores_per_logical_core=boot.logical_core_setting(instance),
            lustre_client=args.lustre_network != "none" if wanted is None else wanted,
            large_lustre_client=boot.is_large_lustre_client(instance),
            lustre_efa_step=boot.lustre_efa_step(instance, args.lustre_network),
        )


def name_problems(name: str, longest: int = LONGEST_NAME) -> list[Problem]:
    """Return the problem of a component's name that is too long for the AWS names made from it."""
    if len(name) <= longest:
        return []
    reason = f"the component's name {name!r} has {len(name)} characters; with what is added, AWS takes {longest}"
    return [Problem("", reason, "give the component or the stack a shorter name")]


def _reservation(
    capacity: OnDemand | Spot | Reservation | CapacityBlock,
) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """Return the reservation as the only target of launches; None for other capacity."""
    if not isinstance(capacity, Reservation | CapacityBlock):
        return None
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=text(capacity.id)
        )
    )
