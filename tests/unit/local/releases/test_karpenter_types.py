"""What Karpenter may buy on the local cloud, and node pools as they are made there."""

from typing import Any

import pytest

from trainium_eks.local.releases.karpenter import localised
from trainium_eks.local.releases.karpenter_types import instance_types
from trainium_eks.model.catalogue.instances import CATALOGUE


def _offered(*zone_ids: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in instance_types(CATALOGUE, "us-west-2", zone_ids)}


def _values(offering: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["values"][0] for each in offering["Requirements"]}


@pytest.mark.parametrize("name", ["trn1.32xlarge", "p5.48xlarge", "m7i.xlarge"])
def test_a_node_has_what_the_catalogue_says_once_the_provider_took_its_share(name: str) -> None:
    resources = _offered()[name]["resources"]
    wanted = CATALOGUE.allocatable(name)
    assert int(resources["cpu"].removesuffix("m")) - 100 == int(wanted["cpu"].removesuffix("m"))
    assert int(resources["memory"].removesuffix("Mi")) - 10 == CATALOGUE[name].allocatable_memory_mib
    rest = {key: value for key, value in resources.items() if key not in ("cpu", "memory", "ephemeral-storage")}
    assert rest == {key: value for key, value in wanted.items() if key not in ("cpu", "memory", "hugepages-2Mi")}


def test_a_type_with_a_price_is_offered_in_the_zones_of_the_stack_that_have_it() -> None:
    def zones_of(*zone_ids: str) -> set[str]:
        return {_values(each)["topology.k8s.aws/zone-id"] for each in _offered(*zone_ids)["trn1.32xlarge"]["offerings"]}

    zones = CATALOGUE.offered("trn1.32xlarge", "us-west-2")
    assert (zones_of(), zones_of(zones[0])) == (set(zones), {zones[0]})
    assert "trn1.32xlarge" not in _offered("usw2-az9")
    unpriced = {name for name, kind in CATALOGUE.items() if kind.hourly_usd is None}
    assert unpriced
    assert not unpriced & set(_offered())


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
