"""FsxLustre: a file system that FSx accepts, that keeps its data, and that nothing slow stands before."""

import json

import pulumi
import pytest
from unit.components.parts import EGRESS, INGRESS, LEAST, of_kind, one, recorder

from components import FsxLustre
from trainium_eks.plan.differences.diff import compare

# As the FSx guide has them, and not as the components do.
LUSTRE_PORTS = {(988, 988), (1018, 1023)}
WIRING = {**LEAST["FsxLustre"], "kms_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k"}
file_system = recorder(FsxLustre, "shared", WIRING)


def test_file_system_is_reachable_persistent_encrypted_and_backed_up(record):
    graph = file_system(record)
    group = one(graph, "SecurityGroup").outputs["id"]
    keys = ("ipProtocol", "securityGroupId", "referencedSecurityGroupId", "fromPort", "toPort")
    sides = ((group, group), (group, "sg-0000c11e"), ("sg-0000c11e", group))
    for type_ in (INGRESS, EGRESS):
        found = sorted(tuple(each.inputs[key] for key in keys) for each in of_kind(graph, type_))
        assert found == sorted(("tcp", *side, *ports) for side in sides for ports in LUSTRE_PORTS)
    # Two ranges of ports: without clients Lustre itself alone.
    assert len(of_kind(file_system(record, client_security_group_ids={}), INGRESS, EGRESS)) == 4
    # It is persistent, compressed, encrypted and backed up.
    inputs, key = one(graph, "LustreFileSystem").inputs, WIRING["kms_key_arn"]
    wanted = {
        "deploymentType": "PERSISTENT_2",
        "fileSystemTypeVersion": "2.15",
        "storageCapacity": 1200,
        "dataCompressionType": "LZ4",
        "perUnitStorageThroughput": 250,
        "kmsKeyId": key,
        "subnetIds": "subnet-00000001",
        "automaticBackupRetentionDays": 7,
        "skipFinalBackup": False,
        "copyTagsToBackups": True,
    }
    assert {name: inputs.get(name) for name in wanted} == wanted
    assert of_kind(graph, "DataRepositoryAssociation", "Bucket") == ()


@pytest.mark.parametrize(
    ("args", "is_logged"),
    [({}, False), ({"durability": {"type": "s3"}}, True), ({"logs": True}, True),
     ({"durability": {"type": "s3"}, "logs": False}, False)],
)  # fmt: skip
def test_log_group_exists_for_a_link_or_on_request(record, args, is_logged):
    """The provider keeps a log configuration that is left out, so that it must say DISABLED."""
    graph = file_system(record, **args)
    logs = one(graph, "LustreFileSystem").inputs["logConfiguration"]
    if not is_logged:
        assert (logs, of_kind(graph, "LogGroup")) == ({"level": "DISABLED"}, ())
        return
    group = one(graph, "LogGroup")
    assert logs == {"level": "WARN_ERROR", "destination": group.outputs["arn"]}
    assert group.inputs["namePrefix"].startswith("/aws/fsx/")
    assert (group.inputs["kmsKeyId"], group.inputs["retentionInDays"]) == (WIRING["kms_key_arn"], 365)


def test_efa_allows_every_protocol_in_the_group_first(record):
    graph = file_system(record, efa_enabled=True, storage_capacity_gib=19200)
    group, lustre = one(graph, "SecurityGroup").outputs["id"], one(graph, "LustreFileSystem")
    for type_ in (INGRESS, EGRESS):
        every = [each for each in of_kind(graph, type_) if each.inputs["ipProtocol"] == "-1"]
        assert all("fromPort" not in each.inputs and "toPort" not in each.inputs for each in every)
        (own,) = [each for each in every if each.inputs["referencedSecurityGroupId"] == each.inputs["securityGroupId"]]
        assert own.urn in lustre.dependencies
        assert {each.inputs["securityGroupId"] for each in every} == {group, "sg-0000c11e"}
    assert lustre.inputs["efaEnabled"] is True
    assert lustre.inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}


def test_s3_link_replaces_backups_and_syncs_both_ways(record):
    graph = file_system(record, durability={"type": "s3", "prefix": "lustre/"}, metadata_iops=12000)
    inputs = one(graph, "LustreFileSystem").inputs
    assert (inputs["automaticBackupRetentionDays"], inputs["skipFinalBackup"]) == (0, True)
    assert "copyTagsToBackups" not in inputs, "FSx refuses it where there are no backups"
    assert inputs["metadataConfiguration"] == {"mode": "USER_PROVISIONED", "iops": 12000}
    link = one(graph, "DataRepositoryAssociation")
    events = {"events": ["NEW", "CHANGED", "DELETED"]}
    assert link.inputs["s3"] == {"autoImportPolicy": events, "autoExportPolicy": events}
    assert link.inputs["dataRepositoryPath"] == f"s3://{one(graph, 'Bucket').outputs['bucket']}/lustre"
    assert link.inputs["fileSystemPath"] == "/"
    assert link.inputs["batchImportMetaDataOnCreate"] is False
    assert link.options.custom_timeouts["create"] == "60m"
    # Another durability replaces no file system.
    backed = file_system(record, metadata_iops=12000)
    for before, after in ((graph, backed), (backed, graph)):
        assert [each.resource.type for each in compare(before, after).replaced] == []


