"""Settings that guard data or a boundary, and when a change loosens one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.resource_types import cloudwatch, ec2, ecr, eks, fsx, kms, kubernetes, vpc
from trainium_eks.graph.resource_types.replacements import value_at

Looser = Callable[[Any, Any], bool]
"""Called with the value so far and the value to be; None where there is none."""


@dataclass(frozen=True)
class Guard:
    """One input."""

    path: str
    looser: Looser
    words: str


def _off(before: Any, after: Any) -> bool:
    return before is True and after is not True


def _on(before: Any, after: Any) -> bool:
    return before is not True and after is True


def _fewer(before: Any, after: Any) -> bool:
    return isinstance(before, list) and not set(map(str, before)) <= set(map(str, after or ()))


def _less(before: Any, after: Any) -> bool:
    return isinstance(before, int) and (after is None or (isinstance(after, int) and after < before))


def _sooner(before: Any, after: Any) -> bool:
    """0 days, or none, is for ever."""
    return bool(after) and isinstance(after, int) and (not before or (isinstance(before, int) and after < before))


def _not_false(before: Any, after: Any) -> bool:
    """What is on unless it says false."""
    return before is False and after is not False


def _no_longer(value: str) -> Looser:
    return lambda before, after: before == value and after != value


GUARDS: Mapping[str, tuple[Guard, ...]] = {
    eks.CLUSTER.token: (
        Guard("deletionProtection", _off, "deletion protection is taken off"),
        Guard("enabledClusterLogTypes", _fewer, "fewer logs of the control plane"),
    ),
    fsx.FILE_SYSTEM.token: (
        # The provider's default is to take none (LustreFileSystem.skip_final_backup).
        Guard("skipFinalBackup", _not_false, "no last backup when it is deleted"),
        Guard("automaticBackupRetentionDays", _less, "backups are kept for a shorter time"),
    ),
    "aws:s3/bucket:Bucket": (Guard("forceDestroy", _on, "may be deleted with the objects in it"),),
    "aws:s3/bucketVersioning:BucketVersioning": (
        Guard("versioningConfiguration.status", _no_longer("Enabled"), "older versions of objects are not kept"),
    ),
    ecr.REPOSITORY.token: (Guard("forceDelete", _on, "may be deleted with the images in it"),),
    kms.KEY.token: (
        Guard("deletionWindowInDays", _less, "less time to take a deletion back"),
        Guard("enableKeyRotation", _off, "the key is no longer rotated"),
    ),
    cloudwatch.LOG_GROUP.token: (Guard("retentionInDays", _sooner, "logs are kept for a shorter time"),),
    ec2.LAUNCH_TEMPLATE.token: (
        Guard("metadataOptions.httpTokens", _no_longer("required"), "instance metadata without a session token"),
    ),
    vpc.SUBNET.token: (Guard("mapPublicIpOnLaunch", _on, "instances get public addresses"),),
    kubernetes.PERSISTENT_VOLUME.token: (
        Guard("spec.persistentVolumeReclaimPolicy", _no_longer("Retain"), "the volume's data goes with its claim"),
    ),
}
"""By type. A guard that is loosened loses nothing today, and takes away what would have saved it tomorrow."""

_ENFORCED = "pod-security.kubernetes.io/enforce"
_LEVELS = ("privileged", "baseline", "restricted")

GUARDING_TYPES: Mapping[str, str] = {
    fsx.ASSOCIATION.token: "new files are no longer exported to the bucket",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "the bucket may be opened to everybody",
    "aws:s3/bucketPolicy:BucketPolicy": "the bucket's own policy",
    "aws:ec2/flowLog:FlowLog": "the network's flow logs",
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": "what it kept apart can talk",
    "kubernetes:core/v1:ResourceQuota": "the namespace's limit",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy": "what it refused is let in",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding": "what it refused is let in",
}
"""Types whose resources are guards themselves, with what follows when one is deleted."""


def loosened(before: Resource | None, after: Resource) -> Iterator[tuple[str, Any, Any, str]]:
    """Path, both values and our words for each guard of a resource that the change loosens."""
    if before is None:
        return
    for guard in GUARDS.get(after.type, ()):
        old, new = value_at(before.inputs, guard.path), value_at(after.inputs, guard.path)
        if guard.looser(old, new):
            yield guard.path, old, new, guard.words
    if after.type == kubernetes.NAMESPACE.token:
        old, new = _level(before), _level(after)
        if _LEVELS.index(new) < _LEVELS.index(old):
            yield f"metadata.labels.{_ENFORCED}", old, new, "pods may do more"


def _level(namespace: Resource) -> str:
    """The pod security level that is enforced; without a label, or with one that nobody knows, none is."""
    labels = value_at(namespace.inputs, "metadata.labels")
    level = labels.get(_ENFORCED) if isinstance(labels, Mapping) else None
    return level if level in _LEVELS else _LEVELS[0]
