"""FSx: Lustre file systems and their ties to S3."""

from collections.abc import Iterable

from trainium_eks.model.catalogue import regions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import ACCOUNT, Answer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    Concern,
    Holds,
    Kept,
    ResourceType,
    ShownType,
    When,
    Worth,
    whole,
)
from trainium_eks.plan.resource_types.rows.vpc import zones_of


def _file_system(call: Call) -> Answer:
    identity = call.sim("fs")
    return identity, {
        "arn": call.arn("fsx", f"file-system/{identity}"),
        "dnsName": f"{identity}.fsx.{call.region}.{regions.dns_suffix(call.region)}",
        "mountName": f"sim{call.digest[:5]}",
        "networkInterfaceIds": [call.sim("eni")],
        "ownerId": ACCOUNT,
        "vpcId": f"vpc-sim-{call.digest}",
    }


def _association(call: Call) -> Answer:
    identity = call.sim("dra")
    arn = call.arn("fsx", f"association/{call.text('fileSystemId')}/{identity}")
    return identity, {"arn": arn, "associationId": identity}


def _shrinks(file_system: Resource, before: object, after: object) -> bool:
    """Return whether a size cannot change in place, as FSx only grows and SCRATCH_1 (its default) not even that."""
    if not isinstance(before, int) or not isinstance(after, int):
        return False
    return after < before or file_system.inputs.get("deploymentType", "SCRATCH_1") == "SCRATCH_1"


def _fewer(_file_system: Resource, before: object, after: object) -> bool:
    """Return whether provisioned metadata IOPS fall, which are only raised in place."""
    return isinstance(before, int) and isinstance(after, int) and after < before


def _price(_graph: Graph, file_system: Resource, _catalogue: Catalogue) -> Iterable[Line]:
    inputs = file_system.inputs
    metadata = inputs.get("metadataConfiguration")
    iops = metadata.get("iops") if isinstance(metadata, dict) else None
    return bill.file_system(
        whole(inputs.get("storageCapacity")),
        str(inputs.get("deploymentType", "SCRATCH_1")),
        whole(inputs.get("perUnitStorageThroughput")),
        whole(iops) or None,
    )


def _file_system_facts(graph: Graph, file_system: Resource) -> Iterable[str]:
    inputs = file_system.inputs
    yield f"{inputs.get('storageCapacity')} GiB"
    yield str(inputs.get("deploymentType", ""))
    throughput = inputs.get("perUnitStorageThroughput")
    yield f"{throughput} MB/s per TiB" if throughput else ""
    yield zones_of(graph, file_system)
    yield "protected" if file_system.options.protect else ""


def _file_system_deleted(file_system: Resource) -> str:
    inputs = file_system.inputs
    if inputs.get("skipFinalBackup") is False and inputs.get("automaticBackupRetentionDays"):
        return "DELETED, after a final backup"
    return "DELETED; what was not exported to its S3 bucket is lost"


def _association_facts(_graph: Graph, association: Resource) -> Iterable[str]:
    yield f"{association.inputs.get('fileSystemPath')} ↔ {association.inputs.get('dataRepositoryPath')}"


PAUSES = "FSx exchanges its servers: the files are out of reach for minutes"

FILE_SYSTEM = ResourceType(
    token="aws:fsx/lustreFileSystem:LustreFileSystem",
    simulated=_file_system,
    replaced_by=(
        REGION,
        "backupId",
        "copyTagsToBackups",
        "deploymentType",
        "driveCacheType",
        "efaEnabled",
        "exportPath",
        "fileSystemTypeVersion",
        "importPath",
        "importedFileChunkSize",
        "kmsKeyId",
        "securityGroupIds",
        "storageType",
        "subnetIds",
        When("storageCapacity", _shrinks),
        When("metadataConfiguration.iops", _fewer),
    ),
    seconds=480,
    price=_price,
    shown=ShownType(_file_system_facts),
    holds=Holds("its files", Worth.DATA, when_deleted=_file_system_deleted),
    understood=(
        "finalBackupTags",
        # FSx for Lustre user guide, managing storage capacity, throughput and metadata performance.
        Concern("storageCapacity", concerns.changed, PAUSES),
        Concern("perUnitStorageThroughput", concerns.changed, PAUSES),
        Concern("metadataConfiguration", concerns.changed, PAUSES),
        # The provider's default is to take none (LustreFileSystem.skip_final_backup).
        Concern("skipFinalBackup", concerns.no_longer_false, "no last backup when it is deleted"),
        Concern("automaticBackupRetentionDays", concerns.less, "backups are kept for a shorter time"),
    ),
    creation="",
    kept=(
        Kept("efaEnabled", "a file system keeps EFA; only a new one is made without"),
        Kept("logConfiguration", "FSx keeps writing events to the log"),
        # Left out with mode AUTOMATIC, in which FSx sets the IOPS itself.
        Kept("metadataConfiguration.iops", ""),
    ),
)

ASSOCIATION = ResourceType(
    token="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    simulated=_association,
    replaced_by=(REGION, "dataRepositoryPath", "fileSystemId", "fileSystemPath"),
    seconds=420,
    shown=ShownType(_association_facts),
    creation="files and objects follow each other, deletions too",
    deletion="new files are no longer exported to the bucket",
)
