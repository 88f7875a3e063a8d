"""The inputs of a resource as a provider's Check answers them: the engine keeps them, and a policy pack sees them.

pulumi-aws fills in four things before it checks a resource: ``region``, ``tagsAll`` (the provider's default tags
under the resource's own), a name where the program gave none, and the defaults of Terraform's schema. Sources: in
pulumi/pulumi-aws ``provider/region.go``, ``tags.go``, ``autonaming.go`` and ``resources.go``; in
pulumi/pulumi-terraform-bridge ``pkg/tfbridge/schema.go`` (``applyDefaults``, which leaves false, 0 and "" out); the
defaults themselves in hashicorp/terraform-provider-aws. pulumi-kubernetes names objects and releases
(``provider/pkg/provider/provider.go``, ``helm_release.go``).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.plan.graph import UNKNOWN
from trainium_eks.plan.resource_types import default_tags, registry
from trainium_eks.plan.resource_types.default_tags import TAGS_ALL
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.resource_types.resource_type import REGION
from trainium_eks.plan.resource_types.rows import kms, kubernetes
from trainium_eks.plan.resource_types.rows.helm import RELEASE

DEFAULTS = "__defaults"
"""The input in which the provider keeps the names of the inputs that it filled in. A policy pack does not see it."""

RANDOM_CHARACTERS = 7
"""Characters of the random part of a name, in hexadecimal digits, after a hyphen."""

LONGEST_NAMES: Mapping[str, int] = {
    "aws:budgets/budget:Budget": 100,
    "aws:cloudwatch/eventRule:EventRule": 64,
    "aws:cloudwatch/eventTarget:EventTarget": 64,
    "aws:cloudwatch/logGroup:LogGroup": 512,
    "aws:ec2/launchTemplate:LaunchTemplate": 128,
    "aws:eks/cluster:Cluster": 100,
    "aws:eks/nodeGroup:NodeGroup": 63,
    "aws:iam/instanceProfile:InstanceProfile": 128,
    "aws:iam/policy:Policy": 128,
    "aws:iam/role:Role": 64,
    "aws:iam/rolePolicy:RolePolicy": 128,
    "aws:kms/alias:Alias": 256,
    "aws:s3/bucket:Bucket": 63,
    "aws:sagemaker/endpoint:Endpoint": 63,
    "aws:sagemaker/endpointConfiguration:EndpointConfiguration": 63,
    "aws:sagemaker/model:Model": 63,
    "aws:sqs/queue:Queue": 80,
}
"""Type to the most characters of a name that Terraform's schema accepts; 255 for the other types."""

OTHER_NAMES: Mapping[str, str] = {
    "aws:cloudwatch/eventTarget:EventTarget": "targetId",
    "aws:grafana/workspace:Workspace": "name",
}
"""Names that are filled in for types without ``named_by`` in their row, because two things may share a name."""

LOWER_CASE = frozenset({"aws:s3/bucket:Bucket"})
"""Types with names that are made in lower case."""

SCHEMA_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "aws:cloudwatch/eventRule:EventRule": {"eventBusName": "default"},
    "aws:cloudwatch/eventTarget:EventTarget": {"eventBusName": "default"},
    "aws:ec2/flowLog:FlowLog": {"logDestinationType": "cloud-watch-logs", "maxAggregationInterval": 600},
    "aws:ec2/instance:Instance": {"sourceDestCheck": True},
    "aws:ec2/natGateway:NatGateway": {"connectivityType": "public"},
    "aws:ec2/securityGroup:SecurityGroup": {"description": "Managed by Pulumi"},
    "aws:ec2/vpc:Vpc": {"enableDnsSupport": True, "instanceTenancy": "default"},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"vpcEndpointType": "Gateway"},
    "aws:ecr/repository:Repository": {"imageTagMutability": "MUTABLE"},
    "aws:eks/accessEntry:AccessEntry": {"type": "STANDARD"},
    "aws:eks/cluster:Cluster": {
        "accessConfig.bootstrapClusterCreatorAdminPermissions": True,
        "bootstrapSelfManagedAddons": True,
        "vpcConfig.endpointPublicAccess": True,
    },
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "dataCompressionType": "NONE",
        "deploymentType": "SCRATCH_1",
        "skipFinalBackup": True,
        "storageType": "SSD",
    },
    "aws:iam/instanceProfile:InstanceProfile": {"path": "/"},
    "aws:iam/policy:Policy": {"path": "/"},
    "aws:iam/role:Role": {"maxSessionDuration": 3600, "path": "/"},
    "aws:kms/key:Key": {"customerMasterKeySpec": "SYMMETRIC_DEFAULT", "isEnabled": True,
                        "keyUsage": "ENCRYPT_DECRYPT"},
    "aws:sqs/queue:Queue": {"maxMessageSize": 262144, "messageRetentionSeconds": 345600,
                            "visibilityTimeoutSeconds": 30},
    RELEASE.token: {"namespace": "default", "timeout": 300},
}  # fmt: skip
"""Type to the value of an unset input; a dotted path applies where the object before the dot is given."""


