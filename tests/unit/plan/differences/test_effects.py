"""Effects of changes that a reviewer must see, refusals by EKS, and inputs that keep their values."""

import json
from dataclasses import replace

import pytest
from hand_built import Builder, changed, environment

from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import Options, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.resource_type import Concern

UNKNOWN_TYPES = ("acme:index/thing:Thing", "kubernetes:example.com/v1:Widget")


def _built(token, options=Options(), **inputs):  # noqa: B008 - frozen
    build = Builder()
    build.add("aws:iam/role:Role", "bystander")
    if inputs:
        build.add(token, "it", options=options, **inputs)
    return build.graph()


def _change(before, after, name="it"):
    [found] = [change for change in diff.compare(before, after).items if change.resource.name == name]
    return found


@pytest.mark.parametrize("token", [*registry.ROWS, *UNKNOWN_TYPES])
def test_unlisted_input_needs_a_review(token):
    change = _change(_built(token, someOtherInput=1), _built(token, someOtherInput=2))
    assert (change.harmless, [path.path for effect in change.effects for path in effect.paths]) == (
        False,
        ["someOtherInput"],
    )


@pytest.mark.parametrize("token", [*UNKNOWN_TYPES, "aws:ec2/internetGateway:InternetGateway"])
def test_new_resource_with_unlisted_inputs_needs_a_review(token):
    change = _change(_built(token), _built(token, someInput=1))
    assert (change.kind, change.harmless, len(change.effects)) == ("create", False, 1)
    assert not _change(_built(token, someInput=1), _built(token)).harmless


def test_whole_object_change_is_understood_only_in_all_its_parts():
    token = "aws:eks/nodeGroup:NodeGroup"
    sizes = {"minSize": 0, "desiredSize": 1, "maxSize": 2}
    assert _change(_built(token, a=1), _built(token, a=1, scalingConfig=sizes)).harmless
    assert not _change(_built(token, a=1), _built(token, a=1, scalingConfig={**sizes, "other": 1})).harmless


@pytest.mark.parametrize(
    "value", ["[unknown]", 3, "text", [], {}, [{"a": []}], None, '{"Statement": [1]}', '{"rules": [{}]}']
)
def test_foreign_value_does_not_break_an_effect(value):
    def nested(path, given):
        first, _, rest = path.partition(".")
        return {first: nested(rest, given) if rest else given}

    for token, row in registry.ROWS.items():
        for each in row.understood:
            path = each.path if isinstance(each, Concern) else each
            before, after = (_built(token, x=1, **nested(path, given)) for given in ("before", value))
            assert diff.compare(before, after).items


def test_adoption_and_a_lost_or_emptied_export_are_reported():
    token = "aws:s3/bucket:Bucket"
    change = _change(_built(token), _built(token, Options(import_id="data"), bucket="data"))
    assert [effect.words for effect in change.effects] == ["takes over what is there already"]
    before = replace(environment(), outputs={"a": 1, "b": [2], "c": None})
    after = replace(environment(), outputs={"b": None, "d": 1})
    assert [(path.path, path.before) for path in diff.compare(before, after).outputs] == [("a", 1), ("b", [2])]


def _in_zones(*zones):
    build = Builder()
    build.add("aws:ec2/vpc:Vpc", "vpc")
    for zone in zones:
        build.add("aws:ec2/subnet:Subnet", zone, uses={"vpcId": ("vpc",)}, availabilityZoneId=zone)
    ids = {"subnetIds": [f"subnet-{zone}" for zone in zones]}
    build.add("aws:eks/cluster:Cluster", "it", uses={"vpcConfig": zones}, vpcConfig=ids, version="1.35")
    return build.graph()


def _in_subnets(**zones):
    subnets = [{"id": name, "zoneId": zone} for name, zone in zones.items()]
    build = Builder()
    build.add("aws:eks/cluster:Cluster", "it", vpcConfig={"subnetIds": list(zones)}, version="1.35")
    return build.graph({"existingNetwork": {"privateSubnets": subnets}})


def test_cluster_refuses_a_subnet_in_a_new_zone():
    refused = _change(_in_zones("a", "b"), _in_zones("a", "b", "c")).refused
    assert "in the zones that the cluster was made in, a, b, and not in c" in refused
    assert not _change(_in_zones("a", "b", "c"), _in_zones("a", "b")).refused
    assert _change(_in_subnets(one="a", two="b"), _in_subnets(one="a", three="c")).refused
    assert not _change(_in_subnets(one="a", two="b"), _in_subnets(one="a", three="b")).refused


def test_a_new_group_has_the_version_of_its_cluster():
    def groups(*versions):
        build = Builder()
        build.add("aws:eks/cluster:Cluster", "control-plane", version="1.35")
        for version in versions:
            uses = {"clusterName": ("control-plane",)}
            build.add("aws:eks/nodeGroup:NodeGroup", version, uses=uses, version=version)
        return build.graph()

    refused = _change(groups("1.35"), groups("1.35", "1.34"), "1.34").refused
    assert "its cluster alone, 1.35, and not with 1.34" in refused
    assert not _change(groups("1.34"), groups("1.34", "1.35"), "1.35").refused
    after = changed(groups("1.34"), "1.34", labels={"a": "b"})
    assert not _change(groups("1.34"), after, "1.34").refused, "a standing group keeps its version"


def test_resource_made_from_a_surviving_name_is_unchanged():
    """The engine sees the same text in a preview: the name is the program's own."""
    graph = environment()
    [cluster] = [each for each in graph.resources if each.name == "control-plane"]
    arn = "arn:aws:eks:us-west-2:0:cluster/dev"
    policies = [
        Resource(
            f"{cluster.urn}-{name}",
            "aws:iam/rolePolicy:RolePolicy",
            name,
            inputs={"role": "r", "policy": json.dumps({"Resource": text})},
            property_dependencies={"policy": (cluster.urn,)},
        )
        for name, text in (("of-name", "arn:aws:eks:us-west-2:*:nodegroup/dev/*"), ("of-arn", arn))
    ]
    outputs = {"id": "dev", "arn": arn, "region": "us-west-2", "status": "ACTIVE"}
    kept = [replace(each, outputs=outputs) if each is cluster else each for each in graph.resources]
    before = replace(graph, resources=(*kept, *policies))
    found = diff.compare(before, changed(before, "control-plane", roleArn="other")).of("update")
    assert [change.resource.name for change in found] == ["of-arn"]
    renamed = diff.compare(before, changed(before, "control-plane", name="other")).of("update")
    assert {"of-arn", "of-name"} <= {change.resource.name for change in renamed}
