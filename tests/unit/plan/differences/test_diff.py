"""What changes between two programs, and what is lost by it."""

import json
from dataclasses import replace

import pytest
from hand_built import Builder, changed, environment, optioned, urn, without

from trainium_eks.plan.differences import diff
from trainium_eks.plan.differences.changes import Changes, ResourceChange
from trainium_eks.plan.graph import UNKNOWN, Graph, Options


def _compare(after: Graph, before: Graph | None = None) -> Changes:
    return diff.compare(before or environment(), after)


def _names(changes: tuple[ResourceChange, ...]) -> list[str]:
    return [change.resource.name for change in changes]


def _of(changes: Changes, name: str) -> ResourceChange:
    [found] = [change for change in changes.items if change.resource.name == name]
    return found


def test_new_and_gone_resources_are_created_and_deleted() -> None:
    assert not _compare(environment())
    assert _names(_compare(environment(), before=without(environment(), "sts")).of("create")) == ["sts"]
    assert _names(_compare(without(environment(), "sts")).deleted) == ["sts"]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("trn1", {"releaseVersion": "1.35.0-20260801"}),
        ("trn1", {"launchTemplate": {"id": "sim-template", "version": "2"}}),
        ("trn1", {"taints": []}),
        ("lustre", {"storageCapacity": 4800}),
        ("lustre", {"perUnitStorageThroughput": 500}),
        ("control-plane", {"version": "1.36"}),
        ("cni", {"addonVersion": "v1.22.4"}),
        ("volcano-release", {"version": "1.15.1"}),
        ("queue-test", {"spec": {"capability": {"aws.amazon.com/neuron": 32}}}),
    ],
)
def test_what_can_change_in_place_is_updated(name: str, inputs: dict[str, object]) -> None:
    assert _of(_compare(changed(environment(), name, **inputs)), name).kind == "update"


def test_replacing_the_vpc_replaces_all_that_is_in_it() -> None:
    changes = _compare(changed(environment(), "vpc", cidrBlock="10.1.0.0/16"))
    assert {"vpc", "subnet", "lustre", "trn1", "system", "fsx-group"} <= set(_names(changes.replaced))
    assert _of(changes, "subnet").follows == urn("vpc", environment())
    assert "control-plane" not in _names(changes.replaced)


def test_replacing_the_cluster_replaces_everything_in_kubernetes() -> None:
    changes = _compare(changed(environment(), "control-plane", name="other"))
    assert {"k8s", "volcano-release", "queue-test", "cni", "trn1"} <= set(_names(changes.replaced))
    assert _of(changes, "queue-test").follows == urn("k8s", environment())


def test_a_changed_launch_template_rolls_its_group_and_no_other() -> None:
    changes = _compare(changed(environment(), "trn1-template", userData="bmV3"))
    assert set(_names(changes.items)) == {"trn1-template", "trn1"}
    assert _of(changes, "trn1").follows == urn("trn1-template", environment())
    assert _names(changes.rolled) == ["trn1"]
    rolls = {item["name"]: item["rollsNodes"] for item in changes.to_json()["items"]}
    assert rolls == {"trn1": True, "trn1-template": False}


def test_a_group_that_changes_by_itself_is_rolled_by_its_template_too() -> None:
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
def test_what_makes_no_new_version_of_a_template_rolls_nothing(inputs: dict[str, object]) -> None:
    changes = _compare(changed(environment(), "trn1-template", **inputs))
    assert _names(changes.items) == ["trn1-template"]
    group_too = _compare(changed(changed(environment(), "trn1-template", **inputs), "trn1", tags={"Team": "x"}))
    assert _of(group_too, "trn1").tags_only


def test_a_version_that_is_given_is_not_counted_twice() -> None:
    after = changed(environment(), "trn1-template", userData="bmV3")
    after = changed(after, "trn1", launchTemplate={"id": "sim-template", "version": "2"})
    [path] = _of(_compare(after), "trn1").paths
    assert (path.path, path.before, path.after) == ("launchTemplate.version", "1", "2")


