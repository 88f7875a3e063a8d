"""FsxLustre: a file system that FSx accepts, that keeps its data, and that nothing slow stands before."""

import pulumi
import pytest
from unit.components.parts import LEAST, one, recorder

from components import FsxLustre
from trainium_eks.plan.differences.diff import compare

WIRING = {**LEAST["FsxLustre"], "kms_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k"}
file_system = recorder(FsxLustre, "shared", WIRING)


def test_another_durability_replaces_no_file_system(record):
    linked = file_system(record, durability={"type": "s3", "prefix": "lustre/"}, metadata_iops=12000)
    backed = file_system(record, metadata_iops=12000)
    for before, after in ((linked, backed), (backed, linked)):
        assert [each.resource.type for each in compare(before, after).replaced] == []


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
