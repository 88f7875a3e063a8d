import pytest
from dry_run import planned_alike
from unit.components.parts import of_kind, one

from components._args import ArgumentError
from components.encryption_key import EncryptionKey, policy


def built(record, **args):
    return planned_alike(record, lambda: EncryptionKey("key", {"region": "us-west-2", **args}))


@pytest.mark.parametrize("kept", [True, False])
def test_the_key_rotates_and_outlives_the_stack_because_backups_need_it(record, kept):
    graph = built(record, retain_on_delete=kept)
    key = one(graph, "Key")
    assert (key.inputs["enableKeyRotation"], key.inputs["deletionWindowInDays"]) == (True, 30)
    assert {each.options.retain_on_delete for each in of_kind(graph, "Key", "KeyPolicy")} == {kept}
    # Its policy is of its own account, and nobody was asked for it.
    text = one(graph, "KeyPolicy").inputs["policy"]
    assert (text, ":000000000000:root" in text) == (policy(key.outputs["arn"], "us-west-2"), True)
    with pytest.raises(ArgumentError, match="8192"):
        built(record, description="x" * 8193)


def test_existing_key_gets_policy_and_alias_without_a_second_key(record):
    arn = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    keys = []

    def program():
        EncryptionKey("key", {"region": "us-west-2", "kept_key_arn": arn}).key_arn.apply(keys.append)

    graph = record(program)
    assert of_kind(graph, "Key") == ()
    key_policy, alias = one(graph, "KeyPolicy"), one(graph, "Alias")
    assert key_policy.inputs["keyId"] == alias.inputs["targetKeyId"] == arn.partition("/")[2]
    assert "111122223333" in key_policy.inputs["policy"]
    assert key_policy.options.retain_on_delete
    assert keys == [arn]
