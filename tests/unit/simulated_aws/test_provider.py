"""The provider protocol, over a real channel."""

import json
import re

import grpc
import pytest
from engine.client import InvalidInputsError, urn
from engine.simulated_aws.inventory import Inventory, InventoryError, Thing
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2

from trainium_eks.plan.graph import UNKNOWN
from trainium_eks.plan.recording import wire

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:eks/nodeGroup:NodeGroup"
CLUSTER = "aws:eks/cluster:Cluster"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

PROPERTY = provider_pb2.PropertyDiff


CLUSTER_INPUTS = {"name": "c", "roleArn": "r", "vpcConfig": {"subnetIds": ["s"]}}


def kubeconfig(server):
    clusters = [{"name": "c", "cluster": {"server": server}}]
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    return json.dumps({"clusters": clusters, "contexts": contexts, "current-context": "x"})


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_check_fills_in_defaults_of_pulumi_aws(clouds):
    """As pulumi-aws: its region, the default tags, a name, and what Terraform's schema says of the rest."""
    aws = clouds.provider(region="us-west-2", defaultTags=json.dumps({"tags": {"Owner": "me"}}))
    inputs = {"assumeRolePolicy": "{}", "tags": {"Name": "x"}}
    found = aws.check("aws:iam/role:Role", inputs)
    assert re.fullmatch(r"it-[0-9a-f]{7}", found.pop("name"))
    assert found == {
        **inputs,
        "maxSessionDuration": 3600,
        "path": "/",
        "tagsAll": {"Owner": "me", "Name": "x"},
        "__defaults": ["maxSessionDuration", "name", "path"],
    }
    assert aws.check(VPC, {"tags": {"a": UNKNOWN}})["tagsAll"] == UNKNOWN
    assert aws.check(CLUSTER, {"name": "c", "vpcConfig": {"subnetIds": []}})["vpcConfig"]["endpointPublicAccess"]
    with pytest.raises(InvalidInputsError) as error:
        aws.check(GROUP, {"scalingConfig": {"desiredsize": 1}})
    ((path, reason),) = error.value.args[0]
    assert (path, "desiredSize" in reason) == ("scalingConfig.desiredsize", True)


def test_generated_name_is_kept_until_replacement(clouds):
    aws = clouds.provider(region="us-west-2")
    first = aws.check(GROUP, {"clusterName": "c"})
    assert first["nodeGroupName"] == aws.check(GROUP, {"clusterName": "c"})["nodeGroupName"]
    later = aws.check(GROUP, {"clusterName": "c", "version": "1.36"}, before=first, seed=b"2")
    assert later["nodeGroupName"] == first["nodeGroupName"]
    assert aws.check(GROUP, {"clusterName": "c"}, seed=b"2")["nodeGroupName"] != first["nodeGroupName"]
    assert aws.check(GROUP, {"clusterName": "c"}, before={"nodeGroupName": "given"})["nodeGroupName"] != "given"
    for given in ({"nodeGroupName": "n"}, {"nodeGroupNamePrefix": "n-"}):
        assert aws.check(GROUP, given) == {**given, "region": "us-west-2", "tagsAll": {}, "__defaults": []}
    object_ = clouds.provider("kubernetes").check(CONFIG_MAP, {"metadata": {"labels": {"a": "b"}}})
    assert object_["metadata"]["name"].startswith("it-")


def test_each_changed_property_is_named(clouds):
    before = {"scalingConfig": {"desiredSize": 1, "maxSize": 2}, "labels": {"a/b": "1", "old": "x"}}
    after = {"scalingConfig": {"desiredSize": 2, "maxSize": 2}, "labels": {"a/b": "2"}, "version": "1.35"}
    aws = clouds.provider()
    answer = aws.diff(GROUP, before, after)
    assert {path: change.kind for path, change in answer.detailedDiff.items()} == {
        "scalingConfig.desiredSize": PROPERTY.UPDATE,
        'labels["a/b"]': PROPERTY.UPDATE,
        "labels.old": PROPERTY.DELETE,
        "version": PROPERTY.ADD,
    }
    assert list(answer.diffs) == ["labels", "scalingConfig", "version"]
    assert list(answer.replaces) == []
    answer = aws.diff(GROUP, {"instanceTypes": ["a"]}, {"instanceTypes": ["b"]})
    assert list(answer.replaces) == ["instanceTypes"]
    assert answer.detailedDiff["instanceTypes[0]"].kind == PROPERTY.UPDATE_REPLACE


