"""Floors of the fabric test against EC2's line rates (moto)."""

import re

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from trainium_eks.model.catalogue.fabric_floors import LINE_RATES, floor_of
from trainium_eks.model.catalogue.instances import CATALOGUE

WITH_EFA = [name for name, kind in CATALOGUE.items() if kind.has_efa and kind.family != "cpu"]


@pytest.mark.parametrize("name", WITH_EFA)
def test_the_line_rate_is_that_of_ec2(name: str) -> None:
    said = INSTANCE_TYPES[name]["NetworkInfo"]["NetworkPerformance"]
    found = re.fullmatch(r"(?:(\d+)x )?(\d+) Gigabit", said)
    assert found, said
    assert LINE_RATES[name] == int(found[1] or 1) * int(found[2])


def test_a_floor_is_half_of_the_line_rate_and_types_without_efa_have_none() -> None:
    floor = floor_of(CATALOGUE["trn1.32xlarge"])
    assert floor is not None
    assert floor.gigabytes_per_second == 50.0
    assert floor_of(CATALOGUE["trn1.2xlarge"]) is None
