"""R01-R09, R11: the control plane, its logs and its key, and access to its endpoint."""

import re
from collections.abc import Iterator

from trainium_eks.model.catalogue import versions
from trainium_eks.model.config.cluster import LOG_TYPES
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation import ranges
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import (
    Json,
    allows,
    at,
    differs,
    given,
    items,
    known,
    mapping,
    number,
    principals,
    show,
    statements,
    text,
    true,
)
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.subjects import ControlPlane

ANYWHERE = ("0.0.0.0/0", "::/0")
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
KEY_POLICY = "aws:kms/keyPolicy:KeyPolicy"
CALLER_CONDITIONS = (
    "kms:CallerAccount",
    "aws:PrincipalAccount",
    "aws:PrincipalArn",
    "aws:PrincipalOrgID",
    "aws:SourceAccount",
    "aws:SourceArn",
)
"""Condition keys that name the caller where a key policy's principal is a star."""


@rule("R01", "Log all five control-plane log types", "medium", "CKV_AWS_37, AWS-0038, CIS 2.1.1")
def control_plane_logs(graph: Graph) -> Iterator[Finding]:
    """Without audit and authenticator logs no action can be traced to its author later; all five types are on."""
    for plane in graph.control_planes:
        path, found = plane.read("enabledClusterLogTypes", "enabledClusterLogTypes")
        lacking = [each for each in LOG_TYPES if each not in items(found)]
        faults = [f"{path} is {show(found)}, wanted also {', '.join(lacking)}"] if lacking else []
        yield from judged(plane.resource, faults, "all five log types are on")


@rule("R02", "Never open the API endpoint to every address", "high", "CKV_AWS_38, AWS-0041, CIS 5.4.1")
def public_ranges(graph: Graph) -> Iterator[Finding]:
    """A public endpoint names the ranges that reach it, no more than a /8 together; EKS opens it to 0.0.0.0/0 when
    nothing is named. Independent of `model/config/cluster.py`, which validates the config."""
    for plane in graph.control_planes:
        good = "the public endpoint names its ranges" if plane.is_public else "the public endpoint is off"
        yield from judged(plane.resource, _open_ranges(plane), good)


@rule(
    "R03",
    "In production, keep the private endpoint on and the public one off or limited",
    "high",
    "CKV_AWS_39, AWS-0040, EKS.1, CT.EKS.PR.1, CIS 5.4.2",
)
def production_endpoint(graph: Graph) -> Iterator[Finding]:
    """Production is reached from inside the VPC, or from ranges that its owner has named. Independent of
    `model/config/cluster.py`, which validates the config."""
    if not graph.production:
        return
    for plane in graph.control_planes:
        path, private = plane.read("vpcConfig.endpointPrivateAccess", "endpointPrivateAccess")
        faults = [] if true(private) else [f"{path} is {show(private)}, wanted true"]
        faults += _open_ranges(plane)
        yield from judged(plane.resource, faults, "reached from the VPC or from named ranges only")


@rule(
    "R04",
    "Encrypt Kubernetes secrets with a customer key",
    "high",
    "CKV_AWS_58, AWS-0039, CT.EKS.PR.2, CIS 5.3.1",
    reads_computed=True,
)
def secrets_key(graph: Graph) -> Iterator[Finding]:
    """Envelope encryption with a key of this account: without it, a copy of etcd's disk reveals the tokens."""
    for plane in graph.control_planes:
        path, key = plane.read("encryptionConfig.provider.keyArn", "encryptionConfigKeyArn")
        faults = [] if given(key) else [f"{path} is unset, wanted the ARN of a KMS key"]
        resources = at(plane.cluster.inputs, "encryptionConfig.resources") if plane.cluster else None
        if given(key) and path != "encryptionConfigKeyArn" and "secrets" not in items(resources):
            faults.append(f'encryptionConfig.resources is {show(resources)}, wanted ["secrets"]')
        yield from judged(plane.resource, faults, "secrets are encrypted with a KMS key")


