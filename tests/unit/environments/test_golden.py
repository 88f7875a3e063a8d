"""What golden plans notice, on a small environment built by hand."""

import json

import golden
import pytest
from hand_built import changed, environment, urn, waiting, with_parts, without

from trainium_eks.plan.graph import Options

BEFORE = environment()
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem::lustre"


def noticed(after):
    return list(golden.changes(golden.golden(BEFORE), golden.golden(after)))


def test_golden_comparison_notices_lost_and_added_edges():
    assert json.loads(golden.text(BEFORE)) == golden.golden(BEFORE)
    assert noticed(environment()) == []
    kept = tuple(each for each in BEFORE.by_urn[urn("trn1", BEFORE)].dependencies if each != urn("cni", BEFORE))
    group = "aws:eks/nodeGroup:NodeGroup::trn1"
    assert noticed(with_parts(BEFORE, "trn1", dependencies=kept)) == [f'{group}  waits for: -"Addon cni"']
    assert noticed(waiting(environment(), "lustre", "nat")) == [f'{LUSTRE}  waits for: +"NatGateway nat"']
    line, *_ = noticed(with_parts(BEFORE, "lustre", property_dependencies={"subnetIds": (urn("subnet", BEFORE),)}))
    assert "made from" in line
    assert "SecurityGroup fsx-group" in line


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"protect": False}, "protect"),
        ({"deleted_with": "gone"}, "deletedWith"),
        ({"ignore_changes": ("tags",)}, "ignoreChanges"),
        ({"aliases": ("name=old",)}, "aliases"),
        ({"custom_timeouts": {"create": "1h"}}, "customTimeouts"),
        ({"aliases": ("type=old:Type",)}, None),  # the SDK's own
    ],
)
def test_changed_option_is_noticed(options, key):
    lines = noticed(with_parts(BEFORE, "lustre", options=Options(**{"protect": True, **options})))
    assert [line.partition(": ")[0] for line in lines] == [f"{LUSTRE}  {key}"] * (key is not None)


def test_changed_parent_provider_urn_or_replacing_path_is_noticed():
    queue = "kubernetes:scheduling.volcano.sh/v1beta1:Queue::queue-test"
    assert noticed(with_parts(BEFORE, "queue-test", provider="")) == [f'{queue}  provider: "kubernetes k8s" -> null']
    assert noticed(with_parts(BEFORE, "key", parent=urn("net", BEFORE))) == [
        'aws:kms/key:Key::key  parent: null -> "Network net"'
    ]
    (line,) = noticed(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"))
    assert line.startswith("aws:ec2/subnet:Subnet::subnet  replaces: ")
    assert noticed(changed(environment(), "vpc", tags={"Name": "other"})) == []
    assert noticed(without(environment(), "sts")) == [f"- {urn('sts', BEFORE)}"]
    lines = noticed(with_parts(BEFORE, "cni", options=Options(replace_on_changes=("addonVersion",))))
    assert [line.partition("  ")[2].partition(":")[0] for line in lines] == ["replaceOnChanges", "replaces"]
