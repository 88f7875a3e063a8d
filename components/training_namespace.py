"""TrainingNamespace: a team's namespace, with its roles, limits, volume, data, network and queues."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model.catalogue import lustre, regions
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.namespaces import NamespaceConfig
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.policies.addon_policies import Statement, allow
from trainium_eks.model.sizing import block_times, quotas
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import LooseStr, StrictInt
from trainium_eks.model.validation.problems import Problem

from . import _charts, _iam, _ids, _team_policies
from ._args import Tags, Text, outputs, sources, text, validate_args
from ._dicts import TrainingNamespaceArgsDict
from .lustre_volumes import claim_options, claim_spec
from .volcano_stack import ETCD_NAMESPACE

POD_SECURITY_REASON = (
    "TorchX sets no seccomp profile and no user, and drops no capability, which the restricted level asks of every pod"
)
"""The baseline level already forbids host paths, host networking and privileged pods; Neuron and EFA devices come by
device plugins and need none of them, and /dev/shm is an emptyDir."""

SERVICE_ACCOUNT = "training"
"""Service account of jobs. Its pods get AWS credentials by Pod Identity and none for Kubernetes."""

DEFAULT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""Requests of containers that state none. There is no default limit: it would kill containers that request devices and
state no memory."""

OBJECT_ACTIONS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
"""Actions for reading and writing SSE-KMS objects (S3 user guide)."""


class TrainingNamespaceArgs(NamespaceConfig):
    """Args of :class:`TrainingNamespace`: one entry of the config's namespaces, and its wiring."""

    later_in: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "principals": "give it in `principal_arns`, under a key that stays the same: {ops: <the Output>}",
            "queues": "give a list of its entries: [volcano.queue_names[0]]",
        }
    )

    region: formats.Region
    """AWS region."""
    cluster_name: Text
    """EKS cluster."""
    queue_capability: dict[str, StrictInt] = pydantic.Field(default_factory=dict)
    """Resources that its queues may use at once, in total (``{aws.amazon.com/neuron: 64}``); the default quota comes
    from it."""
    room: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """CPU, memory and pods of all nodes that its pods may run on, as Kubernetes quantities, when every group is at its
    largest; the default quota comes from it. Empty: unknown and not limited."""
    shared_nodes: dict[str, dict[str, LooseStr]] = pydantic.Field(default_factory=dict)
    """Instance type of nodes that other teams use, too, to the resources that pods can ask of one of them. Pods then
    take all devices of a node, or with ``partial_nodes`` a part of a node that the scheduler chooses, and the API
    server serves few of the team's requests at one time. Empty: there is no other team."""
    block_ends: dict[str, str] = pydantic.Field(default_factory=dict)
    """Node group to the end of its Capacity Block, RFC 3339; pods of trainings read it from a ConfigMap, and so follow
    an extension."""
    volume_name: Text | None = None
    """Persistent volume of the shared file system that is reserved for this namespace; None for no claim."""
    volume_gib: StrictInt = 0
    """Size of that volume, GiB."""
    volume_class: Text = ""
    """Storage class of that volume; empty for a volume of no class."""
    bucket_arn: Text | None = None
    """The stack's own bucket; None without one."""
    bucket_prefix: str = ""
    """Prefix of the file system's root in that bucket; the team's prefix is ``<namespace>/`` below it."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key of the objects in the stack's bucket; None where S3's default key is used."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds the role made here; None for no bound."""
    rendezvous: Literal["c10d", "etcd"] = "c10d"
    """``etcd`` lets its pods reach the stack's etcd."""
    principal_arns: dict[str, Text] = pydantic.Field(default_factory=dict)
    """IAM roles of further researchers with ARNs that may be known later, each under a key that stays the same (``{ops:
    role.arn}``)."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags of its AWS resources, in addition to the provider's."""
    volcano: pulumi.Resource | None = None
    """The resource that installs Volcano (``VolcanoStack.admission``). The quota counts Volcano's kinds and waits for
    it: Kubernetes notices a new kind within 30 s, and an older quota counts it within 5 minutes more. Until then the
    API server refuses objects of the kind."""


def validate(args: TrainingNamespaceArgs) -> list[Problem]:
    """Return the problems of the namespace."""
    found = [
        # Of a list of one: `[0].name` becomes `name`.
        dataclasses.replace(problem, path=problem.path.removeprefix("[0]").removeprefix("."))
        for problem in namespaces.validate((args,), queue_names=None)
    ]
    found += formats.keyed_principals("principal_arns", args.principal_arns)
    found += formats.tags("tags", args.tags)
    if args.volume_name is not None and args.volume_gib < 1:
        found.append(Problem("volume_gib", "a claim needs the size of its volume", value=args.volume_gib, good=1200))
    return found


