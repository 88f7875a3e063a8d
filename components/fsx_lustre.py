"""FsxLustre: the shared file system, its access rules, and its backups or link to S3."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import lustre, versions
from trainium_eks.model.config import storage
from trainium_eks.model.config.storage import BackupDurability, FileSystemConfig, S3Durability
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import StrictBool
from trainium_eks.model.validation.problems import Problem, under

from . import _ids
from ._args import Tags, Text, computed, outputs, text, validate_args, waivers_of
from ._data_bucket import DataBucket
from ._dicts import FsxLustreArgsDict
from ._efa_group import RULES
from .encryption_key import EncryptionKeyArgs, given_or_made

EVERY_EVENT = ["NEW", "CHANGED", "DELETED"]
"""FSx events that a link transfers in both directions; without one of them the two sides drift apart."""

LOG_PREFIX = "/aws/fsx/"
"""FSx writes to log groups of this prefix alone (FSx API, LustreLogCreateConfiguration)."""

LOG_DAYS = 365
"""Retention of the file system's log, which only has warnings and errors of the S3 link (FSx guide, logging)."""

TIMEOUTS = pulumi.CustomTimeouts(create="60m", update="120m", delete="60m")
"""A file system takes 6 to 10 minutes, a large one longer; growing one and the last backup take hours at worst."""

LINK_TIMEOUTS = pulumi.CustomTimeouts(create="60m", update="60m", delete="60m")
"""A link reads the bucket's whole listing first when the bucket is not empty."""


