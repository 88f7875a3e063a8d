"""The file-system section: FSx for Lustre, owned by the stack."""

from typing import Annotated, Literal

import pydantic

from trainium_eks.model.shape import Flag, Shape, Whole


class BackupDurability(Shape):
    """Daily backups, and a last one when the file system is deleted. Excludes a link to S3 (FSx CreateBackup)."""

    type: Literal["backup"] = "backup"
    retention_days: Whole = 7
    """Days a daily backup is kept, 1 to 90."""


class S3Durability(Shape):
    """A data repository association: the S3 bucket holds the data, the file system is its fast copy."""

    type: Literal["s3"] = "s3"
    bucket: str | None = None
    """Name of an existing bucket in the same region. Unset: the stack makes one, versioned and retained."""
    prefix: str = ""
    """Key prefix within the bucket, without leading slash."""
    file_system_path: str = "/"
    """Directory of the file system that is linked."""


class NoDurability(Shape):
    """Nothing is kept; only for SCRATCH_2 and only outside production."""

    type: Literal["none"] = "none"


Durability = Annotated[BackupDurability | S3Durability | NoDurability, pydantic.Field(discriminator="type")]


class FileSystemConfig(Shape):
    """A Lustre 2.15 file system in the accelerator zone, LZ4-compressed, encrypted with the stack's key."""

    storage_capacity_gib: Whole = 1200
    """SSD size, GiB: 1200, 2400, then multiples of 2400 (with ``efa_enabled`` larger steps)."""
    deployment_type: Literal["PERSISTENT_2", "SCRATCH_2"] = "PERSISTENT_2"
    """PERSISTENT_2 replicates within the zone; SCRATCH_2 loses data on a server's failure."""
    throughput_per_tib: Whole = 250
    """MB/s for each TiB, PERSISTENT_2 only: 125, 250, 500 or 1000."""
    durability: Durability = BackupDurability()
    """What survives the file system: ``{type: backup, retentionDays: 7}``, ``{type: s3, bucket: …}`` or
    ``{type: none}``. FSx takes no backups of a file system linked to S3, so it is one or the other."""
    metadata_iops: Whole | None = None
    """Provisioned metadata IOPS: 1500, 3000, 6000 or a multiple of 12000 up to 192000. Unset: automatic."""
    efa_enabled: Flag = False
    """Lets EFA-capable clients bypass TCP. Set at creation only; larger size steps apply."""
    zone_id: str | None = None
    """Zone of the file system. Unset: the accelerator zone; another one is slow and costs traffic."""
    import_path: str | None = None
    """Not with PERSISTENT_2: use ``durability``. Named so that the error can say so."""
    protect: Flag | None = None
    """Pulumi refuses to delete or replace it while true. Unset: on in production."""
