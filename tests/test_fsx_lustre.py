"""FsxLustre under Pulumi's mocks: an example to copy for your own stack."""

from typing import Any

import pulumi
import pytest
from mocks import Mocks

from trainium_eks import FsxLustre

ARGS: dict[str, Any] = {
    "region": "us-west-2",
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_id": "subnet-0123456789abcdef0",
    "storage_capacity_gib": 1200,
    "client_security_group_ids": {"nodes": "sg-0123456789abcdef0"},
}


@pytest.fixture
def mocks():
    with Mocks.set() as mocks:
        yield mocks


@pulumi.runtime.test
def test_data_is_encrypted_compressed_and_protected(mocks):
    storage = FsxLustre("data", {**ARGS, "durability": {"type": "backup"}, "production": True})  # type: ignore[typeddict-item]

    def check(found):
        file_system, group = found
        [made] = mocks.of_type("aws:fsx/lustreFileSystem:LustreFileSystem").items()
        name, inputs = made
        assert file_system == f"{name}_id"
        assert inputs["securityGroupIds"] == [group]
        assert inputs["dataCompressionType"] == "LZ4"
        assert inputs["kmsKeyId"]
        assert inputs["automaticBackupRetentionDays"] > 0

    return pulumi.Output.all(storage.file_system_id, storage.security_group_id).apply(check)


def test_nodes_reach_only_the_lustre_ports(mocks):
    @pulumi.runtime.test  # returns when everything is registered
    def program():
        FsxLustre("data", {**ARGS, "durability": {"type": "backup"}})  # type: ignore[typeddict-item]

    program()
    rules = mocks.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule").values()
    of_nodes = [each for each in rules if each["referencedSecurityGroupId"] == "sg-0123456789abcdef0"]
    assert {(each["fromPort"], each["toPort"]) for each in of_nodes} == {(988, 988), (1018, 1023)}
