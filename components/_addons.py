"""EKS add-ons with pinned versions, and a separate role for each add-on that calls AWS."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from trainium_eks.model.catalogue.addon_records import Addon, Identity
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import addons as section
from trainium_eks.model.config.addons import AddonConfig
from trainium_eks.model.validation.config_model import OutputText

from . import _iam
from ._args import Text, text
from ._charts import overlay


@dataclass(frozen=True)
class Wiring:
    """Settings shared by all add-ons of a cluster."""

    name: str
    """Logical name of the cluster component."""
    cluster_name: pulumi.Output[str]
    region: str
    kubernetes_version: str
    addons: Mapping[str, AddonConfig]
    """The config's entries, by name of the add-on."""
    kms_key_arn: pulumi.Output[str]
    boundary: Text | None
    """ARN of the policy that bounds the add-ons' roles."""
    tags: Mapping[str, Text]
    file_systems_on_demand: bool
    """Whether a claim may create a file system."""
    catalogue: Catalogue
    """Source of the GPU nodes' taints."""
    parent: pulumi.Resource


def make_addon(wiring: Wiring, addon: Addon, wait_for: Sequence[pulumi.Resource] = ()) -> aws.eks.Addon:
    """Make an add-on, after the role and association that its controller needs.

    Creating the add-on overwrites objects that EKS or a person made before, and updating it overwrites changes by hand:
    the program decides the configuration.
    """
    settings, given = configuration(wiring, addon), wiring.addons.get(addon.name)
    return aws.eks.Addon(
        f"{wiring.name}-{addon.name}",
        addon_name=addon.name,
        cluster_name=wiring.cluster_name,
        addon_version=section.version(wiring.addons, addon.name, wiring.kubernetes_version),
        configuration_values=json.dumps(settings, sort_keys=True) if settings or _is_emptied(given) else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=dict(wiring.tags),
        opts=pulumi.ResourceOptions(parent=wiring.parent, depends_on=[*wait_for, *_make_identity(wiring, addon)]),
    )


def configuration(wiring: Wiring, addon: Addon) -> dict[str, object]:
    """Return the add-on's configuration values, the config's merged over the stack's, or an empty dictionary to keep
    the defaults."""
    given = wiring.addons.get(addon.name)
    stacks = addon.settings(wiring.region, wiring.catalogue) if addon.settings is not None else {}
    return overlay(stacks, given.settings if given is not None else {})


def _is_emptied(given: AddonConfig | None) -> bool:
    """Return whether the config has an empty ``settings``. ``{}`` is sent then: the provider takes settings that a
    program leaves out from its state, so that EKS keeps them (terraform-provider-aws, ``eks/addon.go``)."""
    return given is not None and "settings" in given.model_fields_set and not given.settings


def has_role(addons: Mapping[str, AddonConfig], addon: Addon) -> bool:
    """Return whether a role is made for the add-on. The role's name contains the add-on's, and IAM limits its
    length."""
    given = addons.get(addon.name)
    return addon.identity is not None or (given is not None and given.identity is not None)


def _make_identity(wiring: Wiring, addon: Addon) -> list[pulumi.Resource]:
    """Make role, policies and Pod Identity association of the add-on's controller; none for an add-on that calls no
    AWS."""
    given = wiring.addons.get(addon.name)
    if addon.identity is not None:
        return _with_role(wiring, addon, addon.identity, {})
    if given is not None and given.identity is not None:
        identity = Identity(given.identity.service_account, given.identity.namespace)
        return _with_role(wiring, addon, identity, given.identity.policies)
    return []


def _with_role(
    wiring: Wiring, addon: Addon, identity: Identity, policies: Mapping[str, OutputText]
) -> list[pulumi.Resource]:
    """Make the role of a service account, its policies and its Pod Identity association; ``policies`` are those that
    the config names, key to ARN, beside those of the record."""
    name = f"{wiring.name}-{addon.name}"
    child = pulumi.ResourceOptions(parent=wiring.parent)
    role = _iam.make_role(
        name,
        description=f"Taken by {identity.service_account} of the cluster, by Pod Identity",
        trust=_iam.pod_identity_trust(),
        boundary=wiring.boundary,
        tags=wiring.tags,
        parent=wiring.parent,
    )
    made: list[pulumi.Resource] = []
    if identity.managed_policy:
        arn = _iam.managed_policy_arn(wiring.region, identity.managed_policy)
        made.append(aws.iam.RolePolicyAttachment(name, role=role.name, policy_arn=arn, opts=child))
    for key, given in policies.items():
        attachment = f"{name}-{key}"
        made.append(aws.iam.RolePolicyAttachment(attachment, role=role.name, policy_arn=text(given), opts=child))
    granted = (identity.statements, identity.on_demand if wiring.file_systems_on_demand else None)
    sources = [statements for statements in granted if statements is not None]
    if sources:
        document = wiring.kms_key_arn.apply(
            lambda key: _iam.policy([each for statements in sources for each in statements(key, wiring.region)])
        )
        made.append(aws.iam.RolePolicy(name, role=role.name, policy=document, opts=child))
    association = aws.eks.PodIdentityAssociation(
        name,
        cluster_name=wiring.cluster_name,
        namespace=identity.namespace,
        service_account=identity.service_account,
        role_arn=role.arn,
        tags=dict(wiring.tags),
        opts=child,
    )
    return [*made, association]
