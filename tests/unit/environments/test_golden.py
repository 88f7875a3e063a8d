"""What golden plans notice, on a small environment built by hand."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import golden
import pytest
from hand_built import changed, environment, optioned, urn, waiting, without

from trainium_eks.plan.graph import Graph, Options


def noticed(after: Graph) -> list[str]:
    before = environment()
    return list(golden.changes(golden.golden(before), golden.golden(after)))


def moved(name: str, **fields: Any) -> Graph:
    before = environment()
    resources = tuple(replace(each, **fields) if each.name == name else each for each in before.resources)
    return replace(before, resources=resources)


def test_the_file_holds_what_is_held() -> None:
    assert json.loads(golden.text(environment())) == golden.golden(environment())
    assert noticed(environment()) == []


def test_a_lost_edge_is_noticed() -> None:
    bare = environment()
    group = next(each for each in bare.resources if each.name == "trn1")
    kept = tuple(each for each in group.dependencies if each != urn("cni", bare))
    assert noticed(moved("trn1", dependencies=kept)) == [
        'aws:eks/nodeGroup:NodeGroup::trn1  waits for: -"Addon cni"',
    ]
    assert noticed(waiting(bare, "lustre", "nat")) == [
        'aws:fsx/lustreFileSystem:LustreFileSystem::lustre  waits for: +"NatGateway nat"',
    ]


def test_an_input_that_is_made_from_something_else_is_noticed() -> None:
    [line] = noticed(moved("lustre", property_dependencies={"subnetIds": (urn("subnet", environment()),)}))[:1]
    assert "made from" in line
    assert "SecurityGroup fsx-group" in line


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"protect": False}, "protect"),
        ({"retain_on_delete": True}, "retainOnDelete"),
        ({"deleted_with": "gone"}, "deletedWith"),
        ({"delete_before_replace": True}, "deleteBeforeReplace"),
        ({"ignore_changes": ("tags",)}, "ignoreChanges"),
        ({"aliases": ("name=old",)}, "aliases"),
        ({"custom_timeouts": {"create": "1h"}}, "customTimeouts"),
    ],
)
def test_an_option_is_noticed(options: Mapping[str, Any], key: str) -> None:
    [line] = noticed(optioned(environment(), "lustre", Options(**{"protect": True, **options})))
    assert line.startswith(f"aws:fsx/lustreFileSystem:LustreFileSystem::lustre  {key}: ")


def test_another_path_that_replaces_is_noticed() -> None:
    lines = noticed(optioned(environment(), "cni", Options(replace_on_changes=("addonVersion",))))
    assert [line.partition("  ")[2].partition(":")[0] for line in lines] == ["replaceOnChanges", "replaces"]


def test_the_sdks_own_aliases_are_not_held() -> None:
    assert noticed(optioned(environment(), "lustre", Options(protect=True, aliases=("type=old:Type",)))) == []


def test_parents_providers_urns_and_replacing_inputs_are_noticed() -> None:
    assert noticed(moved("queue-test", provider="")) == [
        'kubernetes:scheduling.volcano.sh/v1beta1:Queue::queue-test  provider: "kubernetes k8s" -> null'
    ]
    assert noticed(moved("key", parent=urn("net", environment()))) == [
        'aws:kms/key:Key::key  parent: null -> "Network net"'
    ]
    assert noticed(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"))[0].startswith(
        "aws:ec2/subnet:Subnet::subnet  replaces: "
    )
    assert noticed(changed(environment(), "vpc", tags={"Name": "other"})) == []
    assert noticed(without(environment(), "sts")) == [f"- {urn('sts', environment())}"]
