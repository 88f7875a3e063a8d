"""Karpenter: nodes of the size that waiting pods need, without node groups."""

from collections.abc import Iterator, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model.catalogue import versions
from trainium_eks.model.config import karpenter as validators
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.karpenter import CPU_POOL, KarpenterConfig, KarpenterPoolConfig
from trainium_eks.model.policies.autoscaling_policies import KarpenterNodes, karpenter_statements
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem, join

from . import _ids, _pod_identity
from . import _karpenter_objects as objects
from ._args import AutoscalerArgs, LustreNetwork, Tags, Text, child_of, outputs, validate_args
from ._charts import chart, namespace, release
from ._dicts import KarpenterArgsDict
from ._efa_group import make_efa_group
from ._interruptions import make_interruptions
from ._node_role import make_node_role
from .node_group import name_problems

CHART = "karpenter"
DEFINITIONS_CHART = "karpenter-crd"
NAMESPACE = namespaces.KARPENTER
NAMESPACE_REASON = "the controller needs no privilege"

LONGEST_NAME = 42
"""SQS takes 80 characters for a queue's name, IAM 64 for a role's: our suffix and Pulumi's are the rest."""


class KarpenterArgs(AutoscalerArgs, KarpenterConfig):
    """Args of :class:`Karpenter`, the config section with its wiring."""

    cluster_security_group_id: _ids.SecurityGroupId
    """The security group that EKS made for the cluster."""
    vpc_id: _ids.VpcId
    """VPC of the cluster, for the accelerator nodes' EFA security group."""
    subnet_ids_by_zone: dict[str, _ids.SubnetId]
    """Zone id to the private subnet in it; CPU nodes start in the first."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for root volumes; None for the account's default EBS key."""
    kubernetes_version: str = versions.KUBERNETES
    """Minor version of the cluster, which decides the AMI release."""
    lustre_network: LustreNetwork = "none"
    """Lustre on nodes: ``tcp`` installs the client at boot, ``efa`` also gives it EFA, on types that can."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags for everything, and for the instances, volumes and interfaces that Karpenter starts."""


