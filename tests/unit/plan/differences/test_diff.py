"""Differences between two programs, and their losses."""

import json
from dataclasses import replace

import pytest
from hand_built import Builder, changed, environment, urn, with_parts, without

from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import UNKNOWN, Options

REST = {"minSize": 0, "desiredSize": 0, "maxSize": 4}


def _compare(after, before=None):
    return diff.compare(before or environment(), after)


def _names(changes):
    return [change.resource.name for change in changes]


def _of(changes, name):
    [found] = [change for change in changes.items if change.resource.name == name]
    return found


def _change(name, before, after):
    """Return the change of one resource with changed inputs."""
    return _of(_compare(changed(environment(), name, **after), changed(environment(), name, **before)), name)


def test_added_and_removed_resources_are_created_and_deleted():
    assert not _compare(environment())
    assert _names(_compare(environment(), before=without(environment(), "sts")).of("create")) == ["sts"]
    assert _names(_compare(without(environment(), "sts")).deleted) == ["sts"]
    resources = environment().resources
    assert not _compare(replace(environment(), resources=tuple(each for each in resources if each.name != "fsx"))).items


TEMPLATE_2 = {"launchTemplate": {"id": "sim-template", "version": "2"}}


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "rolls"),
    [
        ("trn1", {"releaseVersion": "1.35.0-20260801"}, "update", True),
        ("trn1", {"version": "1.36"}, "update", True),
        ("trn1", TEMPLATE_2, "update", True),
        ("trn1", {"taints": []}, "update", False),
        ("trn1", {"tags": {"Team": "x"}}, "update", False),
        ("trn1", {"amiType": "x"}, "replace", False),
        ("lustre", {"storageCapacity": 4800}, "update", False),
        ("control-plane", {"version": "1.36"}, "update", False),
    ],
)
def test_mutable_input_is_updated_in_place(name, inputs, kind, rolls):
    changes = _compare(changed(environment(), name, **inputs))
    assert _of(changes, name).kind == kind
    assert _names(changes.rolled) == ([name] if rolls else [])


def test_replacing_a_vpc_or_cluster_replaces_everything_in_it():
    changes = _compare(changed(environment(), "vpc", cidrBlock="10.1.0.0/16"))
    assert {"vpc", "subnet", "lustre", "trn1", "system", "fsx-group"} <= set(_names(changes.replaced))
    assert _of(changes, "subnet").follows == urn("vpc", environment())
    assert "control-plane" not in _names(changes.replaced), "EKS cannot move it"
    assert changes.items[0].resource.name == "control-plane"
    assert changes.items[0].refused.startswith("EKS cannot move a cluster to another VPC: ")
    assert [item["name"] for item in changes.to_json()["items"] if item["refused"]] == ["control-plane"]
    changes = _compare(changed(environment(), "control-plane", name="other"))
    assert {"k8s", "volcano-release", "queue-test", "cni", "trn1"} <= set(_names(changes.replaced))
    assert _of(changes, "queue-test").follows == urn("k8s", environment())


def test_a_changed_launch_template_rolls_its_group_and_no_other():
    changes = _compare(changed(environment(), "trn1-template", userData="bmV3"))
    assert set(_names(changes.items)) == {"trn1-template", "trn1"}
    assert _of(changes, "trn1").follows == urn("trn1-template", environment())
    assert _names(changes.rolled) == ["trn1"]
    rolls = {item["name"]: item["rollsNodes"] for item in changes.to_json()["items"]}
    assert rolls == {"trn1": True, "trn1-template": False}
    after = changed(environment(), "trn1-template", userData="bmV3")
    [path] = _of(_compare(changed(after, "trn1", **TEMPLATE_2)), "trn1").paths
    assert (path.path, path.before, path.after) == ("launchTemplate.version", "1", "2")
    taken = {"vpcSecurityGroupIds": (urn("fsx-group", environment()),)}
    before = with_parts(environment(), "trn1-template", property_dependencies=taken)
    changes = _compare(changed(before, "fsx-group", description="new"), before)
    assert _of(changes, "trn1-template").kind == "update"
    assert _names(changes.rolled) == ["trn1"]