class TrainingNamespace(pulumi.ComponentResource):
    """A namespace in which one team trains, through its own queues and no others.

    The Kubernetes provider comes by ``opts.providers``. No user has access before the admission policies exist: the
    role binding waits for them.
    """

    namespace: pulumi.Output[str]
    """Name of the namespace."""
    service_account: pulumi.Output[str]
    """Service account for jobs."""
    role_arn: pulumi.Output[str]
    """IAM role of the service account; empty when there is no bucket it could reach."""
    claim_name: pulumi.Output[str]
    """Claim of the shared file system; empty without one."""
    queue_names: pulumi.Output[Sequence[str]]
    """Queues its jobs may use, the first being their default."""

    def __init__(
        self,
        name: str,
        args: TrainingNamespaceArgs | TrainingNamespaceArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(TrainingNamespaceArgs, args, validate, f"TrainingNamespace {name}", opts=opts)
        super().__init__("trainium-eks:index:TrainingNamespace", name, {}, opts)
        self._args = args

        self._namespace = self._make_namespace()
        quota = self._limit_resources()
        self._limit_network()
        guards = self._guard()
        if args.shared_nodes:
            self._limit_requests()
        self._let_researchers_in(guards)
        self._service_account = self._make_service_account()
        role = self._give_data_access() if self._buckets() else None
        claim = self._claim_volume(quota)
        if args.block_ends:
            k8s.core.v1.ConfigMap(
                f"{self._name}-capacity-blocks",
                metadata=self._metadata(block_times.ENDS_CONFIG_MAP),
                data=dict(args.block_ends),
                opts=self._within(),
            )

        self.namespace = self._namespace.metadata["name"]
        self.service_account = self._service_account.metadata["name"]
        self.role_arn = role.arn if role else pulumi.Output.from_input("")
        self.claim_name = claim.metadata["name"] if claim else pulumi.Output.from_input("")
        self.queue_names = pulumi.Output.all(*map(text, args.queues))
        self.register_outputs(outputs(self, TrainingNamespace))

    @property
    def group(self) -> str:
        """Kubernetes group of the team's researchers; access entries put their IAM roles into it."""
        return f"trainium-eks:{self._args.name}:researchers"

    def _make_namespace(self) -> k8s.core.v1.Namespace:
        """Make the namespace after its volume, so that a destroy deletes it, with its pods and its claim, before the
        volume: Kubernetes keeps a volume as long as its claim."""
        volume = [] if self._args.volume_name is None else sources(self._args.volume_name)
        opts = pulumi.ResourceOptions(parent=self, depends_on=volume)
        return _charts.namespace(f"{self._name}-namespace", self._args.name, "baseline", POD_SECURITY_REASON, opts)

    def _within(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of objects that are deleted with the namespace: network policies hold until its last pod
        has ended."""
        return pulumi.ResourceOptions(parent=self, depends_on=[self._namespace, *after], deleted_with=self._namespace)

    def _metadata(self, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self._args.name)

    def _limit_resources(self) -> k8s.core.v1.ResourceQuota:
        quota = k8s.core.v1.ResourceQuota(
            f"{self._name}-quota",
            metadata=self._metadata("team"),
            spec=k8s.core.v1.ResourceQuotaSpecArgs(hard=self._quota()),
            opts=self._within(*([] if self._args.volcano is None else [self._args.volcano])),
        )
        k8s.core.v1.LimitRange(
            f"{self._name}-limits",
            metadata=self._metadata("defaults"),
            spec=k8s.core.v1.LimitRangeSpecArgs(
                limits=[k8s.core.v1.LimitRangeItemArgs(type="Container", default_request=DEFAULT_REQUESTS)]
            ),
            opts=self._within(),
        )
        return quota

    def _quota(self) -> dict[str, str]:
        args = self._args
        return quotas.hard(args.queue_capability, args.room, args.resource_quota, claimed_gib=args.volume_gib)

    def _limit_network(self) -> None:
        etcd = ETCD_NAMESPACE if self._args.rendezvous == "etcd" else None
        for key, spec in _team_policies.network_policies(etcd).items():
            k8s.networking.v1.NetworkPolicy(
                f"{self._name}-network-{key}", metadata=self._metadata(key), spec=spec, opts=self._within()
            )

    def _guard(self) -> list[pulumi.Resource]:
        """Make the admission policies, cluster objects with the namespace in their names, and bindings that narrow them
        to the namespace."""
        here = k8s.meta.v1.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": self._args.name})
        bindings: list[pulumi.Resource] = []
        for key, spec in self._admission_policies().items():
            metadata = k8s.meta.v1.ObjectMetaArgs(name=f"trainium-eks-{self._args.name}-{key}")
            policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
                f"{self._name}-admission-{key}",
                metadata=metadata,
                spec=spec,
                opts=pulumi.ResourceOptions(parent=self),
            )
            binding = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
                f"{self._name}-admission-{key}",
                metadata=metadata,
                spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpecArgs(
                    policy_name=policy.metadata["name"],
                    validation_actions=["Deny"],
                    match_resources=k8s.admissionregistration.v1.MatchResourcesArgs(namespace_selector=here),
                ),
                opts=pulumi.ResourceOptions(parent=self),
            )
            bindings.append(binding)
        return bindings

    def _limit_requests(self) -> None:
        """Bound the requests of the team that are served at one time: quotas do not count refused requests."""
        metadata = k8s.meta.v1.ObjectMetaArgs(name=f"trainium-eks-{self._args.name}")
        level = k8s.flowcontrol.v1.PriorityLevelConfiguration(
            f"{self._name}-requests",
            metadata=metadata,
            spec=_team_policies.request_level(),
            opts=pulumi.ResourceOptions(parent=self),
        )
        k8s.flowcontrol.v1.FlowSchema(
            f"{self._name}-requests",
            metadata=metadata,
            spec=_team_policies.request_flow(level.metadata["name"], self.group, self._args.name),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _admission_policies(
        self,
    ) -> Mapping[str, pulumi.Input[k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs]]:
        """Return name to spec of the admission policies. The names do not depend on the queues, which may be known
        later."""
        queues = self._args.queues
        known = tuple(queue for queue in queues if isinstance(queue, str))
        specs = self._admission_specs(known)
        if len(known) == len(queues):
            return specs
        every = pulumi.Output.all(*map(text, queues)).apply(tuple)

        def later(name: str) -> pulumi.Output[k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs]:
            return every.apply(lambda names: self._admission_specs(names)[name])

        return {name: later(name) for name in specs}

    def _admission_specs(
        self, queues: tuple[str, ...]
    ) -> dict[str, k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs]:
        hard = self._quota()
        limits = admission.Limits(
            queues,
            self._args.priority_classes,
            pods=quotas.counted(hard, "pods"),
            finished_pods=quotas.counted(hard, "count/pods"),
            jobs=quotas.counted(hard, quotas.VOLCANO_JOBS),
            counted_requests=quotas.counted_requests(hard),
            closed_storage_classes=quotas.closed_storage_classes(hard),
            researchers=self.group,
            service_accounts=("default", SERVICE_ACCOUNT),
            reserved_names=tuple(_team_policies.network_policies(ETCD_NAMESPACE)),
            nodes=self._args.shared_nodes,
            partial_nodes=bool(self._args.partial_nodes),
        )
        policies = admission.policies(limits, researchers.writable_kinds())
        return {name: _team_policies.admission_policy(policy) for name, policy in policies.items()}

    def _let_researchers_in(self, guards: Sequence[pulumi.Resource]) -> None:
        role = k8s.rbac.v1.Role(
            f"{self._name}-researcher",
            metadata=self._metadata("researcher"),
            rules=_team_policies.role_rules(researchers.RESEARCHER_RULES),
            opts=self._within(),
        )
        subject = k8s.rbac.v1.SubjectArgs(kind="Group", name=self.group, api_group="rbac.authorization.k8s.io")
        k8s.rbac.v1.RoleBinding(
            f"{self._name}-researcher",
            metadata=self._metadata("researcher"),
            role_ref=_role_ref("Role", role.metadata["name"]),
            subjects=[subject],
            opts=self._within(*guards),
        )
        viewer_metadata = k8s.meta.v1.ObjectMetaArgs(name=f"trainium-eks-{self._args.name}-viewer")
        viewer = k8s.rbac.v1.ClusterRole(
            f"{self._name}-viewer",
            metadata=viewer_metadata,
            rules=_team_policies.role_rules(researchers.VIEWER_RULES),
            opts=pulumi.ResourceOptions(parent=self),
        )
        k8s.rbac.v1.ClusterRoleBinding(
            f"{self._name}-viewer",
            metadata=viewer_metadata,
            role_ref=_role_ref("ClusterRole", viewer.metadata["name"]),
            subjects=[subject],
            opts=pulumi.ResourceOptions(parent=self),
        )
        principals = {_iam.principal_key(arn): arn for arn in self._args.principals}
        for key, principal in {**principals, **self._args.principal_arns}.items():
            aws.eks.AccessEntry(
                f"{self._name}-access-{key}",
                cluster_name=self._args.cluster_name,
                principal_arn=principal,
                type="STANDARD",
                kubernetes_groups=[self.group],
                tags=dict(self._args.tags),
                opts=pulumi.ResourceOptions(parent=self),
            )

    def _make_service_account(self) -> k8s.core.v1.ServiceAccount:
        return k8s.core.v1.ServiceAccount(
            f"{self._name}-service-account",
            metadata=self._metadata(SERVICE_ACCOUNT),
            # Training sends no request to the Kubernetes API; Pod Identity mounts another token.
            automount_service_account_token=False,
            opts=self._within(),
        )

    def _buckets(self) -> list[tuple[Text, str]]:
        """Return the ARN of each bucket and the team's prefix in it."""
        args = self._args
        found: list[tuple[Text, str]] = []
        if args.bucket_arn is not None:
            above = args.bucket_prefix.strip("/")
            found.append((args.bucket_arn, f"{above}/{args.name}" if above else args.name))
        if args.data_bucket is not None:
            found.append((_iam.bucket_arn(args.region, text(args.data_bucket)), args.name))
        return found

    def _give_data_access(self) -> aws.iam.Role:
        args = self._args
        role = _iam.make_role(
            f"{self._name}-role",
            description=f"Training jobs of the namespace {args.name}",
            trust=_iam.pod_identity_trust(),
            boundary=args.permissions_boundary,
            tags=args.tags,
            parent=self,
        )
        buckets = self._buckets()
        prefixes = [prefix for _, prefix in buckets]
        document = pulumi.Output.all(*(arn for arn, _ in buckets)).apply(
            lambda arns: list(zip(arns, prefixes, strict=True))
        )
        allowed = aws.iam.RolePolicy(
            f"{self._name}-data",
            role=role.name,
            policy=pulumi.Output.all(document, args.kms_key_arn, args.data_bucket_key_arn).apply(
                lambda known: data_policy(args.region, known[0], dict.fromkeys(filter(None, known[1:])))
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        aws.eks.PodIdentityAssociation(
            f"{self._name}-identity",
            cluster_name=args.cluster_name,
            namespace=args.name,
            service_account=self._service_account.metadata["name"],
            role_arn=role.arn,
            tags=dict(args.tags),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[allowed]),
        )
        return role

    def _claim_volume(self, quota: k8s.core.v1.ResourceQuota) -> k8s.core.v1.PersistentVolumeClaim | None:
        """Make the claim after the quota: if a file system is added to a team, the quota must have room for the claim
        first."""
        if self._args.volume_name is None:
            return None
        return k8s.core.v1.PersistentVolumeClaim(
            f"{self._name}-claim",
            metadata=self._metadata(lustre.CLAIM),
            spec=claim_spec(self._args.volume_name, self._args.volume_gib, self._args.volume_class),
            opts=claim_options(self, self._namespace, quota),
        )


def data_policy(region: str, buckets: Iterable[tuple[str, str]], keys: Iterable[str]) -> str:
    """Return the policy of jobs on their data, as JSON: read, write and list below their own prefixes.

    Args:
        region: AWS region of the buckets.
        buckets: ARN of each bucket, and the prefix in it without slash at either end.
        keys: ARNs of the objects' KMS keys, allowed through S3 in this region alone.
    """
    statements: list[Statement] = []
    for arn, prefix in buckets:
        statements.append(allow("s3:ListBucket", arn, {"StringLike": {"s3:prefix": [f"{prefix}/*", prefix]}}))
        statements.append(allow(list(OBJECT_ACTIONS), f"{arn}/{prefix}/*"))
    for key in keys:
        service = f"s3.{region}.{regions.dns_suffix(region)}"
        statements.append(allow(list(KEY_ACTIONS), key, {"StringEquals": {"kms:ViaService": service}}))
    return _iam.policy(statements)


def _role_ref(kind: str, name: pulumi.Input[str]) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)
