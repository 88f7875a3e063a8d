"""LogShipping: container logs in CloudWatch Logs, kept after their pods are deleted."""

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.config import namespaces, observability
from trainium_eks.model.config.observability import LogsConfig
from trainium_eks.model.policies.addon_policies import allow
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import StrictBool
from trainium_eks.model.validation.problems import Problem

from . import _charts, _fluent_bit, _ids, _pod_identity
from ._args import AwsCallerArgs, Text, validate_args, waivers_of
from ._dicts import LogShippingArgsDict

NAMESPACE = namespaces.LOG_SHIPPING
NAMESPACE_REASON = "Fluent Bit reads its node's /var/log, whose files are root's"

WRITE_ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")


class LogShippingArgs(AwsCallerArgs, LogsConfig):
    """Args of :class:`LogShipping`, the config section with its wiring."""

    cluster_name: Text
    """EKS cluster; the log group is named after it."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key of the log group; None for a key of AWS' own. Its policy must let CloudWatch Logs of the region use it, as
    the policy of ``EncryptionKey`` does."""
    production: StrictBool = False
    """Holds the retention to the production rules."""
    waivers: dict[str, str] = pydantic.Field(default_factory=dict)
    """Rules broken on purpose, each with its reason: ``R84`` for logs that production keeps for less than a month."""


def validate(args: LogShippingArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = observability.logs_problems(args, production=args.production)
    found += formats.tags("tags", args.tags)
    return found


class LogShipping(pulumi.ComponentResource):
    """A log group, and Fluent Bit on every node, which sends the container logs to it.

    Each line is a JSON event with ``log`` and ``kubernetes`` (``namespace_name``, ``pod_name``, ``container_name``), in
    the stream ``<namespace>/<pod>/<container>``. The Kubernetes provider comes by ``opts.providers``.
    """

    log_group: pulumi.Output[str]
    """Name of the log group: ``/trainium-eks/<cluster>/containers``."""
    log_group_arn: pulumi.Output[str]
    """Its ARN."""

    def __init__(
        self, name: str, args: LogShippingArgs | LogShippingArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(LogShippingArgs, args, validate, f"LogShipping {name}", waivers_of(args), opts=opts)
        super().__init__("trainium-eks:index:LogShipping", name, {}, opts)
        self._args = args

        self._group = self._make_group()
        role = self._make_role()
        self._namespace = _charts.namespace(
            f"{name}-namespace", NAMESPACE, "privileged", NAMESPACE_REASON, pulumi.ResourceOptions(parent=self)
        )
        _charts.close_namespace(
            f"{name}-ingress",
            "deny-ingress",
            NAMESPACE,
            pulumi.ResourceOptions(parent=self, depends_on=[self._namespace]),
        )
        self._install(role)

        self.log_group = self._group.name
        self.log_group_arn = self._group.arn
        self.register_outputs({"log_group": self.log_group, "log_group_arn": self.log_group_arn})

    def _make_group(self) -> aws.cloudwatch.LogGroup:
        """Make the log group before the first line arrives: a group that Fluent Bit made would have neither key nor
        retention."""
        args = self._args
        return aws.cloudwatch.LogGroup(
            f"{self._name}-containers",
            name=pulumi.Output.concat("/trainium-eks/", args.cluster_name, "/containers"),
            retention_in_days=args.retention_days,
            kms_key_id=args.kms_key_arn,
            tags=dict(args.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _make_role(self) -> aws.eks.PodIdentityAssociation:
        return _pod_identity.make_role(
            f"{self._name}-fluent-bit",
            self._args,
            NAMESPACE,
            _fluent_bit.SERVICE_ACCOUNT,
            self._group.arn.apply(lambda arn: [allow(list(WRITE_ACTIONS), f"{arn}:*")]),
            role_name=f"{self._name}-fluent-bit-role",
            parent=self,
        ).association

    def _install(self, role: aws.eks.PodIdentityAssociation) -> None:
        """Install Fluent Bit after its role: a pod that starts without a role never gets one."""
        _charts.release(
            f"{self._name}-fluent-bit",
            _charts.chart(_fluent_bit.CHART),
            release_name=_fluent_bit.RELEASE_NAME,
            namespace=NAMESPACE,
            values=_fluent_bit.fluent_bit_values(self._args.region, self._group.name, system=self._args.system),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self._namespace, role]),
            on_failure="keep",
        )
