"""ManagedGrafana: a workspace of Amazon Managed Grafana that may read one workspace of Amazon Managed Prometheus."""

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.config.observability import ManagedGrafanaConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _iam, _ids
from ._args import Tags, Text, validate_args
from ._dicts import ManagedGrafanaArgsDict
from .metrics_stack import query_statements

SERVICE = "grafana.amazonaws.com"


class ManagedGrafanaArgs(ManagedGrafanaConfig):
    """Args of :class:`ManagedGrafana`, the config section with its wiring."""

    workspace_arn: Text
    """ARN of the workspace of Amazon Managed Prometheus (``MetricsStack.workspace_arn``)."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds the role made here; None for no bound."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags of its AWS resources, in addition to the provider's."""


def validate(args: ManagedGrafanaArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    return [*formats.tags("tags", args.tags)]


class ManagedGrafana(pulumi.ComponentResource):
    """Grafana as a service, which people reach by their own login, without the cluster.

    Users and groups get access by IAM Identity Center, or by SAML, after the workspace exists: both belong to the
    organisation. Its data source and dashboards are not made here: only Grafana's own API makes them, with a token of a
    user.
    """

    endpoint: pulumi.Output[str]
    """Host name, without ``https://``."""
    workspace_id: pulumi.Output[str]
    """Id, ``g-…``."""

    def __init__(
        self, name: str, args: ManagedGrafanaArgs | ManagedGrafanaArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(ManagedGrafanaArgs, args, validate, f"ManagedGrafana {name}", opts=opts)
        super().__init__("trainium-eks:index:ManagedGrafana", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = _iam.make_role(
            f"{name}-role",
            description="Taken by Amazon Managed Grafana to read metrics",
            trust=_iam.service_trust(SERVICE),
            boundary=args.permissions_boundary,
            tags=args.tags,
            parent=self,
        )
        arn = pulumi.Output.from_input(args.workspace_arn)
        allowed = aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=arn.apply(lambda known: _iam.policy(query_statements(known))),
            opts=child,
        )
        workspace = aws.grafana.Workspace(
            f"{name}-workspace",
            account_access_type="CURRENT_ACCOUNT",
            authentication_providers=[args.authentication],
            # Its own choice would be a role that reads every workspace of the account.
            permission_type="CUSTOMER_MANAGED",
            role_arn=role.arn,
            data_sources=["PROMETHEUS"],
            tags={"Name": name, **args.tags},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[allowed]),
        )
        self.endpoint = workspace.endpoint
        self.workspace_id = workspace.id
        self.register_outputs({"endpoint": self.endpoint, "workspace_id": self.workspace_id})