def test_own_bucket_is_private_encrypted_versioned_and_retained(record):
    graph = file_system(record, durability={"type": "s3"}, production=True)
    bucket = one(graph, "Bucket")
    assert bucket.inputs["forceDestroy"] is False
    assert bucket.options.protect
    guards = [each for each in graph.resources if each.type.startswith("aws:s3/")]
    # A bucket that stays must keep its guards.
    assert [each.type for each in guards if not each.options.retain_on_delete] == []
    kinds = {each.type.rpartition(":")[2]: each.inputs for each in guards}
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert all(kinds["BucketPublicAccessBlock"][switch] is True for switch in switches)
    # Objects are the bucket owner's whoever wrote them, and no ACL can say otherwise.
    assert kinds["BucketOwnershipControls"]["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    (encryption,) = kinds["BucketServerSideEncryptionConfiguration"]["rules"]
    assert encryption["bucketKeyEnabled"] is True
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": WIRING["kms_key_arn"]}
    assert encryption["applyServerSideEncryptionByDefault"] == default
    assert kinds["BucketVersioning"]["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = kinds["BucketLifecycleConfiguration"]["rules"]
    assert (rule["status"], rule["noncurrentVersionExpiration"]) == ("Enabled", {"noncurrentDays": 30})
    (statement,) = json.loads(kinds["BucketPolicy"]["policy"])["Statement"]
    arn = bucket.outputs["arn"]
    assert (statement["Effect"], statement["Resource"]) == ("Deny", [arn, f"{arn}/*"])
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    # Outputs say what a mount needs.
    fsx, group = (one(graph, kind).outputs for kind in ("LustreFileSystem", "SecurityGroup"))
    assert one(graph, "FsxLustre").outputs == {
        "file_system_id": fsx["id"],
        "dns_name": fsx["dnsName"],
        "mount_name": fsx["mountName"],
        "security_group_id": group["id"],
        "storage_capacity_gib": 1200,
        "bucket_name": bucket.outputs["bucket"],
        "bucket_arn": arn,
    }


def test_given_bucket_is_linked_unchanged_and_scratch_has_valid_arguments(record):
    graph = file_system(record, durability={"type": "s3", "bucket": "our-data", "file_system_path": "/sets"})
    assert [each.type for each in graph.resources if each.type.startswith("aws:s3/")] == []
    link = one(graph, "DataRepositoryAssociation").inputs
    assert (link["dataRepositoryPath"], link["fileSystemPath"]) == ("s3://our-data", "/sets")
    assert link["batchImportMetaDataOnCreate"] is True
    graph = file_system(record, deployment_type="SCRATCH_2", durability={"type": "none"})
    inputs = one(graph, "LustreFileSystem").inputs
    persistent = {"kmsKeyId", "perUnitStorageThroughput", "metadataConfiguration", "efaEnabled"}
    backups = {"automaticBackupRetentionDays", "copyTagsToBackups", "finalBackupTags"}
    assert not (persistent | backups) & inputs.keys()
    assert inputs["logConfiguration"]["level"] == "DISABLED"


@pytest.mark.parametrize(
    ("args", "protected"),
    [
        ({"production": True}, {"LustreFileSystem"}),
        ({"production": True, "durability": {"type": "s3"}}, {"LustreFileSystem", "Bucket"}),
        ({"durability": {"type": "s3"}}, set()),
        ({"protect": True}, {"LustreFileSystem"}),
        ({"production": True, "protect": False, "waivers": {"R39": "moved tomorrow"}}, set()),
    ],
)
def test_production_protects_resources_with_data_by_default(record, args, protected):
    graph = file_system(record, **args)
    found = {each.type.rpartition(":")[2] for each in graph.resources if each.custom and each.options.protect}
    assert found == protected
    timeouts = one(graph, "LustreFileSystem").options.custom_timeouts
    assert timeouts == {"create": "60m", "update": "120m", "delete": "60m"}


@pytest.mark.parametrize("field", ["protect", "retain_on_delete"])
def test_options_reach_every_child(record, field):
    args, opts = {**WIRING, "durability": {"type": "s3"}, "kms_key_arn": None}, {field: True}
    graph = record(lambda: FsxLustre("shared", args, pulumi.ResourceOptions(**opts)) and None)
    children = [each for each in graph.resources if each.custom and each.type.startswith("aws:")]
    kinds = {each.type.rpartition(":")[2] for each in children}
    assert {"LustreFileSystem", "Bucket", "DataRepositoryAssociation", "Key"} <= kinds
    assert [each.name for each in children if not getattr(each.options, field)] == []
    # Without a key it makes one.
    keys = {one(graph, kind).inputs["kmsKeyId"] for kind in ("LustreFileSystem", "LogGroup")}
    assert keys == {one(graph, "Key").outputs["arn"]}
