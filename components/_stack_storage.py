"""A stack's shared storage: its file system, the volumes of its teams, and the bucket behind it."""

from dataclasses import dataclass
from typing import Any

import pulumi

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config import storage
from trainium_eks.model.config.storage import FileSystemConfig, S3Durability
from trainium_eks.model.validation.config_model import OutputText, mark_validated

from . import _iam
from ._args import merge_args, text, waivers_of
from ._foundation import Foundation
from .fsx_lustre import FsxLustre, FsxLustreArgs
from .lustre_volumes import LustreVolumes, LustreVolumesArgs


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

    def bucket(self) -> tuple[pulumi.Output[str], OutputText | None]:
        """Return the name of the bucket behind the file system, and the key of its objects if the stack's is not.

        Only where :attr:`exports_to_s3` holds.
        """
        durability = self.config.durability
        key = durability.bucket_key_arn if isinstance(durability, S3Durability) else None
        return self.file_system.bucket_name, key

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


def make_storage(base: Foundation) -> SharedStorage | None:
    """Make the file system, if the config has one."""
    config, section = base.config, base.config.file_system
    if section is None:
        return None
    args = merge_args(
        FsxLustreArgs,
        section,
        region=config.region,
        vpc_id=base.network.vpc_id,
        subnet_id=_subnet_id(base, section),
        kms_key_arn=base.key.key_arn,
        client_security_group_ids={"cluster": base.cluster.cluster_security_group_id},
        production=config.production,
        tags=base.tags,
        waivers=waivers_of(config),
    )
    return SharedStorage(section, FsxLustre(f"{base.name}-fsx", mark_validated(args), base.child()))


def make_volumes(base: Foundation, shared: SharedStorage | None) -> LustreVolumes | None:
    """Make a volume for each namespace, if there is a file system."""
    if shared is None:
        return None
    section, file_system = shared.config, shared.file_system
    args = LustreVolumesArgs(
        file_system_id=file_system.file_system_id,
        dns_name=file_system.dns_name,
        mount_name=file_system.mount_name,
        storage_capacity_gib=section.storage_capacity_gib,
        subnet_id=_subnet_id(base, section),
        security_group_id=file_system.security_group_id,
        kms_key_arn=base.key.key_arn,
        root=shared.root,
        on_demand=section.on_demand,
        namespaces={each.name: each.training_user_id for each in base.config.namespaces},
    )
    return LustreVolumes(f"{base.name}-volumes", args, base.in_cluster(*file_system.client_access))


def _subnet_id(base: Foundation, section: FileSystemConfig) -> pulumi.Output[str]:
    return base.network.private_subnet_id(section.zone_id or model.accelerator_zone(base.config))
