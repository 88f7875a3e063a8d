"""The file-system section: FSx for Lustre, owned by the stack."""

import re
from typing import Annotated, Literal

import pydantic

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.catalogue.lustre import EFA_STEP_GIB, METADATA_IOPS, THROUGHPUT_PER_TIB
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, OutputText, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds, Choices, Length
from trainium_eks.model.validation.problems import Problem, nearest_number, under

_OF_PERSISTENT = frozenset({"throughput_per_tib", "metadata_iops", "efa_enabled"})
"""Fields that FSx takes with PERSISTENT_2 alone."""


class BackupDurability(ConfigModel):
    """Daily backups, and a last one when the file system is deleted. Excludes a link to S3 (FSx CreateBackup)."""

    type: Literal["backup"] = "backup"
    retention_days: Annotated[StrictInt, Bounds(1, 90, "days")] = 7
    """Days a daily backup is kept."""


class S3Durability(ConfigModel):
    """A data repository association: the S3 bucket holds the data, the file system is its fast copy."""

    type: Literal["s3"] = "s3"
    bucket: OutputText | None = None
    """Name of an existing bucket in the same region. Unset: the stack makes one, versioned and retained."""
    bucket_key_arn: OutputText | None = None
    """ARN of the KMS key that encrypts the existing bucket. Jobs get its use through S3; its key policy lets FSx' role
    ``AWSServiceRoleForFSxS3Access_*`` use it, too. Unset: the bucket uses no KMS key."""
    prefix: Annotated[str, Length(900, "FSx")] = ""
    """Key prefix within the bucket, without leading slash."""
    file_system_path: Annotated[str, Length(4096, "FSx")] = "/"
    """Directory of the file system that is linked."""


class NoDurability(ConfigModel):
    """No backup and no link; only for SCRATCH_2 and only outside production."""

    type: Literal["none"] = "none"


Throughput = Annotated[StrictInt, Choices(THROUGHPUT_PER_TIB, "MB/s for each TiB", "FSx offers with PERSISTENT_2")]
Durability = Annotated[BackupDurability | S3Durability | NoDurability, pydantic.Field(discriminator="type")]


class FileSystemConfig(ConfigModel):
    """A Lustre 2.15 file system in the accelerator zone, LZ4-compressed, encrypted with the stack's key."""

    storage_capacity_gib: StrictInt = 1200
    """SSD size, GiB: 1200, 2400, then multiples of 2400 (with ``efa_enabled`` larger steps)."""
    deployment_type: Literal["PERSISTENT_2", "SCRATCH_2"] = "PERSISTENT_2"
    """PERSISTENT_2 replicates within the zone; SCRATCH_2 loses data on a server's failure."""
    throughput_per_tib: Throughput = 250
    """MB/s for each TiB, PERSISTENT_2 only."""
    durability: Durability = BackupDurability()
    """Copy of the data that survives the file system: ``{type: backup, retentionDays: 7}``, ``{type: s3, bucket: …}``
    or ``{type: none}``. FSx takes no backups of a file system linked to S3, so it is one or the other."""
    metadata_iops: Annotated[StrictInt | None, Choices(METADATA_IOPS, "IOPS", "FSx provisions")] = None
    """Provisioned metadata IOPS. Unset: automatic."""
    efa_enabled: StrictBool = False
    """Lets nodes of types that can (Trn1, P5 and later; not Trn2) reach it by EFA in place of TCP: their user data sets
    LNet up for it. Set at creation only; larger size steps apply."""
    zone_id: str | None = None
    """Zone of the file system. Unset: the accelerator zone; another zone is slower, and traffic to it costs money."""
    on_demand: StrictBool = False
    """Adds a storage class ``fsx``, which creates a file system for each claim (from 1200 GiB, hundreds of dollars a
    month), and lets the driver make and delete these. A namespace's ``resource_quota`` says how many it may have
    (``fsx.storageclass.storage.k8s.io/persistentvolumeclaims``, by default none). Delete those claims before you switch
    this off again: without the permission, the driver leaves the file systems behind."""
    logs: StrictBool | None = None
    """Keep Lustre's warnings and errors, which are about the link to S3 alone, in CloudWatch. Unset: with a link."""
    protect: StrictBool | None = None
    """Pulumi refuses to delete or replace it while true. Unset: on in production."""

    def unused(self) -> frozenset[str]:
        """Return the fields that SCRATCH_2 does not have."""
        return _OF_PERSISTENT if self.deployment_type == "SCRATCH_2" else frozenset()