@pytest.mark.parametrize(
    ("inputs", "rolls"),
    [
        ({"releaseVersion": "1.35.0-20260801"}, True),
        ({"version": "1.36"}, True),
        ({"launchTemplate": {"id": "sim-template", "version": "2"}}, True),
        ({"taints": []}, False),
        ({"tags": {"Team": "x"}}, False),
        ({"amiType": "x"}, False),
    ],
)
def test_only_what_eks_rolls_rolls(inputs: dict[str, object], rolls: bool) -> None:
    changes = _compare(changed(environment(), "trn1", **inputs))
    assert _names(changes.rolled) == (["trn1"] if rolls else [])


def test_rolling_running_nodes_is_dangerous_and_resting_ones_is_not() -> None:
    rolled = changed(environment(), "trn1", releaseVersion="1.35.0-20260801")
    assert _of(_compare(rolled), "trn1").stateful
    resting = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 4})
    changes = _compare(changed(resting, "trn1", releaseVersion="1.35.0-20260801"), before=resting)
    assert (_of(changes, "trn1").stateful, _names(changes.rolled)) == (False, ["trn1"])


def test_who_takes_a_new_id_in_place_is_updated() -> None:
    changes = _compare(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"))
    cluster = _of(changes, "control-plane")
    assert (cluster.kind, cluster.follows) == ("update", urn("subnet", environment()))
    [path] = cluster.paths
    assert (path.path, path.cause, path.replaces) == ("vpcConfig", urn("subnet", environment()), False)
    assert "trn1-template" not in _names(changes.items), "an updated cluster keeps its id"


def test_a_taken_id_is_found_inside_the_input() -> None:
    before = environment()
    with_id = replace(
        before,
        resources=tuple(
            replace(each, outputs={"id": "sim-subnet"}) if each.name == "subnet" else each for each in before.resources
        ),
    )
    changes = _compare(changed(with_id, "subnet", cidrBlock="10.0.64.0/18"), before=with_id)
    assert [path.path for path in _of(changes, "control-plane").paths] == ["vpcConfig.subnetIds"]


def test_a_template_that_takes_a_replaced_group_rolls_its_nodes() -> None:
    before = environment()
    before = replace(
        before,
        resources=tuple(
            replace(each, property_dependencies={"vpcSecurityGroupIds": (urn("fsx-group", before),)})
            if each.name == "trn1-template"
            else each
            for each in before.resources
        ),
    )
    changes = _compare(changed(before, "fsx-group", description="new"), before=before)
    assert _of(changes, "trn1-template").kind == "update"
    assert _names(changes.rolled) == ["trn1"]


def test_a_cluster_that_keeps_its_subnets_whatever_happens_is_not_refused() -> None:
    before = optioned(environment(), "control-plane", Options(ignore_changes=("vpcConfig",)))
    after = changed(changed(before, "vpc", cidrBlock="10.1.0.0/16"), "control-plane", version="1.36")
    assert not _of(_compare(after, before=before), "control-plane").refused


def test_a_cluster_cannot_move_to_another_vpc() -> None:
    changes = _compare(changed(environment(), "vpc", cidrBlock="10.1.0.0/16"))
    assert changes.items[0].resource.name == "control-plane"
    assert changes.items[0].refused.startswith("EKS cannot move a cluster to another VPC: ")
    assert [item["name"] for item in changes.to_json()["items"] if item["refused"]] == ["control-plane"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("1.35", "1.34", "never goes back from Kubernetes 1.35 to 1.34"),
        ("1.35", "1.9", "never goes back"),
        ("1.34", "1.36", "1.35 comes next"),
        ("1.9", "1.11", "1.10 comes next"),
        ("1.34", "1.35", ""),
        ("1.9", "1.10", ""),
        ("1.34", UNKNOWN, ""),
    ],
)
def test_a_control_plane_goes_up_one_minor_version_at_a_time(before: str, after: str, said: str) -> None:
    changes = _compare(
        changed(environment(), "control-plane", version=after),
        before=changed(environment(), "control-plane", version=before),
    )
    change = _of(changes, "control-plane")
    assert change.kind == "update"
    assert said in change.refused
    assert bool(change.refused) == bool(said)


