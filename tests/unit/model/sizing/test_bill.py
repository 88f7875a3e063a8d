"""What a config costs, before any program has run."""

import datetime
from typing import get_args

import botocore.loaders
import pytest
from unit.model.config.test_config import VARIANTS

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.sizing import bill
from trainium_eks.model.validation.config_model import read


def _bill(**sections):
    return bill.of_config(read(StackConfig, {"region": "us-west-2", "owner": "team", **sections}))


def _amounts(found, what):
    lines = [line for line in found.lines if line.what == what]
    return sum(line.quantity for line in lines), sum(line.maximum for line in lines)


def test_the_default_environment_is_billed_whole():
    found = _bill()
    assert _amounts(found, "trn1.32xlarge") == (2, 4)
    assert _amounts(found, "trn1n.32xlarge") == (0, 2)
    assert _amounts(found, "m6i.xlarge") == (2 * 1 + 1, 2 * 3 + 4)
    for once in ("EKS control plane", "KMS key", "NAT gateway", "public IPv4 address"):
        assert _amounts(found, once) == (1, 1)
    assert found.unknown == ()
    assert found.monthly_usd == pytest.approx(found.hourly_usd * 730)
    # The root volume is the one that the group gets.
    found = _bill(nodeGroups=[{"name": "g", "instanceType": "trn1.32xlarge", "maxSize": 7, "localStorage": "none"}])
    assert _amounts(found, "500 GiB root volume")[1] == 7


def test_gateway_pays_for_its_address_and_existing_networks_cost_nothing():
    network = {"natGateways": "per-zone", "interfaceEndpoints": ["sts", "ecr.api"]}
    found = _bill(network=network)
    assert _amounts(found, "NAT gateway") == _amounts(found, "public IPv4 address") == (2, 2)
    assert _amounts(found, "interface endpoint") == (4, 4)
    found = _bill(existingNetwork=VARIANTS[("existingNetwork",)], fileSystem=None)
    assert _amounts(found, "NAT gateway") == (0, 0)
    assert _amounts(found, "m6i.xlarge") == (3, 10)
    assert not [line for line in found.lines if "Lustre" in line.what]


def test_file_system_types_have_own_prices_and_extra_iops_are_paid():
    [scratch] = bill.file_system(1200, "SCRATCH_2", 250)
    assert scratch.hourly_usd == pytest.approx(1200 * prices.FSX_SCRATCH_GIB_MONTH / 730)
    [persistent] = bill.file_system(1200, "PERSISTENT_2", 1000)
    assert persistent.hourly_usd == pytest.approx(1200 * prices.FSX_LUSTRE_GIB_MONTH[1000] / 730)
    paid = {(1200, 1500): [], (1200, 3000): [1500], (2400, 3000): [], (9600, 12000): [6000], (48000, 36000): [12000]}
    for (gib, iops), extra in paid.items():
        lines = bill.file_system(gib, "PERSISTENT_2", 125, iops)
        assert [line.quantity for line in lines if line.what == "metadata IOPS"] == extra


def test_unpriced_type_is_named_and_a_configured_price_is_used():
    group = {"name": "g", "instanceType": "trn9.48xlarge", "maxSize": 1, "desiredSize": 1}
    nameless = next(name for name, instance in CATALOGUE.items() if instance.hourly_usd is None)
    assert _bill(nodeGroups=[{**group, "instanceType": nameless}]).unknown == (nameless,)
    entry = {"like": "trn1.32xlarge", "hourlyUsd": 50.0, "priceDate": "2026-11-01", "priceRegion": "us-west-2"}
    found = _bill(instanceTypes={"trn9.48xlarge": entry}, nodeGroups=[group])
    assert [line.hourly_usd for line in found.lines if line.what == "trn9.48xlarge"] == [50.0]


def shapes(service):
    return botocore.loaders.Loader().load_service_model(service, "service-2")["shapes"]


def test_lustre_price_follows_throughput_and_size():
    deployment_types = get_args(FileSystemConfig.model_fields["deployment_type"].annotation)
    assert set(deployment_types) <= set(shapes("fsx")["LustreDeploymentType"]["enum"])
    assert all(prices.lustre_monthly_usd(1200, each, 250) > 0 for each in deployment_types)
    tiers = [prices.lustre_monthly_usd(1200, "PERSISTENT_2", throughput) for throughput in (125, 250, 500, 1000)]
    assert tiers == sorted(tiers)
    assert tiers[0] == pytest.approx(174.0)
    assert prices.lustre_monthly_usd(2400, "PERSISTENT_2", 125) == pytest.approx(2 * tiers[0])
    assert prices.lustre_monthly_usd(1200, "SCRATCH_2", 0) == pytest.approx(168.0)
    for deployment_type, throughput in (("PERSISTENT_2", 200), ("PERSISTENT_1", 125)):
        with pytest.raises(ValueError, match="no price is known"):
            prices.lustre_monthly_usd(1200, deployment_type, throughput)


def test_gp3_extras_and_larger_or_older_control_planes_cost_more():
    assert prices.gp3_monthly_usd(500) == pytest.approx(40.0)
    assert prices.gp3_monthly_usd(500, throughput_mibps=100, iops=100) == pytest.approx(40.0)
    assert prices.gp3_monthly_usd(500, throughput_mibps=1000, iops=16000) == pytest.approx(40.0 + 35.0 + 65.0)
    assert datetime.date.fromisoformat(prices.DATE) >= datetime.date(2026, 11, 1)
    assert round(prices.EKS_EXTENDED_HOURLY / prices.EKS_CLUSTER_HOURLY, 6) == 6
    notes = [bill.control_plane("1.35", policy).note[:22] for policy in ("STANDARD", "EXTENDED")]
    assert notes == ["", "$0.60 an hour from 202"]
    assert set(prices.EKS_CONTROL_PLANE_TIER_HOURLY) == set(shapes("eks")["ProvisionedControlPlaneTier"]["enum"])
    tiers = list(prices.EKS_CONTROL_PLANE_TIER_HOURLY.values())
    assert tiers == sorted(tiers)
