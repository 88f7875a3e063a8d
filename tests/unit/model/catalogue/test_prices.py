"""Prices are sane, dated, and cover every choice that the config allows."""

import datetime
from typing import get_args

import botocore.loaders
import pytest

from trainium_eks.model.catalogue import prices
from trainium_eks.model.config.storage import FileSystemConfig


def test_the_prices_are_dated_and_of_a_region() -> None:
    assert datetime.date.fromisoformat(prices.DATE) >= datetime.date(2026, 11, 1)
    assert prices.REGION == "us-east-1"


def test_extended_support_costs_six_times_as_much() -> None:
    assert round(prices.EKS_EXTENDED_HOURLY / prices.EKS_CLUSTER_HOURLY, 6) == 6


def test_every_deployment_type_of_the_config_has_a_price() -> None:
    deployment_types = get_args(FileSystemConfig.model_fields["deployment_type"].annotation)
    shapes = botocore.loaders.Loader().load_service_model("fsx", "service-2")["shapes"]
    assert set(deployment_types) <= set(shapes["LustreDeploymentType"]["enum"])
    for deployment_type in deployment_types:
        assert prices.lustre_monthly_usd(1200, deployment_type, 250) > 0


def test_lustre_costs_more_the_faster_it_is_and_by_the_gib() -> None:
    tiers = [prices.lustre_monthly_usd(1200, "PERSISTENT_2", throughput) for throughput in (125, 250, 500, 1000)]
    assert tiers == sorted(tiers)
    assert tiers[0] == pytest.approx(174.0)
    assert prices.lustre_monthly_usd(2400, "PERSISTENT_2", 125) == pytest.approx(2 * tiers[0])
    assert prices.lustre_monthly_usd(1200, "SCRATCH_2", 0) == pytest.approx(168.0)


@pytest.mark.parametrize(("deployment_type", "throughput"), [("PERSISTENT_2", 200), ("PERSISTENT_1", 125)])
def test_no_price_is_made_up_for_lustre(deployment_type: str, throughput: int) -> None:
    with pytest.raises(ValueError, match="no price is known"):
        prices.lustre_monthly_usd(1200, deployment_type, throughput)


def test_gp3_throughput_and_iops_cost_only_above_what_every_volume_has() -> None:
    assert prices.gp3_monthly_usd(500) == pytest.approx(40.0)
    assert prices.gp3_monthly_usd(500, throughput_mibps=100, iops=100) == pytest.approx(40.0)
    assert prices.gp3_monthly_usd(500, throughput_mibps=1000, iops=16000) == pytest.approx(40.0 + 35.0 + 65.0)


def test_control_plane_tiers_are_words_of_eks_and_dearer_the_larger() -> None:
    shapes = botocore.loaders.Loader().load_service_model("eks", "service-2")["shapes"]
    assert set(prices.EKS_CONTROL_PLANE_TIER_HOURLY) == set(shapes["ProvisionedControlPlaneTier"]["enum"])
    tiers = list(prices.EKS_CONTROL_PLANE_TIER_HOURLY.values())
    assert tiers == sorted(tiers)
