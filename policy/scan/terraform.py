"""Converter of a recorded program to a Terraform plan, for scanners that know Terraform and not Pulumi.

Pulumi's AWS provider is made from Terraform's, so most names follow from Pulumi's own: resource types by service,
inputs in snake case, objects as blocks. The tables below name the exceptions. A name that neither gives is an
:class:`Unmapped` error, never left out: a scanner passes a resource that it does not see.

The document has the form of ``terraform show -json``: values, and in place of values that are not known yet the
references between resources.
"""

import importlib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_eks.plan import sdk
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import sdk_inputs

PREFIX = "aws:"
"""Prefix of the resource types that are converted; Kubernetes objects are manifests already."""

SERVICES: Mapping[str, str] = {
    "amp": "prometheus_",
    "appautoscaling": "appautoscaling_",
    "autoscaling": "autoscaling_",
    "budgets": "budgets_",
    "cloudwatch": "cloudwatch_",
    "ec2": "",
    "ecr": "ecr_",
    "eks": "eks_",
    "fsx": "fsx_",
    "grafana": "grafana_",
    "iam": "iam_",
    "kms": "kms_",
    "s3": "s3_",
    "sagemaker": "sagemaker_",
    "sns": "sns_",
    "sqs": "sqs_",
    "vpc": "vpc_",
}
"""Module of a Pulumi type to the text between ``aws_`` and the type's own name in Terraform."""

REPEATED_BLOCKS: Mapping[str, str] = {
    "blockDeviceMappings": "block_device_mappings",
    "corsRules": "cors_rule",
    "costFilters": "cost_filter",
    "egress": "egress",
    "encryptionConfigurations": "encryption_configuration",
    "grants": "grant",
    "ingress": "ingress",
    "inlinePolicies": "inline_policy",
    "lifecycleRules": "lifecycle_rule",
    "networkInterfaces": "network_interfaces",
    "nodeRepairConfigOverrides": "node_repair_config_overrides",
    "noncurrentVersionTransitions": "noncurrent_version_transition",
    "notifications": "notification",
    "podIdentityAssociations": "pod_identity_association",
    "routes": "route",
    "rules": "rule",
    "tagSpecifications": "tag_specifications",
    "taints": "taint",
    "transitions": "transition",
}
"""Inputs that are lists of objects: Terraform calls most by the singular, and no rule says which."""

_REFERENCED = ("id", "arn", "name")
"""Outputs that stand for a resource in another's inputs. Other outputs (a region, a mode) are converted as values."""

Expressions = dict[str, Any]
"""``{"references": [...]}`` by input, nested as the blocks are."""


class Unmapped(Exception):  # noqa: N818 (the state met)
    """Types or inputs without a known name in Terraform."""


@dataclass(frozen=True)
class TerraformPlan:
    """A Terraform plan, and the recorded resource of each address."""

    document: Mapping[str, Any]
    """The plan as ``terraform show -json`` writes it."""
    resources: Mapping[str, Resource]
    """Address (``aws_s3_bucket.trn-prod-data``) to the recorded resource."""


def plan(graph: Graph) -> TerraformPlan:
    """Return the AWS resources of a recorded program as a Terraform plan.

    Raises:
        Unmapped: with one line for each type or input that has no known name.
    """
    importlib.import_module("pulumi_aws")  # its classes tell objects that are blocks from maps
    addresses, unmapped = _addresses(graph)
    managed, changes, configuration = [], [], []
    for urn, address in addresses.items():
        resource = graph.by_urn[urn]
        converting = _Converting(graph, resource, addresses)
        values, expressions = converting.whole()
        unmapped += converting.unmapped
        head = {"address": address, "mode": "managed", "type": address.partition(".")[0]}
        head["name"] = address.partition(".")[2]
        managed.append({**head, "values": values})
        changes.append({**head, "change": {"actions": ["create"], "before": None, "after": values}})
        configuration.append({**head, "expressions": expressions})
    if unmapped:
        raise Unmapped("\n".join(sorted(set(unmapped))))
    document = {
        "format_version": "1.2",
        "terraform_version": "1.9.0",
        "planned_values": {"root_module": {"resources": managed}},
        "resource_changes": changes,
        "configuration": {"root_module": {"resources": configuration}},
    }
    return TerraformPlan(document, {address: graph.by_urn[urn] for urn, address in addresses.items()})