def validate(file_system: FileSystemConfig, *, production: bool) -> list[Problem]:
    """Return the problems of the file system. Paths are relative to the section."""
    found = []
    loses_data = production and file_system.deployment_type == "SCRATCH_2"
    if loses_data:  # judge all else as it will be
        file_system = file_system.model_copy(update={"deployment_type": "PERSISTENT_2"})
    for name in sorted(file_system.unused()):
        value, unset = getattr(file_system, name), FileSystemConfig.model_fields[name].default
        if value != unset:
            found.append(Problem(name, f"SCRATCH_2 takes no `{name}`", "remove it", value=value))
            file_system = file_system.model_copy(update={name: unset})
    found += _size_problems(file_system)
    found += _durability_problems(file_system, production)
    if loses_data:
        reason = "it loses its data when one server fails, and this is production"
        found.append(Problem("deployment_type", reason, value="SCRATCH_2", good="PERSISTENT_2"))
    if production and file_system.protect is False:
        reason = "it is off in production: a changed input could replace the file system and its data"
        found.append(Problem("protect", reason, rule="R39", value=False, good=True))
    return found


def write_megabytes_per_second(file_system: FileSystemConfig) -> float:
    """Return the file system's sustained write throughput, MB/s."""
    return round(
        lustre.write_megabytes_per_second(
            file_system.storage_capacity_gib, file_system.deployment_type, file_system.throughput_per_tib
        ),
        1,
    )


def size_step_gib(file_system: FileSystemConfig) -> int:
    """Return the step of sizes above the smallest, GiB."""
    if file_system.efa_enabled:
        return EFA_STEP_GIB[nearest_number(file_system.throughput_per_tib, THROUGHPUT_PER_TIB)]
    return 2_400


def _size_problems(file_system: FileSystemConfig) -> list[Problem]:
    size, step = file_system.storage_capacity_gib, size_step_gib(file_system)
    if size > 0 and (size % step == 0 or (size == 1200 and not file_system.efa_enabled)):
        return []
    steps = tuple(step * count for count in range(1, 5))
    sizes = steps if file_system.efa_enabled else (1200, *steps)
    below = max(size // step * step, sizes[0])
    good = nearest_number(size, (*sizes, below, below + step))
    kind = f"EFA-enabled at {file_system.throughput_per_tib} MB/s/TiB" if file_system.efa_enabled else "SSD"
    allowed = (*(str(each) for each in sizes), f"and so on in steps of {step}")
    reason = f"it is not a size that FSx offers ({kind}), GiB"
    return [Problem("storage_capacity_gib", reason, value=size, allowed=allowed, good=good)]


def _durability_problems(file_system: FileSystemConfig, production: bool) -> list[Problem]:
    durability, path = file_system.durability, "durability"
    scratch = file_system.deployment_type == "SCRATCH_2"
    match durability:
        case BackupDurability():
            if scratch:
                reason = "SCRATCH_2 takes no backups"
                fix = "say that its data may be lost, or link it to a bucket with type s3"
                return [Problem("durability.type", reason, fix, value="backup", allowed=("s3", "none"), good="none")]
            return []
        case NoDurability() if production or not scratch:
            reason = (
                "nothing would be kept, and this is production"
                if production
                else "PERSISTENT_2 is for data that is kept"
            )
            fix = "" if production else "or set `deployment_type` to SCRATCH_2"
            return [Problem("durability.type", reason, fix, value="none", allowed=("backup", "s3"), good="backup")]
        case S3Durability():
            return under(path, _s3_problems(durability))
    return []


def _s3_problems(durability: S3Durability) -> list[Problem]:
    found = formats.bucket("bucket", durability.bucket) if isinstance(durability.bucket, str) else []
    found += formats.bucket_key("bucket_key_arn", durability.bucket_key_arn, "bucket", durability.bucket)
    found += formats.one_line("prefix", durability.prefix)
    if durability.prefix.startswith("/"):
        good = durability.prefix.lstrip("/") or None
        fix = "" if good else "leave it out"
        found.append(
            Problem("prefix", "it starts with a slash, and keys do not", fix, value=durability.prefix, good=good)
        )
    path = durability.file_system_path
    found += formats.one_line("file_system_path", path)
    if not path.startswith("/") or "//" in path:
        good = re.sub("//+", "/", f"/{path.strip('/')}")
        found.append(
            Problem("file_system_path", "it is not an absolute directory of the file system", value=path, good=good)
        )
    return found
