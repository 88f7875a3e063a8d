"""TrainiumCluster: an EKS control plane with its add-ons, CPU nodes and accelerator node groups."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model.catalogue import addon_records, regions
from trainium_eks.model.catalogue.chart_workloads import EBS_DRIVER
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config import addons
from trainium_eks.model.config import cluster as validators
from trainium_eks.model.config import node_groups as group_judge
from trainium_eks.model.config.cluster import ClusterConfig
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import StrictBool, mark_validated
from trainium_eks.model.validation.problems import Problem, join, join_key, nearest, under

from . import _addons, _iam, _ids
from ._args import LustreNetwork, Tags, Text, child_of, outputs, validate_args, waivers_of
from ._charts import plain_problems
from ._control_plane import Setting, make_control_plane
from ._cpu_nodes import CpuPool, autoscaling_group, make_cpu_nodes
from ._dicts import TrainiumClusterArgsDict
from ._kubeconfig import eks_kubeconfig
from ._node_role import make_node_role
from .encryption_key import EncryptionKeyArgs, given_or_made
from .node_group import AcceleratorNodeGroup, AcceleratorNodeGroupArgs, name_problems

LONGEST_NAME = 36
"""IAM takes 64 characters for a role's name: this, the longest add-on suffix (``-aws-ebs-csi-driver``), and Pulumi's
suffix."""

LONGEST_ROLE_NAME = 56
"""IAM takes 64 characters; Pulumi's suffix is the rest."""

OWN_POOLS = ("system", "cpu")
"""Names that a node group cannot have, because the CPU pools have them."""


class TrainiumClusterArgs(ClusterConfig):
    """Args of :class:`TrainiumCluster`: the config's cluster section, and its wiring."""

    later_in: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"admin_principals": "give it in `admin_principal_arns`, under a key that stays the same: {ops: <the Output>}"}
    )

    region: formats.Region
    """AWS region."""
    vpc_id: _ids.VpcId
    """VPC of the cluster."""
    subnet_ids_by_zone: dict[str, _ids.SubnetId]
    """Zone id to the private subnet in it, at least two; the first is the accelerator zone."""
    node_groups: tuple[NodeGroupConfig, ...] = ()
    """Accelerator node groups."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Source of the types' facts."""
    vpc_cidr_block: Text | None = None
    """Address range of the VPC. It may reach the private endpoint if users reach the Kubernetes API that way;
    with None only the cluster's own nodes may."""
    peer_cidr_blocks: tuple[str, ...] = ()
    """Further ranges that may reach it then, of peers and of the VPC's further ranges."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for secrets, logs and volumes; None makes one."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds every role made here; None for no bound."""
    file_systems_on_demand: StrictBool = False
    """Whether the FSx driver may make and delete file systems, one for each claim of the on-demand class."""
    lustre_network: LustreNetwork = "none"
    """Lustre on nodes: ``tcp`` installs the client at boot, ``efa`` also gives it EFA, on types that can."""
    production: StrictBool = False
    """True turns deletion protection on (unless it is set) and protects the control plane in Pulumi too."""
    admin_principal_arns: dict[str, Text] = pydantic.Field(default_factory=dict)
    """Further IAM roles that administer the cluster, with ARNs that may be known later, each under a key that stays the
    same (``{ops: role.arn}``)."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags for everything, and for resources that node groups launch, which the provider's default tags do not
    reach."""
    waivers: dict[str, str] = pydantic.Field(default_factory=dict)
    """Rules broken on purpose, each with its reason."""
    egress: tuple[pulumi.Resource, ...] = ()
    """Routes and endpoints that nodes need to reach ECR and EKS; nodes wait for them."""


def validate(args: TrainiumClusterArgs) -> list[Problem]:
    """Return the problems of the cluster, its groups, and how they are connected."""
    zones = tuple(args.subnet_ids_by_zone)
    found = validators.validate(args, production=args.production, catalogue=args.catalogue, zones=max(len(zones), 1))
    found += under("endpoint", validators.peer_problems(args.endpoint, args.peer_cidr_blocks))
    for index, peer in enumerate(args.peer_cidr_blocks):
        found += formats.cidr(join("peer_cidr_blocks", index), peer, what="a range that reaches the endpoint")
    found += formats.keyed_principals("admin_principal_arns", args.admin_principal_arns)
    found += formats.tags("tags", args.tags)
    if len(zones) < 2:
        reason = f"EKS wants subnets in two zones, and there are {len(zones)}"
        found.append(Problem("subnet_ids_by_zone", reason, "add a private subnet in another zone"))
    refused = sorted(regions.CONTROL_PLANE_REFUSED_ZONES.intersection(zones))
    if refused:
        reason = f"EKS puts no control plane into {', '.join(refused)} (EKS user guide, network requirements)"
        found.append(Problem("subnet_ids_by_zone", reason, "choose another zone of the region"))
    for addon, given in args.addons.items():
        found += plain_problems(given.settings, f"{join_key('addons', addon)}.settings")
    found += under("node_groups", group_judge.of_one_cluster(args.node_groups))
    for index, group in enumerate(args.node_groups):
        found += under(f"node_groups[{index}]", _group_problems(group, args))
    return found