@rule("R05", "Run a Kubernetes version in standard support", "medium", "CKV_AWS_339, own")
def standard_support(graph: Graph) -> Iterator[Finding]:
    """Extended support costs 0.60 USD an hour instead of 0.10, and ends. A version with less than 30 days of standard
    support left is no better: EKS upgrades the control plane by itself when they are over, or the price rises. The rule
    compares today's date with the pinned table of support dates. Independent of `model/config/cluster.py`, which
    validates the config."""
    for plane in graph.control_planes:
        path, version = plane.read("version", "version")
        support = versions.KUBERNETES_STANDARD_SUPPORT.get(text(version))
        known_versions = ", ".join(sorted(versions.KUBERNETES_STANDARD_SUPPORT))
        if support is None:
            faults = [
                f"{path} is {show(version)}, of which this release knows no dates, wanted one of {known_versions}"
            ]
        else:
            least, verb = versions.SUPPORT_DAYS_WITHOUT_WAIVER, "ends" if support.is_standard else "ended"
            fault = f"{path} is {show(version)}, whose standard support {verb} {support.standard_end}"
            faults = [] if support.days_left >= least else [f"{fault}, wanted {least} days of it or more"]
        yield from judged(plane.resource, faults, f"version {show(version)} is in standard support")


@rule("R06", "Protect the cluster from deletion", "medium", "own")
def deletion_protection(graph: Graph) -> Iterator[Finding]:
    """EKS refuses the deletion (deletionProtection) and Pulumi refuses the step (protect), so that a preview which
    would replace the cluster fails. Environments that are torn down waive this. Independent of
    `model/config/cluster.py`, which validates the config."""
    for plane in graph.control_planes:
        path, found = plane.read("deletionProtection", "deletionProtection")
        faults = [] if true(found) else [f"{path} is {show(found)}, wanted true"]
        if not plane.protected:
            faults.append("options.protect is false, wanted true")
        yield from judged(plane.resource, faults, "EKS and Pulumi both refuse to delete it")


@rule("R07", "Do not leave the creator an administrator", "medium", "CIS 4.1.1, CIS 5.5.1")
def creator(graph: Graph) -> Iterator[Finding]:
    """The identity that ran the first `up` stays an administrator of the cluster, unless the cluster says otherwise."""
    for plane in graph.control_planes:
        faults = []
        makes = plane.cluster and at(plane.cluster.inputs, "accessConfig.bootstrapClusterCreatorAdminPermissions")
        if makes is not False:
            shown = "true, hard-coded by pulumi-eks" if plane.component else show(makes)
            faults.append(f"accessConfig.bootstrapClusterCreatorAdminPermissions is {shown}, wanted false")
        yield from judged(plane.resource, faults, "the creator is no administrator")


@rule(
    "R08",
    "Make the log groups first, keep them a year and encrypt them",
    "medium",
    "CKV_AWS_66, CKV_AWS_338, CKV_AWS_158, AWS-0017",
    follows_ids=True,
)
def log_groups(graph: Graph) -> Iterator[Finding]:
    """If there is no log group, EKS makes one for its logs without key or retention; so ours exists before a cluster
    that logs, under the cluster's name. Every log group is kept 365 days or for ever, and has a KMS key; R84 checks the
    group of container logs."""
    groups = [each for each in graph.of_type(LOG_GROUP) if not is_of_containers(each)]
    for plane in graph.control_planes:
        if not given(plane.read("enabledClusterLogTypes", "enabledClusterLogTypes")[1]):
            continue
        pattern = re.escape(plane.name) if plane.name else ".+"
        named = [each for each in groups if re.fullmatch(f"/aws/eks/{pattern}/cluster", text(each.inputs.get("name")))]
        before = graph.upstream(*plane.members)
        faults = []
        if not named:
            faults.append(f"no log group named /aws/eks/{plane.name or '<cluster>'}/cluster, wanted one")
        elif not any(each.urn in before for each in named):
            faults.append(f"does not depend on its log group {named[0].name}, wanted the group first")
        yield from judged(plane.resource, faults, "its log group exists before it")
    for group in groups:
        yield from judged(group, retention_faults(group, 365), "kept a year or longer, encrypted")