def terraform_type(token: str) -> str | None:
    """Return ``aws_eks_cluster`` for ``aws:eks/cluster:Cluster``; None when the service is not in :data:`SERVICES`."""
    service, _, name = token.removeprefix(PREFIX).partition(":")[0].partition("/")
    return f"aws_{SERVICES[service]}{_snake(name)}" if service in SERVICES else None


def _addresses(graph: Graph) -> tuple[dict[str, str], list[str]]:
    """Return URN to address, and a line for each resource with a type that has no address."""
    addresses: dict[str, str] = {}
    unmapped = []
    for resource in graph.resources:
        if not resource.custom or not resource.type.startswith(PREFIX):
            continue
        type_ = terraform_type(resource.type)
        if type_ is None:
            unmapped.append(f"{resource.type}: its service is not in SERVICES of {__name__}")
            continue
        name = re.sub(r"[^A-Za-z0-9_-]", "_", resource.name)
        taken = set(addresses.values())
        address = next(each for each in _numbered(f"{type_}.{name}") if each not in taken)
        addresses[resource.urn] = address
    return addresses, unmapped


def _numbered(address: str) -> Iterator[str]:
    yield address
    number = 2
    while True:
        yield f"{address}_{number}"
        number += 1


class _Converting:
    """Conversion of one resource's inputs."""

    def __init__(self, graph: Graph, resource: Resource, addresses: Mapping[str, str]) -> None:
        self._graph, self._resource, self._addresses = graph, resource, addresses
        self.unmapped: list[str] = []

    def whole(self) -> tuple[dict[str, Any], Expressions]:
        """Return the resource's values and its expressions."""
        known = sdk_inputs.input_types(self._resource.type)
        if known is None:
            self.unmapped.append(f"{self._resource.type}: the SDK has no such type")
            return {}, {}
        return self._block(known, self._resource.inputs, top="")

    def _block(
        self, known: Mapping[str, Any], given: Mapping[str, Any], top: str
    ) -> tuple[dict[str, Any], Expressions]:
        """Return the values and expressions of one block.

        Args:
            known: input name to type.
            given: the inputs.
            top: the resource's own input that the block belongs to; empty for the resource itself.
        """
        values: dict[str, Any] = {}
        expressions: Expressions = {}
        for name, value in given.items():
            owner = top or name
            blocks = _blocks(value)
            form = _block_type(known.get(name)) if blocks else None
            if form is not None:
                called = self._block_name(name, value)
                made = [self._block(sdk.input_types(form), each, owner) for each in blocks]
                values[called] = [each for each, _ in made]
                expressions[called] = [each for _, each in made]
                continue
            known_value, references = self._referenced(value, owner)
            if known_value is not None:
                values[_snake(name)] = known_value
            if references:
                expressions[_snake(name)] = {"references": references}
        return values, expressions

    def _block_name(self, name: str, value: Any) -> str:
        if isinstance(value, Mapping):
            return _snake(name)
        if name not in REPEATED_BLOCKS:
            self.unmapped.append(f"{self._resource.type}: {name} is not in REPEATED_BLOCKS of {__name__}")
        return REPEATED_BLOCKS.get(name, name)

    def _referenced(self, value: Any, owner: str) -> tuple[Any, list[str]]:
        """Return the known part of a value and its references: a plan knows no id of a resource that it creates."""
        if isinstance(value, list):
            both = [self._referenced(each, owner) for each in value]
            return [each for each, _ in both], [one for _, references in both for one in references]
        reference = self._reference(value, owner)
        return (None, [reference]) if reference else (value, [])

    def _reference(self, value: Any, owner: str) -> str:
        """Return ``aws_s3_bucket.data.id`` when the value is an output of a resource the input came from; else ""."""
        for urn in self._resource.property_dependencies.get(owner, ()):
            outputs = self._graph.by_urn[urn].outputs if urn in self._addresses else {}
            for output in _REFERENCED:
                if isinstance(value, str) and value and outputs.get(output) == value:
                    return f"{self._addresses[urn]}.{output}"
        return ""


def _blocks(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of an input, which holds one or a list of them; empty for any other input."""
    listed = value if isinstance(value, list) else [value]
    return listed if listed and all(isinstance(each, Mapping) for each in listed) else ()


def _block_type(typ: Any) -> type | None:
    """Return the SDK's class of an object or of a list's objects; None for a map, where the user chooses the keys."""
    for form in sdk_inputs.forms(typ):
        if isinstance(form, type) and sdk.is_input_type(form):
            return form
        if typing.get_origin(form) is not None and issubclass(typing.get_origin(form), Sequence):
            return _block_type(typing.get_args(form)[0])
    return None


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda found: f"_{found[1].lower()}", name)