def test_changed_group_is_rolled_by_its_template_too():
    """A tag of the whole environment changes group and template at once; the group's part must not hide the roll."""
    tagged = changed(environment(), "trn1-template", tagSpecifications=[{"tags": {"Team": "x"}}], tags={"Team": "x"})
    changes = _compare(changed(tagged, "trn1", tags={"Team": "x"}))
    group = _of(changes, "trn1")
    assert (group.kind, group.tags_only, group.rolls_nodes) == ("update", False, True)
    assert [(path.path, path.cause) for path in group.paths] == [
        ("tags", ""),
        ("launchTemplate.version", urn("trn1-template", environment())),
    ]
    assert group.follows == urn("trn1-template", environment())


@pytest.mark.parametrize("inputs", [{"tags": {"Team": "x"}}, {"updateDefaultVersion": True}])
def test_input_without_a_new_template_version_rolls_no_node(inputs):
    changes = _compare(changed(environment(), "trn1-template", **inputs))
    assert _names(changes.items) == ["trn1-template"]
    group_too = _compare(changed(changed(environment(), "trn1-template", **inputs), "trn1", tags={"Team": "x"}))
    assert _of(group_too, "trn1").tags_only


def test_loss_is_judged_by_the_running_size():
    rolled = {"releaseVersion": "1.35.0-20260801"}
    assert _change("trn1", {}, rolled).stateful
    rest = {"scalingConfig": REST}
    resting = _change("trn1", rest, {**rest, **rolled})
    assert (resting.stateful, resting.rolls_nodes) == (False, True)
    # Replaced and scaled to zero in one change, which takes the running nodes away; ``stateful`` would be true by the
    # smaller size alone.
    change = _change("trn1", {}, {"amiType": "x", "scalingConfig": REST})
    assert (change.kind, change.lost) == ("replace", "what runs on its nodes")


def test_resource_that_accepts_a_new_id_is_updated():
    changes = _compare(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"))
    cluster = _of(changes, "control-plane")
    assert (cluster.kind, cluster.follows, cluster.refused) == ("update", urn("subnet", environment()), "")
    [path] = cluster.paths
    assert (path.path, path.cause, path.replaces) == ("vpcConfig", urn("subnet", environment()), False)
    assert "trn1-template" not in _names(changes.items), "an updated cluster keeps its id"
    before = with_parts(environment(), "subnet", outputs={"id": "sim-subnet"})
    changes = _compare(changed(before, "subnet", cidrBlock="10.0.64.0/18"), before)
    assert [path.path for path in _of(changes, "control-plane").paths] == ["vpcConfig.subnetIds"]


def test_moved_cluster_is_replaced_or_refused():
    moved = changed(environment(), "vpc", cidrBlock="10.1.0.0/16")
    assert not any(each.refused for each in _compare(changed(moved, "control-plane", name="new")).items)
    keeps = with_parts(environment(), "control-plane", options=Options(ignore_changes=("vpcConfig",)))
    upgraded = changed(changed(keeps, "vpc", cidrBlock="10.1.0.0/16"), "control-plane", version="1.36")
    assert not _of(_compare(upgraded, keeps), "control-plane").refused, "it keeps its subnets whatever happens"
    elsewhere = without(environment(), "vpc", "subnet")
    elsewhere = changed(elsewhere, "control-plane", vpcConfig={"subnetIds": ["subnet-1"]})
    assert _of(_compare(elsewhere), "control-plane").refused
    assert _of(_compare(environment(), elsewhere), "control-plane").refused


def _key(arn):
    return {"encryptionConfig": {"provider": {"keyArn": arn}}}


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("control-plane", {"version": "1.35"}, {"version": "1.34"}, "never goes back from Kubernetes 1.35 to 1.34"),
        ("control-plane", {"version": "1.35"}, {"version": "1.9"}, "never goes back"),
        ("control-plane", {"version": "1.34"}, {"version": "1.36"}, "1.35 comes next"),
        ("control-plane", {"version": "1.9"}, {"version": "1.11"}, "1.10 comes next"),
        ("control-plane", {"version": "1.34"}, {"version": "1.35"}, ""),
        ("control-plane", {"version": "1.9"}, {"version": "1.10"}, ""),
        ("control-plane", {"version": "1.34"}, {"version": UNKNOWN}, ""),
        ("control-plane", _key("a"), _key("b"), "EKS keeps the key a"),
        ("control-plane", {}, _key("a"), ""),
        ("control-plane", _key("a"), _key(UNKNOWN), ""),
        ("control-plane", {}, {"vpcConfig": {"subnetIds": ["sim-subnet"], "endpointPublicAccess": False}}, ""),
        ("trn1", {"version": "1.35"}, {"version": "1.34"}, "never go"),
        ("trn1", {"version": "1.34"}, {"version": "1.36"}, ""),
        ("trn1", {"releaseVersion": "1.35.6-20260818"}, {"releaseVersion": "1.35.1-20260312"}, "back from AMI release"),
        ("trn1", {"releaseVersion": "1.35.1-20260312"}, {"releaseVersion": "1.35.6-20260818"}, ""),
        ("trn1", {"releaseVersion": "1.35.6-20260818"}, {"releaseVersion": "1.35.1-20260818"}, ""),
        ("trn1", {"releaseVersion": "1.34.9-20260901"}, {"releaseVersion": "1.35.6-20260818"}, ""),
        ("trn1", {"releaseVersion": "1.35.6-20260818"}, {"releaseVersion": UNKNOWN}, ""),
        ("trn1", {}, {"releaseVersion": "1.35.1-20260312"}, ""),
    ],
)
def test_change_that_eks_refuses_is_reported(name, before, after, said):
    change = _change(name, before, after)
    assert change.kind == "update"
    assert said in change.refused
    assert bool(change.refused) == bool(said)