def is_of_containers(group: Resource) -> bool:
    """Return whether a log group is for the output of containers."""
    return bool(re.fullmatch(r"/trainium-eks/.+/containers", text(group.inputs.get("name"))))


@rule("R09", "Set the support policy explicitly", "low", "own")
def support_policy(graph: Graph) -> Iterator[Finding]:
    """Unset means EXTENDED: the day standard support ends, the control plane costs six times as much."""
    for plane in graph.control_planes:
        path, found = plane.read("upgradePolicy.supportType", "upgradePolicy.supportType")
        faults = [] if found in ("STANDARD", "EXTENDED") else [f"{path} is {show(found)}, wanted STANDARD or EXTENDED"]
        yield from judged(plane.resource, faults, f"the policy is {found}")


@rule(
    "R11",
    "Rotate keys and name their users",
    "medium",
    "CKV_AWS_7, CKV_AWS_33, CKV_AWS_227, CKV2_AWS_64, AWS-0065",
    reads_computed=True,
)
def keys(graph: Graph) -> Iterator[Finding]:
    """A customer key is enabled, rotates, waits seven days or more before it is deleted, and has its own policy with
    named principals (a star counts as named only with a condition on the caller)."""
    for key in graph.of_type("aws:kms/key:Key"):
        yield from judged(key, _key_faults(graph, key), "rotates, with a policy of named principals")


def retention_faults(group: Resource, least: int) -> Iterator[str]:
    """Yield a fault of a log group that is kept for fewer days than ``least``, and one of a group without a KMS key."""
    days = group.inputs.get("retentionInDays")
    kept = number(days)
    if kept is None or (kept != 0 and kept < least):
        yield f"retentionInDays is {show(days)}, wanted {least} or more"
    if not given(group.inputs.get("kmsKeyId")):
        yield "kmsKeyId is unset, wanted a KMS key"


def _open_ranges(plane: ControlPlane) -> list[str]:
    path, found = plane.read("vpcConfig.publicAccessCidrs", "publicAccessCidrs")
    if not plane.is_public:
        return []
    if not items(found):
        return [f"{path} is {show(found)} with the public endpoint on, wanted named ranges"]
    wide = [each for each in items(found) if each in ANYWHERE or not known(each)]
    faults = [f"{path} has {show(each)}, wanted named ranges" for each in wide]
    opened = ranges.public_addresses(text(each) for each in items(found) if each not in wide)
    if opened > ranges.MOST_PUBLIC_ADDRESSES:
        faults.append(f"{path} opens {opened:,} addresses, wanted {ranges.MOST_PUBLIC_ADDRESSES:,} (a /8) at most")
    return faults


def _key_faults(graph: Graph, key: Resource) -> Iterator[str]:
    yield from differs(key.inputs, "enableKeyRotation", True)
    window = key.inputs.get("deletionWindowInDays")
    days = number(window)
    if window is not None and (days is None or days < 7):
        yield f"deletionWindowInDays is {show(window)}, wanted 7 or more"
    if key.inputs.get("isEnabled") is False:
        yield "isEnabled is false, wanted true"
    own = [key.inputs["policy"]] if given(key.inputs.get("policy")) else []
    policies = own + [each.inputs.get("policy") for each in graph.referring(key, "keyId", KEY_POLICY)]
    if not policies:
        yield "policy is unset, wanted a key policy that names its users"
    for policy in policies:
        yield from _key_policy_faults(policy)


def _key_policy_faults(policy: Json) -> Iterator[str]:
    granted = statements(policy)
    if granted is None:
        yield f"policy is {show(policy)}, wanted a key policy that names its users"
        return
    for index, each in enumerate(granted):
        star = any(who == "*" for _, who in principals(each))
        conditions = {key for test in mapping(each.get("Condition")).values() for key in mapping(test)}
        if allows(each) and star and not conditions.intersection(CALLER_CONDITIONS):
            yield f'policy.Statement[{index}].Principal is "*" without a condition on the caller, wanted names'