def _group_problems(group: NodeGroupConfig, args: TrainiumClusterArgs) -> list[Problem]:
    cni = addons.version(args.addons, "vpc-cni", args.kubernetes_version)
    found = group_judge.validate(
        group,
        region=args.region,
        catalogue=args.catalogue,
        vpc_cni_version=cni,
        kubernetes_version=args.kubernetes_version,
    )
    zones = tuple(args.subnet_ids_by_zone)
    zone = group_judge.zone_of(group)
    if zone is not None and zone not in zones:
        good = nearest(zone, zones) or (zones[0] if zones else None)
        fix = "" if good else "give the cluster subnets in `subnet_ids_by_zone`"
        found.append(Problem("zone_id", "the cluster has no subnet there", fix, value=zone, allowed=zones, good=good))
    if group.name in OWN_POOLS:
        found.append(Problem("name", "a name of the cluster's own CPU pools", "choose another name", value=group.name))
    elif [each.name for each in args.node_groups].count(group.name) > 1:
        found.append(Problem("name", "two groups of one name", "choose another name", value=group.name))
    return found


class TrainiumCluster(pulumi.ComponentResource):
    """An EKS cluster made for accelerator gangs.

    The control plane is pulumi_eks' (the ``aws`` command must be on PATH); everything else is plain AWS resources,
    because pulumi_eks supports neither Neuron images with EFA nor reservations (pulumi-eks#1561). Pass an AWS provider
    of your own in ``opts``: pulumi_eks' component would otherwise fetch a second, older AWS plugin.
    """

    cluster_name: pulumi.Output[str]
    """Name of the cluster, new for each new cluster."""
    cluster_arn: pulumi.Output[str]
    """ARN of the cluster."""
    endpoint: pulumi.Output[str]
    """URL of the Kubernetes API."""
    kubeconfig: pulumi.Output[str]
    """Kubeconfig as JSON text, a secret; it calls ``aws eks get-token`` and holds no credential."""
    cluster_security_group_id: pulumi.Output[str]
    """Security group that EKS made; every node and the control plane are in it."""
    node_role_arn: pulumi.Output[str]
    """Role of all nodes."""
    kms_key_arn: pulumi.Output[str]
    """Key of secrets, logs and volumes."""
    node_group_names: pulumi.Output[Mapping[str, str]]
    """Accelerator groups: name in the stack to EKS' name."""

    def __init__(
        self,
        name: str,
        args: TrainiumClusterArgs | TrainiumClusterArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(
            TrainiumClusterArgs,
            args,
            validate,
            f"TrainiumCluster {name}",
            waivers=waivers_of(args),
            naming=lambda read: _name_problems(name, read),
            opts=opts,
        )
        super().__init__("trainium-eks:index:TrainiumCluster", name, {}, opts)
        self._args = args

        made_with = EncryptionKeyArgs(region=args.region, tags=args.tags)
        self.kms_key_arn = given_or_made(args.kms_key_arn, f"{name}-key", made_with, self)
        role, self._node_policies = make_node_role(
            name, region=args.region, boundary=args.permissions_boundary, tags=args.tags, parent=self
        )
        self.node_role_arn = role.arn
        self._make_control_plane()
        self._kubernetes = self._make_provider(self._open_private_endpoint())
        self._make_administrators()
        self._wiring = self._addon_wiring()
        self._before_nodes = {
            addon.name: _addons.make_addon(self._wiring, addon)
            for addon in addon_records.installed()
            if addon.phase == "before nodes"
        }
        self._system_nodes = self._make_system_nodes()
        self._cpu_pool = self._make_cpu_pool()
        self._groups = {group.name: self._make_accelerator_group(group) for group in args.node_groups}
        self._after_nodes = {
            addon.name: _addons.make_addon(self._wiring, addon, [self._system_nodes])
            for addon in (*addon_records.installed(), *addons.requested(args.addons))
            if addon.phase != "before nodes"
        }
        self._make_storage_class()

        names = tuple(self._groups)
        self.node_group_names = pulumi.Output.all(*(group.node_group_name for group in self._groups.values())).apply(
            lambda eks_names: dict(zip(names, eks_names, strict=True))
        )
        self.register_outputs(outputs(self, TrainiumCluster))

    @property
    def provider(self) -> k8s.Provider:
        """Kubernetes provider of this cluster; pass it by ``opts.providers`` to components in the cluster."""
        return self._kubernetes

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that Kubernetes workloads wait for: system nodes, DNS, Pod Identity and the storage drivers.

        Accelerator groups are not among them. A destroy deletes the workloads first, so that their volumes are unbound
        while the drivers still run.
        """
        after = ("coredns", "aws-ebs-csi-driver", "aws-fsx-csi-driver")
        return (
            self._system_nodes,
            self._before_nodes["eks-pod-identity-agent"],
            *(self._after_nodes[addon] for addon in after),
        )

    @property
    def before_nodes(self) -> Sequence[pulumi.Resource]:
        """Resources that a node group outside this component must wait for (``AcceleratorNodeGroup``'s ``wait_for``).

        The network plugin, kube-proxy and the Pod Identity agent, without which no node is Ready; the routes and
        endpoints of ``egress``; and the policies of the cluster's node role. Not DNS and other add-ons with pods: their
        pods need nodes.
        """
        return (*self._before_nodes.values(), *self._args.egress, *self._node_policies)

    @property
    def groups(self) -> Mapping[str, AcceleratorNodeGroup]:
        """Accelerator node groups by their name in the stack."""
        return dict(self._groups)

    def autoscaling_group(self, pool: str) -> pulumi.Output[str]:
        """Return the name of the Auto Scaling group of the CPU pool (``cpu``), or of an accelerator group by its name.

        Raises:
            KeyError: for a name that is neither.
        """
        return autoscaling_group(self._cpu_pool) if pool == "cpu" else self._groups[pool].autoscaling_group_name

    def _make_control_plane(self) -> None:
        """Make the control plane, and set the outputs of the component that describe it."""
        args = self._args
        setting = Setting(
            region=args.region,
            vpc_id=args.vpc_id,
            subnet_ids=tuple(args.subnet_ids_by_zone.values()),
            kms_key_arn=self.kms_key_arn,
            production=args.production,
            boundary=args.permissions_boundary,
            tags=args.tags,
        )
        state = make_control_plane(self._name, args, setting, self)
        self.cluster_name = state.apply(lambda cluster: cluster.name)
        self.cluster_arn = state.apply(lambda cluster: cluster.arn)
        self.endpoint = state.apply(lambda cluster: cluster.endpoint)
        self.cluster_security_group_id = state.apply(lambda cluster: cluster.vpc_config.cluster_security_group_id)
        authority = state.apply(lambda cluster: cluster.certificate_authority.data)
        known = pulumi.Output.all(self.cluster_name, self.endpoint, authority)
        self.kubeconfig = pulumi.Output.secret(
            known.apply(lambda parts: eks_kubeconfig(parts[0], parts[1], parts[2], args.region))
        )

    def _open_private_endpoint(self) -> list[pulumi.Resource]:
        """Let the VPC and its peers reach the private endpoint through the cluster's security group: by default the
        group admits its members alone.

        EKS makes the group during the same ``up`` that then uses the API, so the rule cannot be added by hand in time
        (terraform-aws-eks#1863; EKS user guide, cluster endpoint).
        """
        args = self._args
        if args.endpoint.public_access_cidrs and args.endpoint.private_access_via is None:
            return []
        ranges: dict[str, Text] = {} if args.vpc_cidr_block is None else {"vpc": args.vpc_cidr_block}
        ranges |= {each: each for each in args.peer_cidr_blocks}
        return [
            aws.vpc.SecurityGroupIngressRule(
                f"{self._name}-api-from-{key}",
                security_group_id=self.cluster_security_group_id,
                description=f"Kubernetes API from {'the VPC' if key == 'vpc' else key}",
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                cidr_ipv4=cidr_block,
                tags={"Name": f"{self._name}-api", **args.tags},
                opts=child_of(self),
            )
            for key, cidr_block in ranges.items()
        ]

    def _make_provider(self, wait_for: Sequence[pulumi.Resource]) -> k8s.Provider:
        """Make the cluster's Kubernetes provider. With the cluster's ARN as identifier, a kubeconfig that a preview
        cannot know replaces nothing behind it (pulumi-kubernetes, DiffConfig). A destroy deletes all its resources
        before ``wait_for``."""
        return k8s.Provider(
            f"{self._name}-kubernetes",
            kubeconfig=self.kubeconfig,
            cluster_identifier=self.cluster_arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(wait_for)),
        )

    def _make_administrators(self) -> None:
        """Make the access entries of administrators; EKS itself admits the deployer."""
        args = self._args
        policy = f"arn:{regions.partition(args.region)}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        principals = {_iam.principal_key(arn): arn for arn in args.admin_principals}
        for name, principal in {**principals, **args.admin_principal_arns}.items():
            key = f"{self._name}-admin-{name}"
            entry = aws.eks.AccessEntry(
                key,
                cluster_name=self.cluster_name,
                principal_arn=principal,
                type="STANDARD",
                tags=args.tags,
                opts=child_of(self),
            )
            aws.eks.AccessPolicyAssociation(
                key,
                cluster_name=self.cluster_name,
                principal_arn=entry.principal_arn,
                policy_arn=policy,
                access_scope={"type": "cluster"},
                opts=child_of(self),
            )

    def _addon_wiring(self) -> _addons.Wiring:
        args = self._args
        return _addons.Wiring(
            name=self._name,
            cluster_name=self.cluster_name,
            region=args.region,
            kubernetes_version=args.kubernetes_version,
            addons=args.addons,
            kms_key_arn=self.kms_key_arn,
            boundary=args.permissions_boundary,
            file_systems_on_demand=args.file_systems_on_demand,
            catalogue=args.catalogue,
            tags=args.tags,
            parent=self,
        )

    def _make_system_nodes(self) -> aws.eks.NodeGroup:
        """Make one group over all zones, with the config's number of nodes for each zone.

        Auto Scaling spreads the nodes evenly, and starts all of them even if one zone is out of the type; with a group
        for each zone the `up` would fail then. Nothing on them keeps a volume, which is bound to a zone.
        """
        subnets = list(self._args.subnet_ids_by_zone.values())
        return self._make_cpu_nodes(CpuPool("system", self._args.system_nodes, subnets, zones=len(subnets)))

    def _make_cpu_pool(self) -> aws.eks.NodeGroup:
        """Make the nodes for staging and monitoring in the accelerators' zone, so that their traffic stays in the
        zone."""
        nodes = self._args.cpu_nodes
        subnets = [next(iter(self._args.subnet_ids_by_zone.values()))]
        return self._make_cpu_nodes(CpuPool("cpu", nodes, subnets, ignore_desired_size=nodes.ignore_desired_size))

    def _make_cpu_nodes(self, pool: CpuPool) -> aws.eks.NodeGroup:
        return make_cpu_nodes(
            self._name,
            pool,
            cluster_name=self.cluster_name,
            kubernetes_version=self._args.kubernetes_version,
            node_role_arn=self.node_role_arn,
            kms_key_arn=self.kms_key_arn,
            catalogue=self._args.catalogue,
            lustre_client=self._args.lustre_network != "none",
            tags=self._args.tags,
            wait_for=tuple(self.before_nodes),
            parent=self,
        )

    def _make_accelerator_group(self, group: NodeGroupConfig) -> AcceleratorNodeGroup:
        """Make an accelerator group that waits for :attr:`before_nodes` alone, not for the system nodes: both start
        together."""
        args = self._args
        zone = group_judge.zone_of(group) or next(iter(args.subnet_ids_by_zone))
        wiring = AcceleratorNodeGroupArgs(
            **{**dict(group), "kubernetes_version": group_judge.version_of(group, args.kubernetes_version)},
            region=args.region,
            cluster_name=self.cluster_name,
            cluster_security_group_id=self.cluster_security_group_id,
            vpc_id=args.vpc_id,
            subnet_id=args.subnet_ids_by_zone[zone],
            node_role_arn=self.node_role_arn,
            kms_key_arn=self.kms_key_arn,
            lustre_network=args.lustre_network,
            catalogue=args.catalogue,
            tags=args.tags,
            waivers=args.waivers,
            wait_for=tuple(self.before_nodes),
        )
        # The cluster has validated its groups.
        return AcceleratorNodeGroup(f"{self._name}-{group.name}", mark_validated(wiring), child_of(self))

    def _make_storage_class(self) -> None:
        """Make the default storage class: encrypted gp3. New EKS versions mark no class as default.

        It waits for the driver, so that nodes have already reached the Kubernetes API at the first call to it.
        """
        k8s.storage.v1.StorageClass(
            f"{self._name}-gp3",
            metadata={
                "name": "gp3",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            provisioner=EBS_DRIVER,
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            reclaim_policy="Delete",
            parameters={"type": "gp3", "encrypted": "true", "kmsKeyId": self.kms_key_arn},
            opts=pulumi.ResourceOptions(
                parent=self, provider=self._kubernetes, depends_on=[self._after_nodes["aws-ebs-csi-driver"]]
            ),
        )


def _name_problems(name: str, args: TrainiumClusterArgs) -> list[Problem]:
    """Return the problems of the component's name, which starts the names of the cluster, its groups and its roles."""
    found = name_problems(name, LONGEST_NAME)
    found += [problem for group in args.node_groups for problem in name_problems(f"{name}-{group.name}")]
    for addon in addons.requested(args.addons):
        if _addons.has_role(args.addons, addon):
            found += name_problems(f"{name}-{addon.name}", LONGEST_ROLE_NAME)
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_-]*", name):
        reason = f"the component's name {name!r} becomes the cluster's, which takes letters, digits, - and _ only"
        found.append(Problem("", reason, "rename the component"))
    return found