def _block(nodes, **inputs):
    sizes = {**REST, "desiredSize": nodes}
    return changed(environment(), "trn1", capacityType="CAPACITY_BLOCK", scalingConfig=sizes, **inputs)


@pytest.mark.parametrize("field", ["version", "releaseVersion"])
def test_running_capacity_blocks_nodes_are_not_replaced(field):
    before = _block(2, version="1.34", releaseVersion="1.34.1-20260101")
    change = _of(_compare(changed(before, "trn1", **{field: "1.35"}), before), "trn1")
    assert "only while it has none, and this one is to have 2" in change.refused
    assert "set desiredSize and minSize to 0" in change.refused


def test_capacity_block_accepts_a_new_template_only_at_zero():
    shrinking = _of(_compare(changed(_block(0), "trn1-template", userData="other"), before=_block(2)), "trn1")
    assert (shrinking.rolls_nodes, bool(shrinking.refused)) == (True, True), "the size comes too late"
    for before in (_block(0), environment()):
        change = _of(_compare(changed(before, "trn1-template", userData="other"), before), "trn1")
        assert (change.rolls_nodes, change.refused) == (True, "")
    assert not _of(_compare(_block(0), before=_block(2)), "trn1").refused, "the size alone"


def test_unknown_type_may_be_replaced():
    before, after = Builder(), Builder()
    before.add("aws:sns/topic:Topic", "jobs", delaySeconds=2)
    after.add("aws:sns/topic:Topic", "jobs", delaySeconds=1)
    [change] = _compare(after.graph(), before.graph()).items
    assert (change.kind, change.unjudged) == ("update", True)
    assert not _change("trn1", {}, {"taints": []}).unjudged