@pytest.mark.parametrize(("before", "after"), [("a", "b"), (None, "a"), ("a", UNKNOWN)])
def test_a_control_plane_keeps_its_first_key(before: str | None, after: str) -> None:
    old, new = (
        changed(environment(), "control-plane", encryptionConfig={"provider": {"keyArn": key}} if key else None)
        for key in (before, after)
    )
    assert ("EKS keeps the key a" in _of(_compare(new, before=old), "control-plane").refused) == (after == "b")


@pytest.mark.parametrize(("before", "after", "refused"), [("1.35", "1.34", True), ("1.34", "1.36", False)])
def test_nodes_never_go_back_and_may_skip_a_version(before: str, after: str, refused: bool) -> None:
    changes = _compare(
        changed(environment(), "trn1", version=after), before=changed(environment(), "trn1", version=before)
    )
    assert bool(_of(changes, "trn1").refused) == refused


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("1.35.6-20260818", "1.35.1-20260312", True),
        ("1.35.1-20260312", "1.35.6-20260818", False),
        ("1.34.9-20260901", "1.35.6-20260818", False),
        ("1.35.6-20260818", UNKNOWN, False),
        (None, "1.35.1-20260312", False),
    ],
)
def test_nodes_never_go_back_to_an_older_ami(before: str | None, after: str, refused: bool) -> None:
    old = changed(environment(), "trn1", releaseVersion=before)
    change = _of(_compare(changed(environment(), "trn1", releaseVersion=after), before=old), "trn1")
    assert ("never goes back from AMI release" in change.refused) == refused


def _block(nodes: int, **inputs: object) -> Graph:
    sizes = {"minSize": 0, "desiredSize": nodes, "maxSize": 4}
    return changed(environment(), "trn1", capacityType="CAPACITY_BLOCK", scalingConfig=sizes, **inputs)


@pytest.mark.parametrize("field", ["version", "releaseVersion"])
def test_the_nodes_of_a_running_capacity_block_are_not_exchanged(field: str) -> None:
    before = _block(2, version="1.34", releaseVersion="1.34.1-20260101")
    change = _of(_compare(changed(before, "trn1", **{field: "1.35"}), before=before), "trn1")
    assert "only while it has none, and this one is to have 2" in change.refused
    assert "set desiredSize and minSize to 0" in change.refused


def test_a_capacity_block_takes_a_new_template_only_at_rest() -> None:
    shrinking = _of(_compare(changed(_block(0), "trn1-template", userData="other"), before=_block(2)), "trn1")
    assert (shrinking.rolls_nodes, bool(shrinking.refused)) == (True, True), "the size comes too late"
    for before in (_block(0), environment()):
        change = _of(_compare(changed(before, "trn1-template", userData="other"), before=before), "trn1")
        assert (change.rolls_nodes, change.refused) == (True, "")
    assert not _of(_compare(_block(0), before=_block(2)), "trn1").refused, "the size alone"


def test_a_cluster_cannot_move_to_a_vpc_made_elsewhere() -> None:
    after = changed(without(environment(), "vpc", "subnet"), "control-plane", vpcConfig={"subnetIds": ["subnet-1"]})
    assert _of(_compare(after), "control-plane").refused
    assert _of(_compare(environment(), before=after), "control-plane").refused


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("subnet", {"cidrBlock": "10.0.64.0/18"}),
        ("control-plane", {"version": "1.36"}),
        ("control-plane", {"vpcConfig": {"subnetIds": ["sim-subnet"], "endpointPublicAccess": False}}),
    ],
)
def test_a_cluster_that_stays_in_its_vpc_is_not_refused(name: str, inputs: dict[str, object]) -> None:
    changes = _compare(changed(environment(), name, **inputs))
    assert _of(changes, "control-plane").kind == "update"
    assert not any(change.refused for change in changes.items)


