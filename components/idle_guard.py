"""IdleGuard: a CronJob that reports idle accelerators and ends their instances."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue import regions, versions
from trainium_eks.model.config import idle, namespaces
from trainium_eks.model.config.idle import IdleGuardConfig
from trainium_eks.model.policies.addon_policies import allow
from trainium_eks.model.policies.researchers import READ
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.problems import Problem, join

from . import _pod_identity
from ._args import AwsCallerArgs, Text, validate_args
from ._charts import close_namespace, namespace
from ._dicts import IdleGuardArgsDict
from ._pods import Program, Rules, container, grant, unprivileged

NAMESPACE = namespaces.IDLE_GUARD
NAMESPACE_REASON = "the guard needs no privilege"
NAME = "idle-guard"
"""Name of its service account, its CronJob, and its roles."""

PROGRAM = Program(("observe.idle.guard", "observe.idle.decision", "topology.api"))
"""Modules that the guard's pod runs."""

LIST = "/list/remove"
"""File with the instances to end, written by the container that decides for the container that ends them."""

SECONDS = 300
"""Time limit of a run."""

CLUSTER_RULES = (
    ("", ("nodes",), (*READ, "patch")),
    ("", ("pods",), READ),
    ("scheduling.volcano.sh", ("podgroups",), READ),
)
"""API group, resources and verbs of the guard in the whole cluster."""

EVENT_RULES = (("", ("events",), ("create",)),)
"""Rights in the namespace ``default``, which holds the events of nodes."""

END_INSTANCES = f"""set -eu
[ -f {LIST} ] || exit 0
while read -r instance; do
  aws autoscaling terminate-instance-in-auto-scaling-group --instance-id "$instance" \\
    --should-decrement-desired-capacity --query Activity.Description --output text
done <{LIST}
"""
"""One instance after the other: when one cannot be ended the run fails, and the next run tries again."""


class GuardedGroup(ConfigModel):
    """A node group that the guard watches."""

    eks_name: Text
    """Its name in EKS."""
    devices: tuple[str, ...]
    """Resources of its nodes that jobs request: ``(aws.amazon.com/neuron, …)``."""
    minimum: StrictInt = 0
    """Nodes that stay."""
    removes: StrictBool = True
    """False only warns."""


class IdleGuardArgs(AwsCallerArgs, IdleGuardConfig):
    """Args of :class:`IdleGuard`: the config's section, and its wiring."""

    groups: dict[str, GuardedGroup]
    """Key that stays the same to the group; the name that the stack has for it."""


def validate(args: IdleGuardArgs) -> list[Problem]:
    """Return the problems of the args."""
    found = idle.validate(args)
    if not args.groups:
        found.append(Problem("groups", "it is empty: the guard would watch nothing", "name a node group"))
    for key, group in args.groups.items():
        if not group.devices:
            path = join(join("groups", key), "devices")
            fix = "name the devices of its nodes, aws.amazon.com/neuron or nvidia.com/gpu"
            found.append(Problem(path, "it is empty", fix))
    return [*found, *formats.tags("tags", args.tags)]


