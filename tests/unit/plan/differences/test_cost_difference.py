"""What a change costs: line by line, and never a saving where a price is unknown."""

from dataclasses import replace

import pytest
from hand_built import changed, environment

from trainium_eks.plan import cost
from trainium_eks.plan.differences.cost_difference import CostDifference, difference
from trainium_eks.plan.graph import Graph, Resource


def _sizes(desired: int, most: int) -> dict[str, int]:
    return {"minSize": 0, "desiredSize": desired, "maxSize": most}


def _type(graph: Graph, name: str) -> Graph:
    return changed(graph, "trn1-template", instanceType=name)


def _between(before: Graph, after: Graph) -> CostDifference:
    return difference(cost.estimate(before), cost.estimate(after))


def test_nothing_costs_nothing() -> None:
    assert not _between(environment(), environment())


def test_one_node_more() -> None:
    found = _between(environment(), changed(environment(), "trn1", scalingConfig=_sizes(3, 4)))
    [step] = found.steps
    assert found.hourly_usd == step.hourly_usd == pytest.approx(21.50 + 0.03, abs=0.05)
    assert found.maximum_hourly_usd == 0
    assert "3 × trn1.32xlarge (up to 4)" in step.what
    assert "instead of 2 ×" in step.what


def test_a_type_without_a_price_is_neither_a_saving_nor_a_known_rise() -> None:
    unpriced = _type(environment(), "trn2.48xlarge")
    for found in (_between(environment(), unpriced), _between(unpriced, environment())):
        assert (found.hourly_usd, found.maximum_hourly_usd, found.at_least_hourly_usd) == (None, None, None)
        assert found.unknown == ("trn2.48xlarge",)
    more = changed(changed(unpriced, "system", scalingConfig=_sizes(3, 3)), "trn1", scalingConfig=_sizes(2, 4))
    assert _between(unpriced, more).hourly_usd is not None, "what does not change is not in the difference"
    rested = changed(unpriced, "trn1", scalingConfig=_sizes(0, 4))
    assert _between(rested, more).hourly_usd is None


def test_a_group_at_rest_changes_the_most_alone() -> None:
    rested = changed(environment(), "trn1", scalingConfig=_sizes(0, 4))
    found = _between(rested, _type(rested, "trn2.48xlarge"))
    assert found.hourly_usd == 0
    assert found.maximum_hourly_usd is None


def test_other_inputs_of_a_type_without_a_price_cost_nobody_knows_what() -> None:
    before, after = (
        replace(
            environment(), resources=(Resource("urn::db", "aws:rds/instance:Instance", "db", inputs={"size": size}),)
        )
        for size in (1, 2)
    )
    assert (_between(before, after).hourly_usd, _between(after, after).hourly_usd) == (None, 0)