def test_a_type_of_which_nothing_is_known_may_be_replaced() -> None:
    def queue(delay: int) -> Graph:
        build = Builder()
        build.add("aws:sns/topic:Topic", "jobs", delaySeconds=delay)
        return build.graph()

    [change] = _compare(queue(1), before=queue(2)).items
    assert (change.kind, change.unjudged) == ("update", True)
    assert not _of(_compare(changed(environment(), "trn1", taints=[])), "trn1").unjudged


def test_a_new_cluster_in_a_new_vpc_is_not_refused() -> None:
    after = changed(changed(environment(), "vpc", cidrBlock="10.1.0.0/16"), "control-plane", name="other")
    assert not any(change.refused for change in _compare(after).items)


def test_lost_data_comes_first_replaced_before_deleted() -> None:
    after = without(changed(environment(), "lustre", deploymentType="SCRATCH_2", tags={"a": "b"}), "key")
    changes = _compare(changed(after, "queue-test", metadata={"name": "a"}))
    assert _names(changes.items)[:2] == ["lustre", "key"]
    assert [change.stateful for change in changes.items] == [True, True, False]


def test_of_two_losses_the_worse_comes_first() -> None:
    """`alogs` would come first by name."""
    build = Builder()
    for type_, name in (
        ("aws:cloudwatch/logGroup:LogGroup", "alogs"),
        ("aws:ec2/vpc:Vpc", "around"),
        ("kubernetes:core/v1:PersistentVolume", "volume"),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "zfiles"),
    ):
        build.add(type_, name)
    assert _names(_compare(Builder().graph(), before=build.graph()).items) == ["zfiles", "volume", "alogs", "around"]


def test_loss_is_judged_by_what_stands_today() -> None:
    """Scaling to zero and replacing in one change still takes the running nodes away."""
    sizes = {"minSize": 0, "desiredSize": 0, "maxSize": 4}
    change = _of(_compare(changed(environment(), "trn1", amiType="x", scalingConfig=sizes)), "trn1")
    # ``stateful`` is true by the smaller size alone.
    assert (change.kind, change.lost) == ("replace", "what runs on its nodes")


def test_protect_blocks_a_replacement() -> None:
    assert _of(_compare(changed(environment(), "lustre", deploymentType="SCRATCH_2")), "lustre").blocked
    assert not _of(_compare(changed(environment(), "subnet", cidrBlock="10.0.64.0/18")), "subnet").blocked


def test_a_guard_that_is_taken_off_is_told_first_and_in_json() -> None:
    """Without it `destroy` deletes the data, and no input says so."""
    before = optioned(environment(), "lustre", Options(retain_on_delete=True, custom_timeouts={"create": "1h"}))
    changes = _compare(optioned(environment(), "lustre", Options()), before=before)
    assert [option.option for option in changes.options] == ["retainOnDelete", "customTimeouts"]
    assert [option["weakens"] for option in changes.to_json()["options"]] == [True, False]
    [option] = _compare(optioned(environment(), "lustre", Options())).options
    assert (option.option, option.before, option.after, option.weakens) == ("protect", True, False, True)
    [option] = _compare(optioned(environment(), "lustre", Options(protect=True, retain_on_delete=True))).options
    assert (option.option, option.weakens) == ("retainOnDelete", False)


def test_tags_alone_are_known_as_such() -> None:
    assert _of(_compare(changed(environment(), "vpc", tags={"Name": "net", "Owner": "x"})), "vpc").tags_only
    both = changed(environment(), "vpc", tags={"Name": "other"}, enableDnsSupport=True)
    assert not _of(_compare(both), "vpc").tags_only


