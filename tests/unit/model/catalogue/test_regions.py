"""Regions against botocore's partitions and EC2's offerings (moto)."""

import itertools
import json
from pathlib import Path

import botocore
import botocore.session
import pytest
from unit.model.catalogue.test_instances import OFFERINGS
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over

from trainium_eks.model.catalogue import regions
from trainium_eks.model.catalogue.instances import CATALOGUE

PARTITIONS = ("aws", "aws-cn", "aws-us-gov")


def test_every_eks_region_is_known_with_ec2s_zone_prefix():
    session = botocore.session.get_session()
    with_eks = {region for partition in PARTITIONS for region in session.get_available_regions("eks", partition)}
    assert with_eks - set(regions.REGIONS) == set()
    for service, region in itertools.product(("amp", "budgets", "grafana"), regions.REGIONS):
        partition = session.get_partition_for_region(region)
        names = session.get_available_regions(service, partition, allow_non_regional=True)
        has = region in names or f"{partition}-global" in names
        assert regions.lacks(service, region) != has, (service, region)
    zones = {(region, zone) for kind in OFFERINGS.values() for region, found in kind.items() for zone in found}
    assert len(zones) > 80
    for region, zone in zones:
        assert zone.split("-")[0] == regions.region_zone_prefix(region)
        assert regions.zone_belongs(zone, region)
        assert not regions.zone_belongs(zone, "us-east-1" if region != "us-east-1" else "us-west-2")
    # What is no zone id belongs nowhere, and a zone of an unknown region is neither right nor wrong.
    for zone in ("us-west-2d", "usw2", "usw2-lax1-az1", "usw2-az", "", "usw2-az4 "):
        assert regions.zone_belongs(zone, "us-west-2") is regions.zone_belongs(zone, "xx-new-1") is False, zone
    assert regions.zone_belongs("xxn1-az1", "xx-new-1") is None
    assert regions.region_zone_prefix("xx-new-1") == ""


def test_partitions_equal_botocores():
    data = json.loads((Path(botocore.__file__).parent / "data" / "partitions.json").read_text())
    there = {each["id"]: each for each in data["partitions"]}
    for start, partition in regions.PARTITIONS.items():
        if partition.name in there:
            assert partition.dns_suffix == there[partition.name]["outputs"]["dnsSuffix"]
            assert all(each.startswith(start) or "global" in each for each in there[partition.name]["regions"])
    for each in there.values():
        for region in (name for name in each["regions"] if not name.endswith("global")):
            assert regions.partition(region) == each["id"]
            assert regions.dns_suffix(region) == each["outputs"]["dnsSuffix"]
            assert regions.may_be_new(region)
    for region in ("us-wset-2", "us-west", "us-west-22", "xx-west-2", "us-west-2\n", "us-moon-1", ""):
        assert not regions.may_be_new(region), region


def config_of(region, *zones):
    found = judged(laid_over(SOUND, {"region": region, "network": {"zoneIds": zones}}))
    return [(each.path, each.severity.value) for each in found if not each.path.startswith("node_groups")]


@pytest.mark.parametrize("region", ["us-iso-east-1", "eusc-de-east-1", "us-west-9"])
def test_unknown_region_is_accepted_with_its_zones(region):
    assert config_of(region, "new1-az1", "new1-az2") == [("region", "warn")]
    assert config_of(region)[0] == ("region", "refuse")
    assert config_of("cn-north-1", "cnn1-az1", "cnn1-az2") == []


def test_default_zones_offer_a_control_plane_and_the_default_types():
    for region in regions.REGIONS:
        zones = regions.default_zones(region)
        assert not regions.CONTROL_PLANE_REFUSED_ZONES & set(zones)
        assert all(regions.zone_belongs(zone, region) for zone in zones)
    assert {"use1-az3", "usw1-az2", "cac1-az3"} == regions.CONTROL_PLANE_REFUSED_ZONES
    for region in ("us-east-1", "us-east-2", "us-west-2"):
        accelerator_zone, other = regions.default_zones(region)
        for name in ("trn1.32xlarge", "trn1n.32xlarge"):
            assert accelerator_zone in CATALOGUE.offered(name, region)
        assert other != accelerator_zone
        assert {accelerator_zone, other} <= set(CATALOGUE.offered("m6i.xlarge", region)), "system nodes run in both"


def test_the_efa_plugins_image_comes_from_the_regions_own_registry():
    registries = {
        "us-west-2": "602401143452.dkr.ecr.us-west-2.amazonaws.com",
        "ap-southeast-4": "491585149902.dkr.ecr.ap-southeast-4.amazonaws.com",
        "ap-south-2": "900889452093.dkr.ecr.ap-south-2.amazonaws.com",
        "cn-north-1": "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn",
        "us-gov-west-1": "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com",
        "xx-new-1": "602401143452.dkr.ecr.xx-new-1.amazonaws.com",
    }
    assert {region: regions.eks_image_registry(region) for region in registries} == registries
