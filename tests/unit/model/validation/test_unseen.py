"""What is encrypted is neither judged nor overwritten; what a plan cannot do without is asked for."""

from typing import Any

import pytest
from unit.model.config.test_bad_inputs import SOUND, judged
from unit.model.config.test_config import put

from trainium_eks.model.validation.problems import Problem, config_path, describe
from trainium_eks.model.validation.unseen import UNSEEN
from trainium_eks.plan.graph import SECRET


def told(path: tuple[str | int, ...], value: object = UNSEEN, **beside: Any) -> tuple[Problem, ...]:
    data: dict[str, Any] = {**SOUND, **beside}
    if len(path) > 1:
        data = {str(path[0]): {}, **data}
    return judged(put(data, path, value))


def test_the_recorder_puts_the_same_word_in_its_place() -> None:
    assert SECRET == UNSEEN


@pytest.mark.parametrize(
    "path",
    [
        ("owner",),
        ("costCenter",),
        ("tags", "Team"),
        ("tags", "a.b/c"),
        ("allowedAccountIds", 0),
        ("cluster", "endpoint", "publicAccessCidrs"),
        ("cluster", "adminPrincipals"),
        ("network", "peerCidrBlocks"),
        ("fileSystem", "durability"),
    ],
    ids=str,
)
def test_what_is_encrypted_is_not_judged(path: tuple[str | int, ...]) -> None:
    lists = {"publicAccessCidrs", "adminPrincipals", "peerCidrBlocks"}
    value: object = [UNSEEN, UNSEEN] if path[-1] in lists else UNSEEN
    if path[-1] == "durability":
        value = {"type": "s3", "bucket": UNSEEN}
    assert told(path, value) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("region",), UNSEEN),
        (("network", "zoneIds"), ["usw2-az4", UNSEEN]),
        (("network", "cidrBlock"), UNSEEN),
        (("nodeGroups",), [{"name": UNSEEN, "instanceType": "trn1.32xlarge"}]),
        (("cluster", "kubernetesVersion"), UNSEEN),
        (("cluster", "logRetentionDays"), UNSEEN),
        (("production",), UNSEEN),
        (("cluster",), UNSEEN),
        (("queues",), UNSEEN),
    ],
    ids=str,
)
def test_what_decides_what_is_built_is_asked_for_and_not_overwritten(path: tuple[str | int, ...], value: Any) -> None:
    found = told(path, value)
    assert [each.reason.partition(",")[0] for each in found if each.path.startswith(_snake(path[0]))] == [
        "it is encrypted"
    ]
    assert all(each.good is None for each in found)
    assert "pulumi config set" not in describe(found, config_path)


def _snake(name: object) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in str(name))


def test_what_stands_beside_is_judged_all_the_same() -> None:
    assert [each.path for each in told(("owner",), costCenter="a\nb")] == ["cost_center"]
    assert [each.path for each in told(("allowedAccountIds",), [UNSEEN, "12"])] == ["allowed_account_ids[1]"]
