"""The shared storage of a stack: its file system, and the bucket behind it."""

from dataclasses import dataclass
from typing import Any

import pulumi

from trainium_eks.model.config import storage
from trainium_eks.model.config.storage import FileSystemConfig, S3Durability

from . import _iam
from ._args import text
from .fsx_lustre import FsxLustre


@dataclass(frozen=True)
class SharedStorage:
    """The file system of a stack, without its volumes: the volumes wait for the cluster, the file system does not."""

    config: FileSystemConfig
    file_system: FsxLustre

    @property
    def root(self) -> str:
        """Parent of the teams' directories: the directory linked to S3 where there is one, so that all team data is
        exported."""
        durability = self.config.durability
        return durability.file_system_path if isinstance(durability, S3Durability) else "/"

    @property
    def exports_to_s3(self) -> bool:
        """Whether FSx exports written files to a bucket."""
        return isinstance(self.config.durability, S3Durability)

    def linked_bucket(self, region: str) -> dict[str, Any]:
        """Return the bucket behind the file system and the key of its objects, as args of a namespace."""
        durability = self.config.durability
        if not isinstance(durability, S3Durability):
            return {}
        given = durability.bucket
        arn = self.file_system.bucket_arn if given is None else _iam.bucket_arn(region, text(given))
        own_key = {} if durability.bucket_key_arn is None else {"kms_key_arn": durability.bucket_key_arn}
        return {"bucket_arn": arn, "bucket_prefix": durability.prefix, **own_key}

    def bucket(self) -> dict[str, Any]:
        """Return the name of the bucket behind the file system, and the key of its objects if the stack's is not, as
        args of SageMaker's jobs; nothing without a bucket."""
        durability = self.config.durability
        if not isinstance(durability, S3Durability):
            return {}
        return {"bucket": self.file_system.bucket_name, "bucket_key_arn": durability.bucket_key_arn}

    def output(self) -> dict[str, pulumi.Input[Any]]:
        """Return the stack's output ``sharedVolume``."""
        return {
            "fileSystemId": self.file_system.file_system_id,
            "dnsName": self.file_system.dns_name,
            "mountName": self.file_system.mount_name,
            "root": self.root,
            "capacityGib": self.config.storage_capacity_gib,
            "bucket": self.file_system.bucket_name,
            "writeMegabytesPerSecond": storage.write_megabytes_per_second(self.config),
        }