def test_changed_default_tag_changes_taggable_resources(clouds):
    before, after = (
        clouds.provider(region="us-west-2", defaultTags=json.dumps({"tags": {"Owner": owner, "Team": "a"}}))
        for owner in ("me", "you")
    )
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"Team": "b"}}
    stands, to_be = before.check(VPC, inputs), after.check(VPC, inputs)
    assert list(after.diff(VPC, stands, to_be).detailedDiff) == ["tagsAll.Owner"]
    assert not after.diff(VPC, stands, to_be, ignore_changes=("tagsAll",)).diffs
    assert "tagsAll" not in after.check("aws:kms/alias:Alias", {"name": "alias/a"})


def test_given_name_is_freed_before_reuse(clouds):
    aws, kubernetes = clouds.provider(), clouds.provider("kubernetes")
    stands = aws.check(GROUP, {"amiType": "a"})
    changes = {
        "given": aws.diff(GROUP, {"nodeGroupName": "n", "amiType": "a"}, {"nodeGroupName": "n", "amiType": "b"}),
        "made up": aws.diff(GROUP, stands, aws.check(GROUP, {"amiType": "b"}, before=stands)),
        "renamed": aws.diff(GROUP, {"nodeGroupName": "n"}, {"nodeGroupName": "m"}),
        "in place": aws.diff(GROUP, {"nodeGroupName": "n", "version": "1"}, {"nodeGroupName": "n", "version": "2"}),
        "an object": kubernetes.diff(CONFIG_MAP, config_map("a", x="1"), config_map("a", x="2")),
        "a renamed object": kubernetes.diff(CONFIG_MAP, config_map("a"), config_map("b")),
    }
    assert {what for what, each in changes.items() if each.deleteBeforeReplace} == {"given", "an object"}


def test_a_preview_makes_nothing_and_knows_the_inputs(clouds, state):
    answer = clouds.provider().create(VPC, {"cidrBlock": "10.0.0.0/16"}, preview=True)
    outputs = wire.decode(answer.properties, mask=False)
    assert (answer.id, outputs["cidrBlock"], outputs["arn"]) == ("", "10.0.0.0/16", UNKNOWN)
    assert json.loads(state.read_text())["things"] == []


def test_recreated_resource_has_another_id(clouds):
    aws = clouds.provider()
    made = [aws.made(VPC, {"cidrBlock": f"10.{number}.0.0/16"}) for number in range(2)]
    aws.delete(VPC, made[0][0])
    made.append(aws.made(VPC, {"cidrBlock": "10.2.0.0/16"}))
    assert len({identity for identity, _ in made}) == len({outputs["arn"] for _, outputs in made}) == 3


def test_name_in_use_is_refused(clouds, state):
    aws, inputs = clouds.provider(), {"bucket": "ours"}
    aws.made("aws:s3/bucket:Bucket", inputs, "one")
    with pytest.raises(grpc.RpcError, match="ours already exists"):
        aws.made("aws:s3/bucket:Bucket", inputs, "two")
    assert len(json.loads(state.read_text())["things"]) == 1