class Karpenter(pulumi.ComponentResource):
    """Karpenter with a NodePool for CPU work, and a NodePool for each of ``accelerator_pools``.

    Its nodes have a separate role and instance profile, and join by an access entry of type EC2_LINUX. Subnets and
    security groups are named by id, so nothing needs a discovery tag. The Kubernetes provider comes by
    ``opts.providers``.
    """

    node_role_arn: pulumi.Output[str]
    """Role of the nodes that Karpenter starts."""
    role_arn: pulumi.Output[str]
    """Role that Karpenter takes by Pod Identity."""
    queue_name: pulumi.Output[str]
    """SQS queue of interruptions."""

    def __init__(
        self, name: str, args: KarpenterArgs | KarpenterArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(
            KarpenterArgs,
            args,
            validate,
            f"Karpenter {name}",
            naming=lambda _: name_problems(name, LONGEST_NAME),
            opts=opts,
        )
        super().__init__("trainium-eks:index:Karpenter", name, {}, opts)
        self._args = args

        self._node_role, self._node_policies = make_node_role(
            name, region=args.region, boundary=args.permissions_boundary, tags=args.tags, parent=self
        )
        self._queue, self._queue_sources = make_interruptions(name, args.tags, self)
        self._groups, group_rules = self._make_groups()
        identity = self._make_identity()
        controller = self._make_releases(identity.ready)
        self._make_pools([controller, *self._let_nodes_join(), *group_rules])

        self.node_role_arn = self._node_role.arn
        self.role_arn = identity.role.arn
        self.queue_name = self._queue.name
        self.register_outputs(outputs(self, Karpenter))

    def _make_groups(self) -> tuple[list[Text], tuple[pulumi.Resource, ...]]:
        """Return the security groups of nodes with EFA, and the rules that these nodes wait for."""
        args = self._args
        if not any(args.catalogue.find(pool.instance_type).has_efa for pool in args.accelerator_pools):
            return [args.cluster_security_group_id], ()
        group, rules = make_efa_group(
            f"{self._name}-efa", vpc_id=args.vpc_id, nodes="Karpenter's nodes", tags=args.tags, parent=self
        )
        return [args.cluster_security_group_id, group.id], rules

    def _make_identity(self) -> _pod_identity.PodRole:
        """Make the role of the service account."""
        args = self._args
        reservations = [id_ for pool in args.accelerator_pools for id_ in pool.capacity_reservation_ids]
        zones = dict.fromkeys(self._zone(pool) for pool in (None, *args.accelerator_pools))
        statements = pulumi.Output.all(
            cluster=args.cluster_name,
            node_role=self._node_role.arn,
            queue=self._queue.arn,
            subnets=[args.subnet_ids_by_zone[zone] for zone in zones],
            groups=self._groups,
        ).apply(
            lambda known: karpenter_statements(
                KarpenterNodes(
                    cluster_name=known["cluster"],
                    region=args.region,
                    node_role_arn=known["node_role"],
                    queue_arn=known["queue"],
                    subnet_ids=known["subnets"],
                    security_group_ids=known["groups"],
                    capacity_reservation_ids=reservations,
                )
            )
        )
        return _pod_identity.make_role(
            self._name, args, NAMESPACE, CHART, statements, role_name=self._name, parent=self
        )

    def _make_releases(self, identity: Sequence[pulumi.Resource]) -> k8s.helm.v3.Release:
        """Make the releases of the definitions, in a separate chart that also upgrades them, and of the controller."""
        home = namespace(f"{self._name}-namespace", NAMESPACE, "restricted", NAMESPACE_REASON, child_of(self))
        definitions = release(
            f"{self._name}-definitions",
            chart(DEFINITIONS_CHART),
            release_name=DEFINITIONS_CHART,
            namespace=NAMESPACE,
            values={},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home]),
        )
        # A pod that starts before its association has no credentials until it starts again.
        after = [definitions, *identity, *self._queue_sources]
        return release(
            f"{self._name}-release",
            chart(CHART),
            release_name=CHART,
            namespace=NAMESPACE,
            values=controller_values(self._args, self._queue.name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=after),
        )

    def _let_nodes_join(self) -> list[pulumi.Resource]:
        """Make the access entry of the nodes' role, which EKS makes for managed groups only, and the instance
        profile."""
        args = self._args
        self._profile = aws.iam.InstanceProfile(
            f"{self._name}-node", role=self._node_role.name, tags=args.tags, opts=child_of(self)
        )
        entry = aws.eks.AccessEntry(
            f"{self._name}-node",
            cluster_name=args.cluster_name,
            principal_arn=self._node_role.arn,
            type="EC2_LINUX",
            tags=args.tags,
            opts=child_of(self),
        )
        return [entry, *self._node_policies]

    def _make_pools(self, wait_for: list[pulumi.Resource]) -> None:
        """Make the pools after the controller, so that a destroy deletes them, with their nodes, before the
        controller."""
        args = self._args
        setting = objects.NodeSetting(
            args.cluster_name,
            args.kubernetes_version,
            self._profile.name,
            args.kms_key_arn,
            args.lustre_network,
            args.tags,
        )
        if args.cpu_limit:
            group = args.cluster_security_group_id
            node_class = objects.cpu_node_class(args, setting, self._subnet(None), group)
            self._make_pool(CPU_POOL, node_class, objects.cpu_node_pool(args), wait_for)
        for pool in args.accelerator_pools:
            instance = args.catalogue.find(pool.instance_type)
            groups = self._groups if instance.has_efa else [args.cluster_security_group_id]
            node_class = objects.accelerator_node_class(pool, instance, setting, self._subnet(pool), groups)
            # As for node groups: not with reservations, which were made outside of it.
            if instance.has_efa and not pool.capacity_reservation_ids:
                name = f"{self._name}-{pool.name}-placement"
                made = aws.ec2.PlacementGroup(name, strategy="cluster", tags=args.tags, opts=child_of(self))
                node_class["placementGroupSelector"] = {"name": made.name}
            spec = objects.accelerator_node_pool(pool, args.catalogue, args.accelerator_empty_minutes)
            self._make_pool(pool.name, node_class, spec, wait_for)

    def _make_pool(
        self, pool: str, node_class: dict[str, Any], node_pool: dict[str, Any], wait_for: list[pulumi.Resource]
    ) -> None:
        made = k8s.apiextensions.CustomResource(
            f"{self._name}-{pool}-class",
            api_version=objects.NODE_CLASS_API,
            kind="EC2NodeClass",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=pool),
            spec=node_class,
            opts=pulumi.ResourceOptions(parent=self, depends_on=wait_for),
        )
        k8s.apiextensions.CustomResource(
            f"{self._name}-{pool}",
            api_version=objects.NODE_POOL_API,
            kind="NodePool",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=pool),
            spec=node_pool,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[made]),
        )

    def _zone(self, pool: KarpenterPoolConfig | None) -> str:
        """Return the zone of a pool; the first zone for CPU nodes, and for a pool that names none."""
        named = pool.zone_id if pool is not None else None
        return named if named is not None else next(iter(self._args.subnet_ids_by_zone))

    def _subnet(self, pool: KarpenterPoolConfig | None) -> Text:
        subnets: dict[str, Text] = self._args.subnet_ids_by_zone
        return subnets[self._zone(pool)]


def controller_values(args: KarpenterArgs, queue: Text) -> dict[str, Any]:
    """Return the values of the karpenter chart, without its definitions; cluster and queue names may be Outputs."""
    return {
        "replicas": args.replicas,
        "serviceAccount": {"name": CHART},
        "settings": {
            "clusterName": args.cluster_name,
            "interruptionQueue": queue,
            # EKS repairs the nodes of groups; two repairers of a node would conflict (R63).
            "featureGates": {"nodeRepair": False, "staticCapacity": False},
        },
        "nodeSelector": dict(args.node_selector),
        "controller": {
            # By value: the instance metadata is one hop too far for a pod.
            "env": [{"name": "AWS_REGION", "value": args.region}],
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        },
    }


def validate(args: KarpenterArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = validators.own_problems(args, args.catalogue)
    found += formats.tags("tags", args.tags)
    found += _zone_problems(args)
    if args.kubernetes_version not in versions.AMI_RELEASES:
        known = tuple(versions.AMI_RELEASES)
        reason = "no AMI release is pinned for this version"
        found.append(
            Problem("kubernetes_version", reason, value=args.kubernetes_version, allowed=known, good=known[-1])
        )
    return found


def _zone_problems(args: KarpenterArgs) -> Iterator[Problem]:
    zones = tuple(args.subnet_ids_by_zone)
    if not zones:
        yield Problem("subnet_ids_by_zone", "it is empty: Karpenter would have no subnet to start nodes in", "name one")
    for index, pool in enumerate(args.accelerator_pools):
        if pool.zone_id is not None and zones and pool.zone_id not in zones:
            path = join(join("accelerator_pools", index), "zone_id")
            yield Problem(path, "there is no subnet in it", value=pool.zone_id, allowed=zones, good=zones[0])