@dataclass(frozen=True)
class Checked:
    inputs: Mapping[str, Any]
    faults: tuple[tuple[str, str], ...] = ()
    """Path of an input and its fault."""


def checked(
    type_: str,
    name: str,
    inputs: Mapping[str, Any],
    *,
    provider: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    seed: bytes = b"",
) -> Checked:
    """Return a resource's inputs with the provider's defaults filled in. The checked inputs so far (``before``) keep
    a name that was made up; ``seed`` is the source of a new name's random part."""
    row = registry.find(type_)
    if row is None or type_.startswith("pulumi:"):
        return Checked(inputs)
    found, filled = dict(inputs), []
    if REGION in row.replaced_by and found.get(REGION) is None and provider.get(REGION):
        found[REGION] = provider[REGION]
    if row.tagged:
        tags = default_tags.laid_over(inputs, provider)
        found[TAGS_ALL] = UNKNOWN if UNKNOWN in tags or UNKNOWN in tags.values() else tags
    path = name_path(type_)
    faults: tuple[tuple[str, str], ...] = ()
    if path:
        given = value_at(inputs, path) or value_at(inputs, f"{path}Prefix") or value_at(inputs, "metadata.generateName")
        if given is None:
            _put(found, path, _kept(type_, path, before) or _made_up(type_, name, seed))
            filled.append(path)
        faults = _too_long(type_, path, found)
    for path, value in SCHEMA_DEFAULTS.get(type_, {}).items():
        above = path.rpartition(".")[0]
        if value_at(found, path) is None and (not above or isinstance(value_at(found, above), Mapping)):
            _put(found, path, value)
            filled.append(path)
    if type_.startswith("aws:"):
        found[DEFAULTS] = sorted(path for path in filled if "." not in path)
    return Checked(found, faults)


def name_path(type_: str) -> str:
    """Return the dotted path of the input that gets a name when a program gives none; empty for types without one."""
    row = registry.find(type_)
    return OTHER_NAMES.get(type_) or (row.named_by[-1] if row is not None and row.named_by else "")


def _kept(type_: str, path: str, before: Mapping[str, Any] | None) -> Any:
    made_up = path in (before or {}).get(DEFAULTS, ()) or type_.startswith(kubernetes.PREFIX)
    return value_at(before, path) if before and made_up else None


def _made_up(type_: str, name: str, seed: bytes) -> str:
    lower = name.lower() if type_ in LOWER_CASE else name
    made = f"{lower}-{hashlib.sha256(seed + name.encode()).hexdigest()[:RANDOM_CHARACTERS]}"
    return f"alias/{made}" if type_ == kms.ALIAS.token else made


def _too_long(type_: str, path: str, inputs: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found, most = value_at(inputs, path), LONGEST_NAMES.get(type_, 255)
    if not isinstance(found, str) or len(found) <= most:
        return ()
    return ((path, f"{found!r} has {len(found)} characters, and the provider accepts {most}"),)


def _put(inputs: dict[str, Any], path: str, value: Any) -> None:
    top, _, rest = path.partition(".")
    if not rest:
        inputs[top] = value
        return
    inner = dict(inputs.get(top) or {})
    _put(inner, rest, value)
    inputs[top] = inner
