"""Search for left-over storage: file systems and their backups, volumes of claims, log groups."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.sizing import bill
from trainium_eks.operate.cleanup.left_over import LeftOver, Where, monthly
from trainium_eks.operate.preflight.tags import cluster_of, tags_of

Json = Mapping[str, Any]

CLAIM = ("kubernetes.io/created-for/pvc/namespace", "kubernetes.io/created-for/pvc/name")
"""Tags in which the CSI driver notes the claim that a volume was made for."""

GIB = 1024**3


def file_systems(where: Where) -> Iterator[LeftOver]:
    """Yield FSx file systems, of the stack and of claims."""
    for each in where.account.pages("fsx", "describe_file_systems", "FileSystems"):
        tags, identity = tags_of(each.get("Tags", ())), each["FileSystemId"]
        why = where.marks.why("", tags, each.get("VpcId", ""))
        if not why or each.get("Lifecycle") == "DELETING":
            continue
        lustre = each.get("LustreConfiguration") or {}
        # FSx takes no backup of a file system that is linked to S3 (DeleteFileSystem).
        linked = lustre.get("DataRepositoryConfiguration") or _links(where, identity)
        kept = str(lustre.get("DeploymentType", "")).startswith("PERSISTENT") and not linked
        last = ("--lustre-configuration", "SkipFinalBackup=false") if kept else ()
        yield LeftOver(
            "file system",
            identity,
            why,
            _lustre_hourly(each, lustre),
            (where.command("fsx", "delete-file-system", "--file-system-id", identity, *last),),
            frozenset({identity}),
            owners=frozenset({cluster_of(tags)} - {""}),
            note=_file_system_note(each, linked=bool(linked), kept=kept),
        )


def _links(where: Where, identity: str) -> list[Any]:
    ours = [{"Name": "file-system-id", "Values": [identity]}]
    return where.account.pages("fsx", "describe_data_repository_associations", "Associations", Filters=ours)


def _lustre_hourly(file_system: Json, lustre: Json) -> float | None:
    if file_system.get("FileSystemType") != "LUSTRE":
        return None
    metadata = lustre.get("MetadataConfiguration") or {}
    lines = bill.file_system(
        int(file_system.get("StorageCapacity", 0)),
        str(lustre.get("DeploymentType", "")),
        int(lustre.get("PerUnitStorageThroughput", 0)),
        int(metadata.get("Iops", 0)) if metadata.get("Mode") == "USER_PROVISIONED" else None,
    )
    return None if any(line.hourly_usd is None for line in lines) else sum(line.hourly_usd or 0.0 for line in lines)


def _file_system_note(file_system: Json, *, linked: bool, kept: bool) -> str:
    size = f"{file_system.get('StorageCapacity', '?')} GiB of files"
    if linked:
        return f"{size}; what was not exported to its S3 bucket is lost with it"
    return f"{size}; the command takes a last backup" if kept else f"{size}; they are lost with it"


def backups(where: Where) -> Iterator[LeftOver]:
    """Yield backups of FSx file systems: the last copy of a destroyed stack's data."""
    for each in where.account.pages("fsx", "describe_backups", "Backups"):
        file_system = each.get("FileSystem") or {}
        tags = {**tags_of(file_system.get("Tags", ())), **tags_of(each.get("Tags", ()))}
        why = where.marks.why("", tags)
        if not why or each.get("Lifecycle") == "DELETED":
            continue
        identity, size = each["BackupId"], each.get("SizeInBytes")
        yield LeftOver(
            "backup",
            identity,
            why,
            None if size is None else monthly(size / GIB * prices.FSX_BACKUP_GIB_MONTH),
            (where.command("fsx", "delete-backup", "--backup-id", identity),),
            frozenset({identity}),
            owners=frozenset({file_system.get("FileSystemId", "")} - {""}),
            note=f"kept on purpose: perhaps the last copy of {file_system.get('FileSystemId', 'a file system')}; "
            f"${prices.FSX_BACKUP_GIB_MONTH:.2f} a month for each GiB",
        )


def volumes(where: Where) -> Iterator[LeftOver]:
    """Yield EBS volumes: volumes of claims, which outlive their cluster, and volumes that no instance uses."""
    for each in where.account.pages("ec2", "describe_volumes", "Volumes"):
        tags, identity = tags_of(each.get("Tags", ())), each["VolumeId"]
        why = where.marks.why("", tags)
        if not why or each["State"] in ("deleting", "deleted"):
            continue
        claim = "/".join(tags[key] for key in CLAIM if key in tags)
        # The volume of a claim stays when its instance goes; a root volume does not.
        attached = {one["InstanceId"] for one in each.get("Attachments", ()) if one.get("InstanceId")}
        yield LeftOver(
            "volume",
            identity,
            why,
            _volume_hourly(each),
            (where.command("ec2", "delete-volume", "--volume-id", identity),),
            frozenset({identity}),
            owners=frozenset({cluster_of(tags)} - {""}) if claim else frozenset(),
            goes_with=frozenset() if claim else frozenset(attached),
            note=f"{each['Size']} GiB" + (f", of the claim {claim}: its data is lost with it" if claim else ""),
        )


def _volume_hourly(volume: Json) -> float | None:
    if volume.get("VolumeType") != "gp3":
        return None
    throughput, iops = volume.get("Throughput", prices.GP3_FREE_MIBPS), volume.get("Iops", prices.GP3_FREE_IOPS)
    return monthly(prices.gp3_monthly_usd(volume["Size"], throughput, iops))


def log_groups(where: Where) -> Iterator[LeftOver]:
    """Yield CloudWatch log groups. EKS recreates a deleted cluster's group for its last lines, without tags."""
    for each in _unique_groups(where):
        name = each["logGroupName"]
        why = where.marks.why(name, {})
        if not why:
            continue
        size = each.get("storedBytes", 0)
        named = re.match(r"/(?:aws/eks|aws/containerinsights|trainium-eks)/([^/]+)", name)
        cluster = named[1] if named else ""
        yield LeftOver(
            "log group",
            name,
            why,
            monthly(size / GIB * prices.LOGS_GIB_MONTH),
            (where.command("logs", "delete-log-group", "--log-group-name", name),),
            frozenset({name}),
            owners=frozenset({cluster} - {""}),
            note=f"{size / GIB:.1f} GiB"
            + ("" if each.get("retentionInDays") else "; it is kept for ever: it has no retention"),
        )


def _unique_groups(where: Where) -> Iterable[Json]:
    prefix = where.marks.prefix
    found = {
        each["logGroupName"]: each
        for start in ("", "/aws/eks/", "/aws/fsx/", "/aws/containerinsights/", "/trainium-eks/")
        for each in where.account.pages(
            "logs", "describe_log_groups", "logGroups", logGroupNamePrefix=f"{start}{prefix}"
        )
    }
    return found.values()
