"""`trainium_eks.testing`, as the users' own tests use it."""

import runpy
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from mocks import Mocks

from components import FsxLustre, ImageRepository, Network, VolcanoStack
from trainium_eks import testing

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.py"


def test_record_returns_the_registered_resources():
    def program():
        network = Network("net", {"region": "us-west-2", "zone_ids": ["usw2-az4", "usw2-az1"]})
        pulumi.export("vpcId", network.vpc_id)

    graph = testing.record(program)
    assert len(graph.of_type("aws:ec2/subnet:Subnet")) == 4
    assert graph.outputs["vpcId"].startswith("vpc-sim-")
    assert testing.record(program, preview=True).outputs["vpcId"] == testing.UNKNOWN
    assert testing.record(program) == graph


def test_record_refuses_look_ups_without_assumptions():
    def program():
        pulumi.export("zones", aws.get_availability_zones().names)

    with pytest.raises(testing.RecordingError, match="look-ups are not allowed here"):
        testing.record(program)
    assert len(testing.record(program, assumptions=testing.Assumptions()).outputs["zones"]) == 3


def test_record_passes_config_and_lists_unsimulated_resources():
    def program():
        pulumi.export("arn", aws.sns.Topic("t").arn)
        pulumi.export("size", pulumi.Config().require("size"))

    graph = testing.record(program, config={"size": "3"})
    assert [each.name for each in graph.not_simulated] == ["t"]
    assert graph.outputs == {"arn": testing.UNKNOWN, "size": "3"}


def test_mocks_answer_like_the_simulation_and_name_unknown_calls():
    seen: list[str] = []

    @pulumi.runtime.test
    def check():
        provider = pulumi.ResourceOptions(provider=aws.Provider("p", region="eu-north-1"))
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=provider)
        queue = aws.sns.Topic("q", name="jobs")
        account = aws.get_caller_identity().account_id
        return pulumi.Output.all(vpc.arn, aws.kms.Key("k").arn, queue.name, account).apply(seen.extend)

    with Mocks.set(testing.Mocks(region="eu-west-1")):
        check()
    vpc, key, name, account = seen
    assert vpc.startswith("arn:aws:ec2:eu-north-1:000000000000:vpc/vpc-sim-")
    assert key.startswith("arn:aws:kms:eu-west-1:000000000000:key/")
    assert (name, account) == ("jobs", "000000000000")
    with pytest.raises(testing.SimulationError, match=r"override Mocks\.call"):
        testing.Mocks().call(pulumi.runtime.MockCallArgs("acme:index:getIt", {}, ""))


@pytest.mark.parametrize("mocks", [Mocks, testing.Mocks], ids=["simple", "simulation"])
def test_components_work_with_mocks(mocks):
    known: list[Any] = []

    @pulumi.runtime.test
    def check():
        made = runpy.run_path(str(EXAMPLE))
        key, cluster, place = made["key"], made["cluster"], {"region": "us-west-2", "kms_key_arn": made["key"].key_arn}
        images = ImageRepository("images", place)
        subnet = {"vpc_id": made["network"].vpc_id, "subnet_id": made["network"].private_subnet_id("usw2-az4")}
        store = {"durability": {"type": "s3"}, "client_security_group_ids": {"c": cluster.cluster_security_group_id}}
        lustre = FsxLustre("fs", {**place, **subnet, **store, "storage_capacity_gib": 1200})
        inside = pulumi.ResourceOptions(providers=[cluster.provider])
        volcano = VolcanoStack("v", {"queues": [{"name": "q"}], "pool": {}, "rests_at_zero": True}, inside)
        named = (key.key_id, images.urn, lustre.mount_name, lustre.bucket_name, volcano.queue_names)
        return pulumi.Output.all(*named, cluster.cluster_name, cluster.kubeconfig).apply(known.extend)

    with Mocks.set(mocks()):
        check()
    assert len(known) == 7
    assert None not in known
    assert known[-2] == "ml-mocked"
    assert "https://mocked.invalid" in known[-1]