class FsxLustreArgs(FileSystemConfig):
    """Args of :class:`FsxLustre`: the config's file-system section, and its wiring."""

    region: formats.Region
    """AWS region."""
    vpc_id: _ids.VpcId
    """VPC of the security group."""
    subnet_id: _ids.SubnetId
    """The one subnet of the file system, in the accelerators' zone."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for data, bucket and logs. None makes one."""
    client_security_group_ids: dict[str, _ids.SecurityGroupId] = pydantic.Field(default_factory=dict)
    """Security groups that may mount it, each under a key that stays the same (``{cluster: sg-…}``)."""
    production: StrictBool = False
    """Applies the production rules and, where ``protect`` is unset, protects the resources with data: the file system
    and its bucket. Their settings, the rules and the log group may change."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""
    waivers: dict[str, str] = pydantic.Field(default_factory=dict)
    """Rules that this file system breaks on purpose, each with its reason."""


def validate(args: FsxLustreArgs) -> list[Problem]:
    """Return the problems of the file system."""
    found = storage.validate(args, production=args.production)
    found += formats.tags("tags", args.tags)
    for key in args.client_security_group_ids:
        # The keys become part of resource names.
        found += under("client_security_group_ids", formats.dns_label("", key))
    return found


class FsxLustre(pulumi.ComponentResource):
    """A Lustre file system in one subnet, encrypted, compressed, and with backups or a link to S3.

    It waits for its subnet and for the rules that allow Lustre within its security group, which FSx checks before it
    creates anything, and neither for the cluster nor for NAT. Clients get access by rules that are made later
    (:attr:`client_access`).
    """

    file_system_id: pulumi.Output[str]
    """Id, ``fs-…``."""
    dns_name: pulumi.Output[str]
    """Host that clients mount."""
    mount_name: pulumi.Output[str]
    """Lustre's own name of the file system, the path after the host."""
    security_group_id: pulumi.Output[str]
    """Security group of the file system's interfaces."""
    storage_capacity_gib: pulumi.Output[int]
    """Size, GiB."""
    bucket_name: pulumi.Output[str]
    """Linked S3 bucket, made or given; empty without one."""
    bucket_arn: pulumi.Output[str]
    """ARN of the bucket that was made here; empty when it was given, or without one."""

    def __init__(
        self,
        name: str,
        args: FsxLustreArgs | FsxLustreArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(FsxLustreArgs, args, validate, f"FsxLustre {name}", waivers_of(args), opts=opts)
        super().__init__("trainium-eks:index:FsxLustre", name, {}, opts)
        self._args = args
        # None leaves it to the caller's own options, which every child inherits.
        self._guard_data: bool | None = (args.production if args.protect is None else args.protect) or None

        made_with = EncryptionKeyArgs(region=args.region, description=f"Lustre file system {name}")
        self._key_arn = given_or_made(args.kms_key_arn, f"{name}-key", made_with, self)
        self._security_group = self._make_security_group()
        own_rules = self._let_lustre_reach_itself()
        self._file_system = self._make_file_system(own_rules)
        self._client_access = self._let_clients_in()
        self._bucket = self._make_bucket()
        self._link_to_s3()

        self.file_system_id = self._file_system.id
        self.dns_name = computed(self._file_system.dns_name)
        self.mount_name = computed(self._file_system.mount_name)
        self.security_group_id = self._security_group.id
        self.storage_capacity_gib = pulumi.Output.from_input(args.storage_capacity_gib)
        self.bucket_name = self._bucket_name()
        self.bucket_arn = self._bucket.bucket_arn if self._bucket else pulumi.Output.from_input("")
        self.register_outputs(outputs(self, FsxLustre))

    @property
    def client_access(self) -> Sequence[pulumi.Resource]:
        """The rules that give clients access. A first mount must wait for them; the file system does not."""
        return self._client_access

    def _make_security_group(self) -> aws.ec2.SecurityGroup:
        """Make the security group without inline rules: they would conflict with the separate rules, and nothing could
        wait for a single rule."""
        return aws.ec2.SecurityGroup(
            f"{self._name}-group",
            description="Lustre file system: its servers and their clients",
            vpc_id=self._args.vpc_id,
            tags={**self._args.tags, "Name": self._name},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _let_lustre_reach_itself(self) -> list[pulumi.Resource]:
        group = self._security_group.id
        rules = [rule for ports in lustre.PORTS for rule in self._open_both_ways("self", group, group, ports)]
        if self._args.efa_enabled:
            # FSx refuses efa_enabled unless the group lets everything through to itself (FSx guide, EFA-enabled).
            rules += self._open_both_ways("self", group, group, None)
        return rules

    def _let_clients_in(self) -> list[pulumi.Resource]:
        """Make the clients' rules, inbound and outbound in both groups, because servers call clients back, and a
        client's group may allow no outbound traffic."""
        group = self._security_group.id
        openings: list[tuple[int, int] | None] = [*lustre.PORTS]
        if self._args.efa_enabled:
            openings.append(None)
        rules: list[pulumi.Resource] = []
        for key, client in self._args.client_security_group_ids.items():
            for ports in openings:
                rules += self._open_both_ways(f"from-{key}", group, client, ports)
                rules += self._open_both_ways(f"on-{key}", client, group, ports)
        return rules

    def _open_both_ways(
        self, key: str, group: Text, peer: Text, ports: tuple[int, int] | None
    ) -> list[pulumi.Resource]:
        """Make an inbound and an outbound rule of ``group`` for ``peer``; ``ports`` None opens every protocol."""
        first, last = ports or (None, None)
        return [
            make_rule(
                f"{self._name}-{key}-{way}-{first or 'all'}",
                description=f"Lustre {self._name}, {way}bound",
                tags={**self._args.tags, "Name": self._name},
                security_group_id=group,
                referenced_security_group_id=peer,
                ip_protocol="tcp" if ports else "-1",
                from_port=first,
                to_port=last,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for way, make_rule in RULES.items()
        ]

    def _log_configuration(self) -> aws.fsx.LustreFileSystemLogConfigurationArgs:
        """Return where FSx logs; without a link nowhere, as an explicit value: the provider keeps an absent one."""
        linked = isinstance(self._args.durability, S3Durability)
        if not (linked if self._args.logs is None else self._args.logs):
            return aws.fsx.LustreFileSystemLogConfigurationArgs(level="DISABLED")
        group = aws.cloudwatch.LogGroup(
            f"{self._name}-logs",
            name_prefix=f"{LOG_PREFIX}{self._name}-",
            retention_in_days=LOG_DAYS,
            kms_key_id=self._key_arn,
            tags=self._args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return aws.fsx.LustreFileSystemLogConfigurationArgs(destination=group.arn, level="WARN_ERROR")

    def _make_file_system(self, own_rules: Sequence[pulumi.Resource]) -> aws.fsx.LustreFileSystem:
        args = self._args
        return aws.fsx.LustreFileSystem(
            f"{self._name}-file-system",
            subnet_ids=args.subnet_id,
            security_group_ids=[self._security_group.id],
            deployment_type=args.deployment_type,
            file_system_type_version=versions.LUSTRE,
            storage_type="SSD",
            storage_capacity=args.storage_capacity_gib,
            data_compression_type="LZ4",
            log_configuration=self._log_configuration(),
            tags={**args.tags, "Name": self._name},
            **self._persistence(),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(own_rules),
                protect=self._guard_data,
                # A new one first would wait, and cost, beside the old one for as long as a pod mounts the old one's
                # claims. So the volumes are deleted first, then the file system, and while a pod holds a claim no AWS
                # resource is touched (docs/decisions/0014-file-system-replacement.md).
                delete_before_replace=True,
                # FSx sets it at creation only, and another durability must not replace the data.
                ignore_changes=["copyTagsToBackups"],
                custom_timeouts=TIMEOUTS,
            ),
        )

    def _persistence(self) -> dict[str, Any]:
        """Return the arguments for PERSISTENT_2 that FSx refuses on SCRATCH_2: key, throughput, metadata, backups."""
        args = self._args
        if args.deployment_type != "PERSISTENT_2":
            return {}
        backup = args.durability if isinstance(args.durability, BackupDurability) else None
        metadata = aws.fsx.LustreFileSystemMetadataConfigurationArgs(
            mode="USER_PROVISIONED" if args.metadata_iops else "AUTOMATIC", iops=args.metadata_iops
        )
        return {
            "kms_key_id": self._key_arn,
            "per_unit_storage_throughput": args.throughput_per_tib,
            "metadata_configuration": metadata,
            "efa_enabled": True if args.efa_enabled else None,
            "automatic_backup_retention_days": backup.retention_days if backup else 0,
            # Not for a file system that is linked to S3, which has no backups (FSx CreateFileSystem).
            "copy_tags_to_backups": True if backup else None,
            # The provider's default is to skip it; FSx makes no backup of a file system that is linked to S3.
            "skip_final_backup": backup is None,
            "final_backup_tags": {**args.tags, "Name": self._name} if backup else None,
        }

    def _make_bucket(self) -> DataBucket | None:
        durability = self._args.durability
        if not isinstance(durability, S3Durability) or durability.bucket is not None:
            return None
        return DataBucket(
            f"{self._name}-data",
            kms_key_arn=self._key_arn,
            protect=self._guard_data,
            tags=dict(self._args.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _bucket_name(self) -> pulumi.Output[str]:
        durability = self._args.durability
        if self._bucket is not None:
            return self._bucket.bucket_name
        given = durability.bucket if isinstance(durability, S3Durability) else None
        return pulumi.Output.from_input("" if given is None else text(given))

    def _link_to_s3(self) -> None:
        """Link the file system to S3: changes on one side are copied to the other without a command."""
        durability = self._args.durability
        if not isinstance(durability, S3Durability):
            return
        prefix = durability.prefix.strip("/")
        aws.fsx.DataRepositoryAssociation(
            f"{self._name}-link",
            file_system_id=self._file_system.id,
            file_system_path=durability.file_system_path,
            data_repository_path=pulumi.Output.concat("s3://", self._bucket_name(), f"/{prefix}" if prefix else ""),
            # A bucket that was there before has names to bring in; a new one has none.
            batch_import_meta_data_on_create=durability.bucket is not None,
            s3=aws.fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=EVERY_EVENT),
                auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=EVERY_EVENT),
            ),
            tags={**self._args.tags, "Name": self._name},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(self._bucket.ready) if self._bucket else [],
                custom_timeouts=LINK_TIMEOUTS,
            ),
        )