def test_secret_is_kept_secret_and_not_stored(clouds, state):
    type_, kubernetes = "kubernetes:core/v1:Secret", clouds.provider("kubernetes")
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "hunter2-long"}}
    answer = kubernetes.create(type_, inputs, secret=frozenset({"stringData"}))
    assert wire.secret_keys(answer.properties) == {"stringData"}
    assert wire.decode(answer.properties, mask=False)["stringData"] == {"key": "hunter2-long"}
    assert "hunter2" not in state.read_text()
    known = {"properties": answer.properties, "inputs": answer.properties}
    again = kubernetes.stub.Read(provider_pb2.ReadRequest(id=answer.id, urn=urn(type_, "it"), **known))
    assert again.properties == answer.properties
    assert again.inputs.fields["stringData"] == answer.properties.fields["stringData"]
    imported = kubernetes.read(type_, answer.id)
    assert "stringData" not in imported.properties.fields


def test_update_keeps_computed_outputs(clouds, state):
    aws = clouds.provider()
    before = {"cidrBlock": "10.0.0.0/16"}
    aws.made(VPC, before)
    aws.made(VPC, before)
    identity, outputs = aws.made(VPC, before)  # whose ids are not those of the first of this name
    after = {**before, "tags": {"a": "b"}}
    planned = aws.update(VPC, identity, before, after, preview=True)
    assert aws.read(VPC, identity).inputs == wire.encode(before)
    updated = aws.update(VPC, identity, before, after)
    assert planned == updated == {**outputs, "tags": {"a": "b"}, "tagsAll": {"a": "b"}}
    assert wire.decode(aws.read(VPC, identity).properties, mask=False) == updated


def test_preview_of_an_update_leaves_derived_outputs_unknown(clouds):
    aws = clouds.provider()
    before = {**CLUSTER_INPUTS, "tags": {"a": "b"}}
    identity, outputs = aws.made(CLUSTER, before)
    after = {**before, "vpcConfig": {"subnetIds": [UNKNOWN]}, "tags": {"a": UNKNOWN}}
    planned = aws.update(CLUSTER, identity, before, after, preview=True)
    assert planned["vpcConfig"] == {**outputs["vpcConfig"], "subnetIds": [UNKNOWN]}
    assert planned["tagsAll"] == {"a": UNKNOWN}
    assert planned["endpoint"] == outputs["endpoint"]
    alias, before = "aws:kms/alias:Alias", {"name": "alias/a", "targetKeyId": "k"}
    identity, outputs = aws.made(alias, before)
    planned = aws.update(alias, identity, before, {**before, "targetKeyId": UNKNOWN}, preview=True)
    assert (planned["targetKeyArn"], planned["arn"]) == (UNKNOWN, outputs["arn"])


def test_changed_cluster_previews_with_an_unknown_endpoint(serve):
    with serve(forgetful=True) as clouds:
        aws = clouds.provider()
        identity, outputs = aws.made(CLUSTER, CLUSTER_INPUTS)
        after = {**CLUSTER_INPUTS, "version": "1.36"}
        planned = aws.update(CLUSTER, identity, CLUSTER_INPUTS, after, preview=True)
        assert (planned["endpoint"], planned["certificateAuthority"]) == (UNKNOWN, UNKNOWN)
        assert planned["arn"] == outputs["arn"]
        assert aws.update(CLUSTER, identity, CLUSTER_INPUTS, after)["endpoint"] == outputs["endpoint"]


@pytest.mark.parametrize(("switch", "default"), [({"updateDefaultVersion": True}, 2), ({}, 1)])
def test_launch_template_gets_a_new_version_unless_only_tags_change(clouds, switch, default):
    """Which becomes the default only where that is asked for."""
    aws = clouds.provider()
    first = {"ebsOptimized": "true", **switch}
    identity, outputs = aws.made(TEMPLATE, first)
    assert (outputs["latestVersion"], outputs["defaultVersion"]) == (1, 1)
    tagged = {**first, "tags": {"a": "b"}}
    assert aws.update(TEMPLATE, identity, first, tagged)["latestVersion"] == 1
    second = {**tagged, "ebsOptimized": "false"}
    planned = aws.update(TEMPLATE, identity, tagged, second, preview=True)
    assert (planned["latestVersion"], planned["defaultVersion"]) == (UNKNOWN, UNKNOWN if switch else 1)
    updated = aws.update(TEMPLATE, identity, tagged, second)
    assert (updated["latestVersion"], updated["defaultVersion"]) == (2, default)