def _tagged(owner: str, **tags: str) -> Graph:
    """A VPC, whose own tag wins over the provider's, and an alias, which takes no tags."""
    build = Builder()
    defaults = json.dumps({"tags": {"Owner": owner, "Team": "a"}})
    build.add("pulumi:providers:aws", "aws", region="us-west-2", defaultTags=defaults)
    build.add("aws:ec2/vpc:Vpc", "vpc", provider="aws", cidrBlock="10.0.0.0/16", tags={"Team": "b", **tags})
    build.add("aws:ec2/eip:Eip", "address", provider="aws", domain="vpc")
    build.add("aws:kms/alias:Alias", "alias", provider="aws")
    return build.graph()


def test_a_default_tag_changes_every_resource_that_takes_tags() -> None:
    """As the AWS provider does, which compares `tagsAll` (pulumi-aws#2585)."""
    changes = _compare(_tagged("you"), before=_tagged("me"))
    assert {change.resource.name: [path.path for path in change.paths] for change in changes.items} == {
        "aws": ["defaultTags"],
        "address": ["tagsAll.Owner"],
        "vpc": ["tagsAll.Owner"],
    }
    assert all(change.tags_only for change in changes.items)
    both = _of(_compare(_tagged("you", Name="net"), before=_tagged("me")), "vpc")
    assert [path.path for path in both.paths] == ["tags.Name", "tagsAll.Owner"]
    assert _names(_compare(_tagged("you", Owner="mine"), before=_tagged("me", Owner="mine")).items) == [
        "address",
        "aws",
    ]


@pytest.mark.parametrize("given", ["[unknown]", {"tags": "[unknown]"}])
def test_default_tags_that_are_not_known_yet_change_what_takes_tags(given: object) -> None:
    changes = _compare(changed(_tagged("me"), "aws", defaultTags=given), before=_tagged("me"))
    assert [(path.path, path.after) for path in _of(changes, "vpc").paths] == [("tagsAll", "[unknown]")]
    assert "alias" not in _names(changes.items)


def test_replace_on_changes_replaces() -> None:
    before = optioned(environment(), "cni", Options(replace_on_changes=("addonVersion",)))
    assert _of(_compare(changed(before, "cni", addonVersion="v2"), before=before), "cni").kind == "replace"


def test_components_are_no_resources_of_the_account() -> None:
    after = replace(
        environment(), resources=tuple(each for each in environment().resources if each.name != "fsx" and each.custom)
    )
    assert "fsx" not in _names(_compare(after).items)


def test_other_changes_are_grouped_by_component() -> None:
    after = changed(
        changed(changed(environment(), "sts", policy="{}"), "cni", addonVersion="v2"), "nat", tags={"a": "b"}
    )
    assert [change.component for change in _compare(after).items] == ["eks", "net", "net"]


def test_an_alias_makes_a_new_name_the_old_resource() -> None:
    before = environment()
    old = urn("sts", before)
    renamed = replace(
        before,
        resources=tuple(
            replace(each, urn=f"{old}-2", name="sts-2", options=Options(aliases=(old,))) if each.urn == old else each
            for each in before.resources
        ),
    )
    assert not diff.compare(before, renamed).items
    bare = replace(
        before,
        resources=tuple(
            replace(each, urn=f"{old}-2", name="sts-2") if each.urn == old else each for each in before.resources
        ),
    )
    assert {change.kind for change in diff.compare(before, bare).items} == {"create", "delete"}


def test_json_says_the_same() -> None:
    data = _compare(changed(environment(), "lustre", deploymentType="SCRATCH_2")).to_json()
    [item] = data["items"]
    found = (item["kind"], item["stateful"], item["blockedByProtect"], item["rollsNodes"])
    assert found == ("replace", True, True, False)
    assert item["paths"] == [
        {"path": "deploymentType", "before": "PERSISTENT_2", "after": "SCRATCH_2", "replaces": True, "cause": ""}
    ]