class IdleGuard(pulumi.ComponentResource):
    """A CronJob that checks the nodes of accelerator groups: it reports idle nodes, and ends their instances.

    Each run has two containers: the first decides, in Python (:mod:`trainium_eks.observe.idle.guard`), and the second
    ends the chosen instances with the AWS CLI. The Kubernetes provider comes by ``opts.providers``.
    """

    namespace: pulumi.Output[str]
    """Namespace of its pods."""
    role_arn: pulumi.Output[str]
    """IAM role of its pods; it may end instances of the guarded groups, and nothing else."""

    def __init__(
        self, name: str, args: IdleGuardArgs | IdleGuardArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(IdleGuardArgs, args, validate, f"IdleGuard {name}", opts=opts)
        super().__init__("trainium-eks:index:IdleGuard", name, {}, opts)
        self._args = args

        child = pulumi.ResourceOptions(parent=self)
        self._home = namespace(f"{name}-namespace", NAMESPACE, "restricted", NAMESPACE_REASON, child)
        # Outbound traffic stays open, because the addresses of AWS and the API server are unknown beforehand.
        close_namespace(f"{name}-network", "no-ingress", NAMESPACE, self._inside())
        identity = self._make_identity()
        account = self._make_account()
        code = self._make_code()
        self._make_cron_job(identity.ready, account, code)

        self.namespace = self._home.metadata["name"]
        self.role_arn = identity.role.arn
        self.register_outputs({"namespace": self.namespace, "role_arn": self.role_arn})

    def _inside(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of an object that is deleted with the namespace."""
        return pulumi.ResourceOptions(parent=self, depends_on=[self._home, *after], deleted_with=self._home)

    def _metadata(self) -> k8s.meta.v1.ObjectMetaArgs:
        return k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE)

    def _make_identity(self) -> _pod_identity.PodRole:
        """Make the role of the service account."""
        args = self._args
        names = [group.eks_name for group in args.groups.values() if group.removes]
        allowed = pulumi.Output.all(args.cluster_name, *names).apply(
            lambda known: statements(args.region, known[0], known[1:])
        )
        return _pod_identity.make_role(self._name, args, NAMESPACE, NAME, allowed, role_name=self._name, parent=self)

    def _make_account(self) -> list[pulumi.Resource]:
        """Make the service account, and its rights in Kubernetes."""
        account = k8s.core.v1.ServiceAccount(f"{self._name}-account", metadata=self._metadata(), opts=self._inside())
        subject = k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE)

        def give(key: str, rules: Rules, place: str | None = None) -> pulumi.Resource:
            role, name = f"trainium-eks-{NAME}", f"{self._name}-{key}"
            return grant(name, role, rules, subject=subject, account=account, parent=self, namespace=place)

        return [account, give("role", CLUSTER_RULES), give("events", EVENT_RULES, "default")]

    def _make_code(self) -> k8s.core.v1.ConfigMap:
        """Make the ConfigMap with the guard's modules."""
        return k8s.core.v1.ConfigMap(
            f"{self._name}-code",
            metadata=self._metadata(),
            data=PROGRAM.sources(),
            opts=self._inside(),
        )

    def _make_cron_job(
        self, identity: Sequence[pulumi.Resource], account: Sequence[pulumi.Resource], code: k8s.core.v1.ConfigMap
    ) -> None:
        k8s.batch.v1.CronJob(
            f"{self._name}-runs",
            metadata=self._metadata(),
            spec=k8s.batch.v1.CronJobSpecArgs(
                schedule=f"*/{idle.LOOK_MINUTES} * * * *",
                # Two guards at once would hold and release each other's nodes.
                concurrency_policy="Forbid",
                starting_deadline_seconds=60,
                successful_jobs_history_limit=1,
                failed_jobs_history_limit=1,
                job_template=k8s.batch.v1.JobTemplateSpecArgs(
                    spec=k8s.batch.v1.JobSpecArgs(
                        # The next run comes soon enough, and checks for idle nodes again.
                        backoff_limit=0,
                        active_deadline_seconds=SECONDS,
                        template=k8s.core.v1.PodTemplateSpecArgs(spec=_pod(self._args)),
                    )
                ),
            ),
            opts=self._inside(*identity, *account, code),
        )


def settings(args: IdleGuardArgs) -> dict[str, object]:
    """Return the guard's settings, some of them Outputs: the guard's ``main`` describes the form."""
    remove = args.remove_after_minutes
    # In the order of the names: the order of the groups in a config means nothing, and must not make a new template.
    given = [group for _, group in sorted(args.groups.items())]
    groups = pulumi.Output.all(*(group.eks_name for group in given)).apply(
        lambda names: {
            name: {"minimum": group.minimum, "devices": [*group.devices], "removes": group.removes}
            for name, group in zip(names, given, strict=True)
        }
    )
    return {
        "groups": groups,
        "warnSeconds": args.warn_after_minutes * 60,
        "removeSeconds": None if remove is None else remove * 60,
    }


def statements(region: str, cluster: str, groups: Sequence[str]) -> list[Mapping[str, object]]:
    """Return the guard's rights in AWS.

    EKS puts ``eks:cluster-name`` and ``eks:nodegroup-name`` on the Auto Scaling groups of managed node groups (EKS user
    guide, tagging). A policy needs a statement, so without a group to remove nodes from the policy denies.
    """
    if not groups:
        return [{"Effect": "Deny", "Action": "autoscaling:TerminateInstanceInAutoScalingGroup", "Resource": "*"}]
    return [
        allow(
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            f"arn:{regions.partition(region)}:autoscaling:{region}:*:autoScalingGroup:*",
            {
                "StringEquals": {
                    "aws:ResourceTag/eks:cluster-name": cluster,
                    "aws:ResourceTag/eks:nodegroup-name": [*groups],
                }
            },
        )
    ]


def _pod(args: IdleGuardArgs) -> k8s.core.v1.PodSpecArgs:
    told = k8s.core.v1.VolumeMountArgs(name="list", mount_path=str(PurePosixPath(LIST).parent))
    return k8s.core.v1.PodSpecArgs(
        restart_policy="Never",
        service_account_name=NAME,
        security_context=unprivileged(),
        init_containers=[
            PROGRAM.container(
                "decide",
                [LIST],
                # Not in the ConfigMap, which Pulumi replaces when anything in it changes.
                env=[k8s.core.v1.EnvVarArgs(name="SETTINGS", value=pulumi.Output.json_dumps(settings(args)))],
                mounts=[told],
            )
        ],
        containers=[
            container(
                "end-instances",
                versions.IMAGES["aws-cli"],
                ["sh", "-c", END_INSTANCES],
                env=[
                    k8s.core.v1.EnvVarArgs(name="AWS_REGION", value=args.region),
                    k8s.core.v1.EnvVarArgs(name="HOME", value=str(PurePosixPath(LIST).parent)),
                ],
                mounts=[told],
            )
        ],
        volumes=[
            PROGRAM.volume(NAME),
            k8s.core.v1.VolumeArgs(name="list", empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit="16Mi")),
        ],
    )
