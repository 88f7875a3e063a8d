"""What Karpenter may buy on the local cloud, and node pools as they are made there."""

from typing import Any

from trainium_eks.local.releases.karpenter import localised
from trainium_eks.local.releases.karpenter_types import instance_types
from trainium_eks.model.catalogue.instances import CATALOGUE


def _offered(*zone_ids: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in instance_types(CATALOGUE, "us-west-2", zone_ids)}


def _values(offering: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["values"][0] for each in offering["Requirements"]}


def test_offerings_carry_the_labels_that_node_pools_choose_by() -> None:
    [offering, *_] = _offered("usw2-az4")["trn1n.32xlarge"]["offerings"]
    labels = _values(offering)
    wanted = {
        "karpenter.k8s.aws/instance-category": "trn",
        "karpenter.k8s.aws/instance-family": "trn1n",
        "karpenter.k8s.aws/instance-generation": "1",
        "karpenter.k8s.aws/instance-size": "32xlarge",
        "karpenter.k8s.aws/instance-cpu": "128",
        "karpenter.k8s.aws/instance-memory": str(512 * 1024),
        "topology.kubernetes.io/zone": "us-west-2d",
        "topology.kubernetes.io/region": "us-west-2",
    }
    assert labels.items() >= wanted.items()
    assert offering["Price"] == CATALOGUE["trn1n.32xlarge"].hourly_usd


def _pool(group: str, kind: str) -> dict[str, Any]:
    reference = {"group": group, "kind": kind, "name": "cpu"}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}, "limits": {"cpu": "64"}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "cpu"}, "spec": spec}


def test_a_node_pool_of_ec2_is_one_of_simulated_nodes_and_all_else_is_made_as_it_is() -> None:
    pool = _pool("karpenter.k8s.aws", "EC2NodeClass")
    assert localised(pool) == _pool("karpenter.kwok.sh", "KWOKNodeClass")
    assert pool == _pool("karpenter.k8s.aws", "EC2NodeClass")
    for manifest in (
        _pool("karpenter.kwok.sh", "KWOKNodeClass"),
        {**pool, "apiVersion": "example.org/v1"},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
    ):
        assert localised(manifest) is manifest
