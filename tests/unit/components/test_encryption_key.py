import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pulumi_aws as aws
import pytest
from dry_run import planned_alike
from golden import ROOT

from components._args import ArgumentError
from components.encryption_key import EncryptionKey, policy
from trainium_eks.plan.graph import Graph

KEY = "aws:kms/key:Key"
KEY_POLICY = "aws:kms/keyPolicy:KeyPolicy"
ARN = "arn:aws:kms:us-west-2:123456789012:key/abc"
Record = Callable[..., Graph]


def statements(arn: str = ARN, region: str = "us-west-2") -> dict[str, dict[str, Any]]:
    return {each["Sid"]: each for each in json.loads(policy(arn, region))["Statement"]}


def built(record: Record, **args: Any) -> Graph:
    return planned_alike(record, lambda: EncryptionKey("key", {"region": "us-west-2", **args}))


def test_the_key_rotates_and_can_be_taken_back_for_a_month(record: Record) -> None:
    (key,) = built(record).of_type(KEY)
    assert key.inputs["enableKeyRotation"] is True
    assert key.inputs["deletionWindowInDays"] == 30


def test_the_key_outlives_the_stack_because_backups_need_it(record: Record) -> None:
    graph = built(record)
    assert all(each.options.retain_on_delete for each in graph.of_type(KEY, KEY_POLICY))
    assert not any(
        each.options.retain_on_delete for each in built(record, retain_on_delete=False).of_type(KEY, KEY_POLICY)
    )


def test_the_policy_is_of_the_keys_own_account_and_asked_nobody(record: Record) -> None:
    graph = built(record)
    (key,), (key_policy,) = graph.of_type(KEY), graph.of_type(KEY_POLICY)
    assert key_policy.inputs["policy"] == policy(key.outputs["arn"], "us-west-2")
    assert "arn:aws:iam::000000000000:root" in key_policy.inputs["policy"]


def test_whoever_uses_the_key_waits_for_its_policy(record: Record) -> None:
    def program() -> None:
        key = EncryptionKey("key", {"region": "us-west-2"})
        aws.cloudwatch.LogGroup("logs", kms_key_id=key.key_arn)

    graph = planned_alike(record, program)
    (group,), (key_policy,) = graph.of_type("aws:cloudwatch/logGroup:LogGroup"), graph.of_type(KEY_POLICY)
    assert key_policy.urn in group.dependencies


def test_auto_scaling_may_make_grants_for_node_volumes_before_its_role_exists() -> None:
    """A role that does not exist yet cannot be a principal (terraform-provider-aws#28644)."""
    role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    use, grant = statements()["NodeVolumesByAutoScaling"], statements()["NodeVolumeGrantsByAutoScaling"]
    for statement in (use, grant):
        assert statement["Principal"] == {"AWS": "*"}
        assert statement["Condition"]["ArnLike"] == {"aws:PrincipalArn": role}
    assert {"kms:Decrypt", "kms:GenerateDataKey*", "kms:DescribeKey"} <= set(use["Action"])
    assert grant["Action"] == ["kms:CreateGrant"]
    assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_only_logs_of_this_account_and_region_are_encrypted_with_it() -> None:
    statement = statements()["LogsOfThisRegion"]
    assert statement["Principal"] == {"Service": "logs.us-west-2.amazonaws.com"}
    context = {"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:us-west-2:123456789012:*"}
    assert statement["Condition"] == {"ArnLike": context}


def test_fsx_reads_and_writes_the_encrypted_bucket() -> None:
    condition = statements()["BucketLinksByFsx"]["Condition"]["ArnLike"]["aws:PrincipalArn"]
    assert condition.endswith("/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*")


def test_every_star_stays_inside_the_account() -> None:
    stars = [each for each in statements().values() if each["Principal"] == {"AWS": "*"}]
    assert stars
    assert all(each["Condition"]["StringEquals"]["kms:CallerAccount"] == "123456789012" for each in stars)


def test_services_use_it_for_their_callers_and_s3_does_not() -> None:
    services = statements()["ServicesForTheirCallers"]["Condition"]["StringEquals"]["kms:ViaService"]
    assert services == [f"{each}.us-west-2.amazonaws.com" for each in ("ec2", "fsx", "eks", "ecr", "aps")]


def test_china_has_its_own_partition_and_endpoints() -> None:
    text = policy("arn:aws-cn:kms:cn-north-1:123456789012:key/abc", "cn-north-1")
    assert "arn:aws:" not in text
    assert "logs.cn-north-1.amazonaws.com.cn" in text


def test_a_kept_key_gets_the_policy_and_an_alias_and_no_second_key_is_made(record: Record) -> None:
    arn = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    keys: list[str] = []

    def program() -> None:
        key = EncryptionKey("key", {"region": "us-west-2", "kept_key_arn": arn})
        key.key_arn.apply(keys.append)

    graph = record(program)
    assert graph.of_type("aws:kms/key:Key") == ()
    [key_policy] = graph.of_type("aws:kms/keyPolicy:KeyPolicy")
    [alias] = graph.of_type("aws:kms/alias:Alias")
    assert key_policy.inputs["keyId"] == alias.inputs["targetKeyId"] == "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    assert "111122223333" in key_policy.inputs["policy"]
    assert key_policy.options.retain_on_delete
    assert keys == [arn]
    with pytest.raises(ArgumentError, match="not the ARN of a KMS key"):
        record(lambda: EncryptionKey("key", {"region": "us-west-2", "kept_key_arn": "alias/trn-dev-key"}))


MOCKED = """
import pulumi

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args):
        return [f"{args.name}-id", args.inputs]

    def call(self, args):
        return {}

pulumi.runtime.set_mocks(Mocks())
from components import EncryptionKey

@pulumi.runtime.test
def test():
    return EncryptionKey("key", {"region": "us-west-2"}).key_arn.apply(print)

test()
"""


def test_the_simplest_mocks_of_a_users_test_are_enough() -> None:
    """Mocks that answer with the inputs alone tell no ARN."""
    ran = subprocess.run([sys.executable, "-c", MOCKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "arn:aws:kms:us-west-2:000000000000:key/mocked"


@pytest.mark.parametrize("days", [6, 31])
def test_a_deletion_window_that_kms_refuses_is_refused_before_anything_is_made(record: Record, days: int) -> None:
    with pytest.raises(ArgumentError, match="deletion_window_days"):
        record(lambda: EncryptionKey("key", {"region": "us-west-2", "deletion_window_days": days}))


def test_a_misspelt_name_and_a_long_description_are_refused(record: Record) -> None:
    with pytest.raises(ArgumentError, match="regoin"):
        record(lambda: EncryptionKey("key", {"regoin": "us-west-2"}))
    with pytest.raises(ArgumentError, match="8192"):
        record(lambda: EncryptionKey("key", {"region": "us-west-2", "description": "x" * 8193}))
