"""TrainiumCluster under Pulumi's mocks: an example to copy for your own stack.

pulumi_eks builds the control plane in a separate process, which mocks do not reach: its outputs are placeholders here.
"""

import json
from typing import Any

import pulumi
import pytest
from mocks import Mocks

from trainium_eks import TrainiumCluster

SUBNETS = {"usw2-az4": "subnet-0123456789abcdef0", "usw2-az1": "subnet-0123456789abcdef1"}
ARGS: dict[str, Any] = {
    "region": "us-west-2",
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_ids_by_zone": SUBNETS,
    "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]},
    "node_groups": [{"name": "trn1", "instance_type": "trn1.32xlarge", "max_size": 4, "desired_size": 2}],
}


@pytest.fixture
def mocks():
    with Mocks.set() as mocks:
        yield mocks


def test_gangs_share_one_zone_and_a_placement_group(mocks):
    @pulumi.runtime.test  # returns when everything is registered
    def program():
        TrainiumCluster("ml", ARGS)  # type: ignore[arg-type]

    program()
    [group] = [each for name, each in mocks.of_type("aws:eks/nodeGroup:NodeGroup").items() if "trn1" in name]
    assert group["subnetIds"] == [SUBNETS["usw2-az4"]]
    assert group["scalingConfig"] == {"desiredSize": 2, "maxSize": 4, "minSize": 0}
    [placement] = mocks.of_type("aws:ec2/placementGroup:PlacementGroup").values()
    assert placement["strategy"] == "cluster"


@pulumi.runtime.test
def test_the_kubeconfig_holds_no_credential(mocks):
    cluster = TrainiumCluster("ml", ARGS)  # type: ignore[arg-type]

    def check(kubeconfig):
        [user] = json.loads(kubeconfig)["users"]
        assert list(user["user"]) == ["exec"]
        assert user["user"]["exec"]["command"] == "aws"

    return cluster.kubeconfig.apply(check)