def test_lost_data_is_listed_first_and_the_rest_by_component():
    after = without(changed(environment(), "key", keyUsage="SIGN_VERIFY", tags={"a": "b"}), "lustre")
    changes = _compare(changed(after, "queue-test", metadata={"name": "a"}))
    assert _names(changes.items)[:2] == ["key", "lustre"]
    assert [change.stateful for change in changes.items] == [True, True, False, False]
    build = Builder()
    build.add("aws:cloudwatch/logGroup:LogGroup", "alogs")  # the first by name
    build.add("aws:ec2/vpc:Vpc", "around")
    build.add("kubernetes:core/v1:PersistentVolume", "volume")
    build.add("aws:fsx/lustreFileSystem:LustreFileSystem", "zfiles")
    assert _names(_compare(Builder().graph(), build.graph()).items) == ["zfiles", "volume", "alogs", "around"]
    after = changed(changed(environment(), "sts", policy="{}"), "nat", tags={"a": "b"})
    changes = _compare(changed(after, "cni", addonVersion="v2"))
    assert [each.component for each in changes.items] == ["eks", "net", "net"]


def test_removed_guard_is_listed_first_and_in_json():
    """Without it `destroy` deletes the data, although no input changes."""
    before = with_parts(
        environment(), "lustre", options=Options(retain_on_delete=True, custom_timeouts={"create": "1h"})
    )
    changes = _compare(with_parts(environment(), "lustre", options=Options()), before)
    assert [option.option for option in changes.options] == ["retainOnDelete", "customTimeouts"]
    assert [option["weakens"] for option in changes.to_json()["options"]] == [True, False]
    assert [option.harmless for option in changes.options] == [False, True]
    [option] = _compare(with_parts(environment(), "lustre", options=Options())).options
    assert (option.option, option.before, option.after, option.weakens) == ("protect", True, False, True)
    [option] = _compare(
        with_parts(environment(), "lustre", options=Options(protect=True, retain_on_delete=True))
    ).options
    assert (option.option, option.weakens) == ("retainOnDelete", False)


def _tagged(owner, **tags):
    """Return a program with a VPC that overrides a tag of the provider, and an alias, a type without tags."""
    build = Builder()
    defaults = json.dumps({"tags": {"Owner": owner, "Team": "a"}})
    build.add("pulumi:providers:aws", "aws", region="us-west-2", defaultTags=defaults)
    build.add("aws:ec2/vpc:Vpc", "vpc", provider="aws", cidrBlock="10.0.0.0/16", tags={"Team": "b", **tags})
    build.add("aws:ec2/eip:Eip", "address", provider="aws", domain="vpc")
    build.add("aws:kms/alias:Alias", "alias", provider="aws")
    return build.graph()


def test_default_tag_changes_every_taggable_resource():
    """As the AWS provider does, which compares `tagsAll` (pulumi-aws#2585)."""
    changes = _compare(_tagged("you"), _tagged("me"))
    paths = {change.resource.name: [path.path for path in change.paths] for change in changes.items}
    assert paths == {"aws": ["defaultTags"], "address": ["tagsAll.Owner"], "vpc": ["tagsAll.Owner"]}
    assert all(change.tags_only for change in changes.items)
    both = _of(_compare(_tagged("you", Name="net"), _tagged("me")), "vpc")
    assert [path.path for path in both.paths] == ["tags.Name", "tagsAll.Owner"]
    own = _compare(_tagged("you", Owner="mine"), _tagged("me", Owner="mine"))
    assert _names(own.items) == ["address", "aws"]


@pytest.mark.parametrize("given", ["[unknown]", {"tags": "[unknown]"}])
def test_unknown_default_tags_change_every_taggable_resource(given):
    changes = _compare(changed(_tagged("me"), "aws", defaultTags=given), before=_tagged("me"))
    assert [(path.path, path.after) for path in _of(changes, "vpc").paths] == [("tagsAll", "[unknown]")]
    assert "alias" not in _names(changes.items)


def test_json_equals_the_text():
    [item] = _compare(changed(environment(), "lustre", deploymentType="SCRATCH_2")).to_json()["items"]
    found = (item["kind"], item["stateful"], item["blockedByProtect"], item["rollsNodes"])
    assert found == ("replace", True, True, False)
    path = {"path": "deploymentType", "before": "PERSISTENT_2", "after": "SCRATCH_2", "replaces": True, "cause": ""}
    assert item["paths"] == [path]
    assert not _change("subnet", {}, {"cidrBlock": "10.0.64.0/18"}).blocked
