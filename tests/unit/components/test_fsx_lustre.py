"""FsxLustre: a file system that FSx accepts, that keeps its data, and that nothing slow stands before."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest

from components import ArgumentError, FsxLustre, FsxLustreArgs
from trainium_eks.plan.differences.diff import compare
from trainium_eks.plan.graph import Graph, Resource

FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
BUCKET = "aws:s3/bucket:Bucket"
LUSTRE_PORTS = {(988, 988), (1018, 1023)}
"""As the FSx guide has them, and not as the components do."""

Record = Callable[..., Graph]

WIRING: dict[str, Any] = {
    "region": "us-west-2",
    "vpc_id": "vpc-1",
    "subnet_id": "subnet-1",
    "kms_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k",
    "client_security_group_ids": {"cluster": "sg-client"},
}


def file_system(record: Record, *, dry_run: bool = False, **args: Any) -> Graph:
    return record(lambda: FsxLustre("shared", {**WIRING, **args}) and None, dry_run=dry_run)


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def openings(graph: Graph, type_: str, group: object, peer: object) -> set[tuple[object, object]]:
    return {
        (each.inputs.get("fromPort"), each.inputs.get("toPort"))
        for each in graph.of_type(type_)
        if each.inputs["securityGroupId"] == group
        and each.inputs["referencedSecurityGroupId"] == peer
        and each.inputs["ipProtocol"] == "tcp"
    }


def upstream(graph: Graph, resource: Resource) -> set[str]:
    """URNs of all that a resource waits for."""

    def walk(urn: str) -> Iterator[str]:
        for each in graph.by_urn[urn].dependencies:
            if each not in seen:
                seen.add(each)
                yield each
                yield from walk(each)

    seen: set[str] = set()
    return set(walk(resource.urn))


def test_lustre_may_reach_itself_both_ways_before_the_file_system_is_made(record: Record) -> None:
    graph = file_system(record)
    group = one(graph, GROUP).outputs["id"]
    assert openings(graph, INGRESS, group, group) == LUSTRE_PORTS
    assert openings(graph, EGRESS, group, group) == LUSTRE_PORTS
    before = upstream(graph, one(graph, FILE_SYSTEM))
    own = [each for each in graph.of_type(INGRESS, EGRESS) if each.inputs["referencedSecurityGroupId"] == group]
    within = [each.urn for each in own if each.inputs["securityGroupId"] == group]
    assert len(within) == 4
    assert set(within) <= before


def test_clients_are_let_in_both_ways_on_both_sides_and_the_file_system_does_not_wait(record: Record) -> None:
    graph = file_system(record)
    group = one(graph, GROUP).outputs["id"]
    for type_ in (INGRESS, EGRESS):
        assert openings(graph, type_, group, "sg-client") == LUSTRE_PORTS
        assert openings(graph, type_, "sg-client", group) == LUSTRE_PORTS
    before = upstream(graph, one(graph, FILE_SYSTEM))
    clients = [each for each in graph.of_type(INGRESS, EGRESS) if "sg-client" in each.inputs.values()]
    assert len(clients) == 8
    assert not {each.urn for each in clients} & before


def test_a_first_mount_can_wait_for_every_client_rule(record: Record) -> None:
    seen: list[str] = []

    def program() -> None:
        made = FsxLustre("shared", WIRING)
        pulumi.Output.all(*(each.urn for each in made.client_access)).apply(seen.extend)

    graph = record(program)
    clients = {each.urn for each in graph.of_type(INGRESS, EGRESS) if "sg-client" in each.inputs.values()}
    assert set(seen) == clients


def test_efa_opens_every_protocol_within_the_group_before_the_file_system(record: Record) -> None:
    graph = file_system(record, efa_enabled=True, storage_capacity_gib=19200)
    group = one(graph, GROUP).outputs["id"]
    before = upstream(graph, one(graph, FILE_SYSTEM))
    for type_ in (INGRESS, EGRESS):
        every = [each for each in graph.of_type(type_) if each.inputs["ipProtocol"] == "-1"]
        assert all("fromPort" not in each.inputs and "toPort" not in each.inputs for each in every)
        within = [
            each.urn
            for each in every
            if each.inputs["securityGroupId"] == each.inputs["referencedSecurityGroupId"] == group
        ]
        assert len(within) == 1
        assert set(within) <= before
        assert {each.inputs["securityGroupId"] for each in every} == {group, "sg-client"}
    assert one(graph, FILE_SYSTEM).inputs["efaEnabled"] is True
    assert one(graph, FILE_SYSTEM).inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}


def test_default_is_persistent_compressed_encrypted_logged_and_backed_up(record: Record) -> None:
    graph = file_system(record)
    inputs = one(graph, FILE_SYSTEM).inputs
    assert {key: inputs.get(key) for key in ("deploymentType", "fileSystemTypeVersion", "storageCapacity")} == {
        "deploymentType": "PERSISTENT_2",
        "fileSystemTypeVersion": "2.15",
        "storageCapacity": 1200,
    }
    assert inputs["dataCompressionType"] == "LZ4"
    assert inputs["perUnitStorageThroughput"] == 250
    assert inputs["kmsKeyId"] == WIRING["kms_key_arn"]
    assert inputs["subnetIds"] == "subnet-1"
    assert (inputs["automaticBackupRetentionDays"], inputs["skipFinalBackup"]) == (7, False)
    assert graph.of_type(LINK, BUCKET) == ()
    log_group = one(graph, LOG_GROUP)
    assert log_group.inputs["namePrefix"].startswith("/aws/fsx/")
    assert log_group.inputs["kmsKeyId"] == WIRING["kms_key_arn"]
    assert log_group.inputs["retentionInDays"] == 365
    assert inputs["logConfiguration"] == {"level": "WARN_ERROR", "destination": log_group.outputs["arn"]}


def test_provisioned_metadata_iops_are_asked_for_by_number(record: Record) -> None:
    inputs = one(file_system(record, metadata_iops=12000), FILE_SYSTEM).inputs
    assert inputs["metadataConfiguration"] == {"mode": "USER_PROVISIONED", "iops": 12000}


def test_s3_link_replaces_backups_and_carries_every_event_both_ways(record: Record) -> None:
    graph = file_system(record, durability={"type": "s3", "prefix": "lustre/"})
    inputs = one(graph, FILE_SYSTEM).inputs
    assert (inputs["automaticBackupRetentionDays"], inputs["skipFinalBackup"]) == (0, True)
    link = one(graph, LINK)
    events = {"events": ["NEW", "CHANGED", "DELETED"]}
    assert link.inputs["s3"] == {"autoImportPolicy": events, "autoExportPolicy": events}
    assert link.inputs["dataRepositoryPath"] == f"s3://{one(graph, BUCKET).outputs['bucket']}/lustre"
    assert link.inputs["fileSystemPath"] == "/"
    assert link.inputs["batchImportMetaDataOnCreate"] is False
    assert link.options.custom_timeouts["create"] == "60m"


def test_another_durability_replaces_no_file_system(record: Record) -> None:
    modes: tuple[dict[str, Any], ...] = ({"type": "backup"}, {"type": "s3"})
    graphs = [file_system(record, durability=mode) for mode in modes]
    for before, after in (graphs, graphs[::-1]):
        assert [each.resource.type for each in compare(before, after).replaced] == []


def test_tags_are_copied_to_backups_only_where_there_are_backups(record: Record) -> None:
    """FSx: not available for file systems that are linked to a data repository."""
    assert one(file_system(record), FILE_SYSTEM).inputs["copyTagsToBackups"] is True
    assert "copyTagsToBackups" not in one(file_system(record, durability={"type": "s3"}), FILE_SYSTEM).inputs


def test_a_replaced_file_system_is_deleted_first_with_all_that_stands_on_it(record: Record) -> None:
    """While a pod holds a claim of it nothing of AWS is touched, and there are never two on the bill."""
    assert one(file_system(record), FILE_SYSTEM).options.delete_before_replace


def test_own_bucket_is_closed_encrypted_versioned_and_outlives_the_stack(record: Record) -> None:
    graph = file_system(record, durability={"type": "s3"}, production=True)
    bucket = one(graph, BUCKET)
    assert bucket.inputs["forceDestroy"] is False
    assert bucket.options.protect
    guards = [each for each in graph.resources if each.type.startswith("aws:s3/")]
    # A bucket that stays must keep its guards.
    assert [each.type for each in guards if not each.options.retain_on_delete] == []
    kinds = {each.type.rpartition(":")[2]: each.inputs for each in guards}
    block = kinds["BucketPublicAccessBlock"]
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert all(block[switch] is True for switch in switches)
    # Objects are the bucket owner's whoever wrote them, and no ACL can say otherwise.
    assert kinds["BucketOwnershipControls"]["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    (encryption,) = kinds["BucketServerSideEncryptionConfiguration"]["rules"]
    assert encryption["bucketKeyEnabled"] is True
    assert encryption["applyServerSideEncryptionByDefault"] == {
        "sseAlgorithm": "aws:kms",
        "kmsMasterKeyId": WIRING["kms_key_arn"],
    }
    assert kinds["BucketVersioning"]["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = kinds["BucketLifecycleConfiguration"]["rules"]
    assert rule["status"] == "Enabled"
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    (statement,) = json.loads(kinds["BucketPolicy"]["policy"])["Statement"]
    arn = bucket.outputs["arn"]
    assert (statement["Effect"], statement["Resource"]) == ("Deny", [arn, f"{arn}/*"])
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_link_waits_for_the_buckets_guards_and_the_file_system_does_not(record: Record) -> None:
    graph = file_system(record, durability={"type": "s3"})
    guards = {
        each.urn
        for each in graph.resources
        if each.type.rpartition(":")[2]
        in {"BucketPolicy", "BucketLifecycleConfiguration", "BucketServerSideEncryptionConfiguration"}
    }
    assert len(guards) == 3
    assert guards <= upstream(graph, one(graph, LINK))
    assert not guards & upstream(graph, one(graph, FILE_SYSTEM))


def test_given_bucket_is_linked_with_its_listing_and_left_alone(record: Record) -> None:
    durability = {"type": "s3", "bucket": "our-data", "file_system_path": "/sets"}
    graph = file_system(record, durability=durability)
    assert [each.type for each in graph.resources if each.type.startswith("aws:s3/")] == []
    link = one(graph, LINK).inputs
    assert (link["dataRepositoryPath"], link["fileSystemPath"]) == ("s3://our-data", "/sets")
    assert link["batchImportMetaDataOnCreate"] is True


def test_scratch_is_given_nothing_that_fsx_refuses_on_it(record: Record) -> None:
    graph = file_system(record, deployment_type="SCRATCH_2", durability={"type": "none"})
    inputs = one(graph, FILE_SYSTEM).inputs
    refused = {
        "kmsKeyId",
        "perUnitStorageThroughput",
        "metadataConfiguration",
        "efaEnabled",
        "automaticBackupRetentionDays",
        "copyTagsToBackups",
        "finalBackupTags",
    }
    assert refused & inputs.keys() == set()
    assert inputs["logConfiguration"]["level"] == "WARN_ERROR"


@pytest.mark.parametrize(
    ("production", "protect", "protected"), [(True, None, True), (False, None, False), (False, True, True)]
)
def test_protection_follows_production_unless_said(
    record: Record, production: bool, protect: bool | None, protected: bool
) -> None:
    options = one(file_system(record, production=production, protect=protect), FILE_SYSTEM).options
    assert options.protect is protected
    assert options.custom_timeouts == {"create": "60m", "update": "120m", "delete": "60m"}


def protected(graph: Graph) -> set[str]:
    return {each.type.rpartition(":")[2] for each in graph.resources if each.custom and each.options.protect}


def test_production_protects_what_holds_data_and_not_settings_and_rules(record: Record) -> None:
    assert protected(file_system(record, production=True)) == {"LustreFileSystem"}
    assert protected(file_system(record, production=True, durability={"type": "s3"})) == {"LustreFileSystem", "Bucket"}
    assert protected(file_system(record, durability={"type": "s3"})) == set()


def test_the_callers_options_reach_every_child(record: Record) -> None:
    def program(**options: bool) -> Graph:
        opts = pulumi.ResourceOptions(**options)
        args = {**WIRING, "durability": {"type": "s3"}, "kms_key_arn": None}
        return record(lambda: FsxLustre("shared", args, opts) and None)

    for field in ("protect", "retain_on_delete"):
        children = [each for each in program(**{field: True}).resources if each.custom and each.type.startswith("aws:")]
        assert {FILE_SYSTEM, BUCKET, LINK, "aws:kms/key:Key"} <= {each.type for each in children}
        assert [each.name for each in children if not getattr(each.options, field)] == []


def test_production_without_protection_needs_a_waiver(record: Record) -> None:
    args = {**WIRING, "production": True, "protect": False}
    with pytest.raises(ArgumentError, match="protect"):
        FsxLustre("shared", args)
    graph = record(lambda: FsxLustre("shared", {**args, "waivers": {"R39": "moved tomorrow"}}) and None)
    assert not one(graph, FILE_SYSTEM).options.protect


def test_without_a_key_it_makes_one(record: Record) -> None:
    graph = file_system(record, kms_key_arn=None)
    key = one(graph, "aws:kms/key:Key")
    assert key.outputs["arn"] == one(graph, FILE_SYSTEM).inputs["kmsKeyId"] == one(graph, LOG_GROUP).inputs["kmsKeyId"]


def test_without_clients_only_lustre_itself_is_let_in(record: Record) -> None:
    graph = file_system(record, client_security_group_ids={})
    group = one(graph, GROUP).outputs["id"]
    rules = graph.of_type(INGRESS, EGRESS)
    assert len(rules) == 4
    assert {each.inputs["referencedSecurityGroupId"] for each in rules} == {group}


def test_outputs_say_what_a_mount_needs(record: Record) -> None:
    graph = file_system(record, durability={"type": "s3"})
    outputs = one(graph, "trainium-eks:index:FsxLustre").outputs
    fsx = one(graph, FILE_SYSTEM).outputs
    bucket = one(graph, BUCKET).outputs
    assert outputs == {
        "file_system_id": fsx["id"],
        "dns_name": fsx["dnsName"],
        "mount_name": fsx["mountName"],
        "security_group_id": one(graph, GROUP).outputs["id"],
        "storage_capacity_gib": 1200,
        "bucket_name": bucket["bucket"],
        "bucket_arn": bucket["arn"],
    }


def test_preview_plans_the_same_resources(record: Record) -> None:
    up = file_system(record, durability={"type": "s3"})
    preview = file_system(record, durability={"type": "s3"}, dry_run=True)
    assert [(each.urn, each.options) for each in preview.resources] == [
        (each.urn, each.options) for each in up.resources
    ]
    assert one(preview, FILE_SYSTEM).inputs["storageCapacity"] == 1200


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"storage_capacity_gib": 1300}, "storage_capacity_gib"),
        ({"throughput_per_tib": 200}, "throughput_per_tib"),
        ({"durability": {"type": "none"}}, "durability"),
        ({"deployment_type": "SCRATCH_2"}, "durability"),
        ({"import_path": "s3://data"}, "import_path"),
        ({"metadata_iops": 2000}, "metadata_iops"),
        ({"efa_enabled": True}, "storage_capacity_gib"),
        ({"client_security_group_ids": {"Bad Key": "sg-1"}}, "client_security_group_ids"),
        ({"deployment_typ": "SCRATCH_2"}, "deployment_typ"),
        ({"vpc_id": None}, "vpc_id"),
        ({"waivers": ["R39"]}, "waivers"),
    ],
)
def test_bad_args_are_refused_by_name_before_anything_is_made(args: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        FsxLustre("shared", {**WIRING, **args})
    assert any(problem.path.startswith(path) for problem in caught.value.problems)


def test_outputs_are_taken_where_only_another_resource_knows(record: Record) -> None:
    def program() -> None:
        subnet = pulumi.Output.from_input("subnet-later")
        FsxLustre("shared", FsxLustreArgs(**{**WIRING, "subnet_id": subnet}))

    assert one(record(program), FILE_SYSTEM).inputs["subnetIds"] == "subnet-later"


def test_the_buckets_policy_comes_after_the_access_block_and_that_after_the_ownership(record: Record) -> None:
    """S3 refuses two such changes of a bucket at once (OperationAborted), and no policy may open it in between."""
    graph = file_system(record, durability={"type": "s3"})
    policy = one(graph, "aws:s3/bucketPolicy:BucketPolicy")
    block = one(graph, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
    ownership = one(graph, "aws:s3/bucketOwnershipControls:BucketOwnershipControls")
    assert block.urn in policy.dependencies
    assert ownership.urn in block.dependencies
