"""``--nodes N``."""

import json
from typing import Any

import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.nodes.scale import with_nodes
from trainium_eks.plan.recording.project import StackSettings

GROUPS = [
    {"name": "train", "instanceType": "trn1.32xlarge", "minSize": 2, "maxSize": 4, "desiredSize": 2},
    {"name": "other", "instanceType": "trn1n.32xlarge", "maxSize": 2},
]


def scaled(nodes: int, groups: list[dict[str, Any]] = GROUPS) -> list[dict[str, Any]]:
    settings = StackSettings("dev", {"p:nodeGroups": json.dumps(groups), "p:region": "us-west-2"})
    adjusted = with_nodes(nodes, "p")(settings)
    assert adjusted.config["p:region"] == "us-west-2"
    found: list[dict[str, Any]] = json.loads(adjusted.config["p:nodeGroups"])
    return found


@pytest.mark.parametrize(("nodes", "expected"), [(0, (0, 4, 0)), (1, (1, 4, 1)), (3, (2, 4, 3)), (64, (2, 64, 64))])
def test_the_first_group_gets_the_nodes_and_the_limits_that_they_need(
    nodes: int, expected: tuple[int, int, int]
) -> None:
    first, other = scaled(nodes)
    assert (first["minSize"], first["maxSize"], first["desiredSize"]) == expected
    assert other == GROUPS[1]


def test_more_than_eks_allows_in_a_group_is_spread_over_groups_of_the_same_kind() -> None:
    *train, other = scaled(1000)
    assert [(each["name"], each["desiredSize"]) for each in train] == [
        ("train", 450),
        ("train-2", 450),
        ("train-3", 100),
    ]
    assert {each["instanceType"] for each in train} == {"trn1.32xlarge"}
    assert other == GROUPS[1]


def test_exactly_what_eks_allows_is_one_group() -> None:
    assert [each["desiredSize"] for each in scaled(450)[:-1]] == [450]


def test_a_group_that_may_have_no_node_still_has_a_maximum_that_eks_takes() -> None:
    (first,) = scaled(0, [{"name": "a", "instanceType": "trn1.32xlarge"}])
    assert first["maxSize"] == 1


def test_a_stack_without_groups_is_told() -> None:
    with pytest.raises(ClusterError, match=r"Pulumi\.dev\.yaml has none"):
        scaled(3, [])