def test_used_or_protected_resource_cannot_be_deleted(clouds):
    aws = clouds.provider()
    vpc, _ = aws.made(VPC, {"cidrBlock": "10.0.0.0/16"})
    subnet, _ = aws.made(SUBNET, {"vpcId": vpc, "cidrBlock": "10.0.0.0/24", "availabilityZoneId": "usw2-az1"})
    with pytest.raises(grpc.RpcError, match=f"DependencyViolation.*{subnet}"):
        aws.delete(VPC, vpc)
    aws.delete(SUBNET, subnet)
    aws.delete(VPC, vpc)
    aws = clouds.provider()
    inputs = {**CLUSTER_INPUTS, "deletionProtection": True}
    identity, _ = aws.made(CLUSTER, inputs)
    with pytest.raises(grpc.RpcError, match="deletion protection"):
        aws.delete(CLUSTER, identity)
    aws.update(CLUSTER, identity, inputs, {**inputs, "deletionProtection": False})
    aws.delete(CLUSTER, identity)


def test_a_cluster_is_deleted_with_its_objects_but_not_before_its_nodes(clouds, state):
    aws = clouds.provider()
    identity, outputs = aws.made(CLUSTER, CLUSTER_INPUTS)
    group, _ = aws.made(GROUP, {"clusterName": identity, "nodeGroupName": "n"})
    inside = clouds.provider("kubernetes", kubeconfig=kubeconfig(outputs["endpoint"]))
    elsewhere = clouds.provider("kubernetes", kubeconfig=kubeconfig("https://elsewhere"))
    inside.made(CONFIG_MAP, config_map("a"), "inside")
    elsewhere.made(CONFIG_MAP, config_map("a"), "elsewhere")
    addon, _ = aws.made("aws:eks/addon:Addon", {"clusterName": identity, "addonName": "coredns"})
    with pytest.raises(grpc.RpcError, match="Cluster has nodegroups attached"):
        aws.delete(CLUSTER, identity)
    aws.delete(GROUP, group)
    aws.delete(CLUSTER, identity)  # an add-on blocks nothing
    aws.delete("aws:eks/addon:Addon", addon)
    (left,) = json.loads(state.read_text())["things"]
    assert left["urn"] == urn(CONFIG_MAP, "elsewhere")


def test_the_first_creation_of_a_failing_type_fails_once(serve, state):
    inputs = {"cidrBlock": "10.0.0.0/16"}
    with serve(failing=VPC) as clouds:
        aws = clouds.provider()
        aws.create(VPC, inputs, preview=True)
        aws.made("aws:s3/bucket:Bucket", {"bucket": "other"})
        with pytest.raises(grpc.RpcError, match="ThrottlingException: Rate exceeded"):
            aws.made(VPC, inputs)
        assert [thing["id"] for thing in json.loads(state.read_text())["things"]] == ["other"]
    with serve(failing=VPC) as clouds:
        identity, _ = clouds.provider().made(VPC, inputs)
    assert "#" not in json.loads(state.read_text())["things"][0]["made_as"]
    assert rpc.UNKNOWN != identity != ""


THING = Thing(VPC, "vpc-1", "", "urn:one", "urn:one", {"cidrBlock": "10.0.0.0/16"}, {"arn": "a"})


def test_inventory_is_complete_after_reopening_and_refused_while_in_use(state):
    with Inventory(state) as inventory:
        inventory.add(THING)
        assert inventory.fails_first(VPC)
        name = inventory.next_name("urn:one")
        with pytest.raises(InventoryError, match="in use"):
            Inventory(state)
    with Inventory(state) as inventory:
        assert inventory.things() == (THING,)
        assert inventory.find(THING.type, "vpc-1", "") == THING
        assert not inventory.fails_first(VPC)
        assert inventory.next_name("urn:one") == name == "urn:one#2"
