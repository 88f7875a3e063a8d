from typing import Any

import pulumi
import pytest
from dry_run import planned_alike
from mocks import Mocks
from unit.components.parts import Record, of_kind

from components._args import ArgumentError
from components.encryption_key import EncryptionKey, policy
from trainium_eks.plan.graph import Graph


def built(record: Record, **args: Any) -> Graph:
    return planned_alike(record, lambda: EncryptionKey("key", {"region": "us-west-2", **args}))


@pytest.mark.parametrize("kept", [True, False])
def test_the_key_rotates_and_outlives_the_stack_because_backups_need_it(record: Record, kept: bool) -> None:
    graph = built(record, retain_on_delete=kept)
    (key,) = of_kind(graph, "Key")
    assert (key.inputs["enableKeyRotation"], key.inputs["deletionWindowInDays"]) == (True, 30)
    assert {each.options.retain_on_delete for each in of_kind(graph, "Key", "KeyPolicy")} == {kept}
    with pytest.raises(ArgumentError, match="8192"):
        built(record, description="x" * 8193)


def test_the_policy_is_of_the_keys_own_account_and_asked_nobody(record: Record) -> None:
    graph = built(record)
    (key,), (key_policy,) = of_kind(graph, "Key"), of_kind(graph, "KeyPolicy")
    assert key_policy.inputs["policy"] == policy(key.outputs["arn"], "us-west-2")
    assert "arn:aws:iam::000000000000:root" in key_policy.inputs["policy"]


def test_a_kept_key_gets_the_policy_and_an_alias_and_no_second_key_is_made(record: Record) -> None:
    arn = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    keys: list[str] = []

    def program() -> None:
        key = EncryptionKey("key", {"region": "us-west-2", "kept_key_arn": arn})
        key.key_arn.apply(keys.append)

    graph = record(program)
    assert of_kind(graph, "Key") == ()
    [key_policy] = of_kind(graph, "KeyPolicy")
    [alias] = of_kind(graph, "Alias")
    assert key_policy.inputs["keyId"] == alias.inputs["targetKeyId"] == "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    assert "111122223333" in key_policy.inputs["policy"]
    assert key_policy.options.retain_on_delete
    assert keys == [arn]


def test_the_simplest_mocks_of_a_users_test_are_enough() -> None:
    """Mocks that answer with the inputs alone tell no ARN."""
    told: list[str] = []

    @pulumi.runtime.test
    def program() -> None:
        EncryptionKey("key", {"region": "us-west-2"}).key_arn.apply(told.append)

    with Mocks.set():
        program()
    assert told == ["arn:aws:kms:us-west-2:000000000000:key/mocked"]
