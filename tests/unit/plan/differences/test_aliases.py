"""Former URNs, as the engine reckons them."""

from dataclasses import replace

import pytest
from hand_built import PREFIX, STACK, Builder, urn

from trainium_eks.plan.differences import diff
from trainium_eks.plan.differences.aliases import former_urns
from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource

OUTER, INNER, BUCKET = "a:index:Outer", "a:index:Inner", "aws:s3/bucket:Bucket"


def nested(outer=(), inner=(), bucket=()):
    """A bucket in a component in a component, with URNs as the engine makes them."""
    above = f"{PREFIX}{OUTER}"
    urns = [STACK, f"{above}::top", f"{above}${INNER}::top-in", f"{above}${INNER}${BUCKET}::top-in-data"]
    types, aliases = (STACK_TYPE, OUTER, INNER, BUCKET), ((), outer, inner, bucket)
    resources = tuple(
        Resource(urn, type_, urn.rpartition("::")[2], parent=parent, options=Options(aliases=own))
        for urn, type_, parent, own in zip(urns, types, ["", *urns], aliases, strict=False)
    )
    return Graph("trainium-eks", "dev", resources, {})


def of_bucket(graph):
    return set(former_urns(graph, next(each for each in graph.resources if each.name == "top-in-data")))


@pytest.mark.parametrize(
    ("alias", "urn"),
    [
        (f"{PREFIX}{BUCKET}::b", f"{PREFIX}{BUCKET}::b"),
        ("name=old", f"{PREFIX}{OUTER}${INNER}${BUCKET}::old"),
        ("type=aws:s3/bucketV2:BucketV2", f"{PREFIX}{OUTER}${INNER}$aws:s3/bucketV2:BucketV2::top-in-data"),
        ("no-parent=true", f"{PREFIX}{BUCKET}::top-in-data"),
        (f"name=old parent={PREFIX}{OUTER}::top", f"{PREFIX}{OUTER}${BUCKET}::old"),
        ("stack=prod", f"urn:pulumi:prod::trainium-eks::{OUTER}${INNER}${BUCKET}::top-in-data"),
    ],
)
def test_omitted_part_of_an_alias_is_kept(alias, urn):
    assert of_bucket(nested(bucket=(alias,))) == {urn}


def test_alias_of_a_component_renames_its_children():
    assert of_bucket(nested(inner=("name=old",))) == {f"{PREFIX}{OUTER}${INNER}${BUCKET}::old-data"}
    assert of_bucket(nested(outer=("name=old",))) == {f"{PREFIX}{OUTER}${INNER}${BUCKET}::old-in-data"}
    assert of_bucket(nested(outer=("type=a:index:Was",))) == {f"{PREFIX}a:index:Was${INNER}${BUCKET}::top-in-data"}
    assert of_bucket(nested()) == set()


def test_resource_made_from_a_renamed_one_keeps_its_inputs():
    def made(name, address, *aliases):
        build = Builder()
        build.add("aws:fsx/lustreFileSystem:LustreFileSystem", name, options=Options(aliases=aliases))
        build.resources[-1] = replace(build.resources[-1], outputs={"id": f"fs-{address}", "dnsName": f"{address}.fsx"})
        attributes = {"csi": {"volumeHandle": f"fs-{address}", "volumeAttributes": {"dnsname": f"{address}.fsx"}}}
        build.add("kubernetes:core/v1:PersistentVolume", "volume", uses={"spec": (name,)}, spec=attributes)
        return build.graph()

    before = made("lustre", "sim-11111111")
    assert not diff.compare(before, made("store", "sim-22222222", "name=lustre"))
    assert not diff.compare(before, made("store", "sim-22222222", urn("lustre", before))).items
    kinds = {change.resource.name: change.kind for change in diff.compare(before, made("store", "sim-22222222")).items}
    assert kinds == {"lustre": "delete", "store": "create", "volume": "replace"}
