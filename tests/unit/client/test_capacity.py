"""What is sold for a run, asked of a simulated market."""

from dataclasses import replace
from datetime import timedelta

import pytest
from aws_double import AwsError
from botocore.exceptions import EndpointConnectionError
from ec2_market import NOW, Market

from trainium_eks.aws.account import Account
from trainium_eks.client.capacity import SearchOptions, search
from trainium_eks.client.failure import UsageError

OPTIONS = SearchOptions("trn1.32xlarge", 8, 70, "2027-01-31", regions=("us-west-2", "us-east-1"))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOW.timestamp())))


def look(market, options=OPTIONS):
    return search(options, None, Account("us-west-2", market.session()))


def test_offers_of_all_regions_weeks_and_pages_are_beside_on_demand_and_spot():
    market = Market(("us-west-2", "us-east-1"))
    found = look(market)
    blocks = {row.offer.id: row for row in found.rows if row.kind == "capacity-block"}
    # Each week has six offers, on three pages, for each of four durations.
    places = {("us-west-2", "usw2-az4"), ("us-east-1", "use1-az6")}
    assert {(row.offer.region, row.offer.zone) for row in blocks.values()} <= places
    assert {row.offer.starts.day for row in blocks.values()} >= {*range(4, 10), *range(11, 17), *range(18, 24)}
    assert {row.offer.days for row in blocks.values()} == {1, 2, 3, 4}
    assert [(row.kind, row.score) for row in found.rows[-2:]] == [("on-demand", None), ("spot", 3)]
    assert {plan.region for plan in found.plans} == {region for region, _ in places}
    best = found.plans[0]
    assert (best.region, best.usd, len(best.offers)) == ("us-east-1", 72 * 8 * 18.0, 1)
    assert best.done <= found.need.deadline == NOW.replace(hour=0) + timedelta(days=28)
    row = next(row for row in found.rows if row.offer is best.offers[0])
    assert row.training_hours == pytest.approx(72 - 40 / 60 - found.need.start_seconds / 3600)
    assert 0.9 < float(row.offer.usd) / row.training_hours / row.usd_per_useful_hour < 1
    assert (found.not_checked, found.hints) == ({}, ())
    assert {operation.split(":")[1].startswith(("Describe", "Get")) for operation, _ in market.asked} == {True}


@pytest.mark.parametrize(
    ("operation", "answer", "reason"),
    [
        ("", AwsError("UnauthorizedOperation", "no"), "the right ec2:DescribeCapacityBlockOfferings is missing"),
        ("", AwsError("AuthFailure"), "or the region is not enabled in this account"),
        ("", AwsError("InvalidParameterValue", "not supported for Capacity Blocks"), "not supported for Capacity"),
        ("", EndpointConnectionError(endpoint_url="https://ec2"), "no network"),
        ("GetSpotPlacementScores", AwsError("AccessDenied"), "the right ec2:GetSpotPlacementScores is missing"),
    ],
)
def test_question_that_is_not_answered_is_shown_with_its_reason(operation, answer, reason):
    market = Market(("us-west-2", "us-east-1"))
    market.refused[operation or ("us-east-1", "DescribeCapacityBlockOfferings")] = answer
    market.refused["us-west-2", "DescribeAvailabilityZones"] = AwsError("AccessDenied")
    found = look(market)
    assert list(found.not_checked) == ["Spot placement scores" if operation else "us-east-1"]
    assert reason in next(iter(found.not_checked.values()))
    assert "us-west-2d" in {each.zone for plan in found.plans for each in plan.offers}


def test_offers_of_segments_other_currencies_or_more_usd_are_left_out():
    market = Market()
    asked = {"region": "us-west-2", "CapacityDurationHours": 72, "InstanceCount": 8, "StartDateRange": NOW}
    listed = market.describe_capacity_block_offerings({**asked, "EndDateRange": NOW + timedelta(days=4)})
    [block], parts = listed["CapacityBlockOfferings"], [{"AvailabilityZoneId": f"usw2-az{each}"} for each in (1, 4)]
    listed = [{**block, "CurrencyCode": "CNY"}]
    listed += [{**block, "CapacityBlockOfferingSegments": each} for each in (parts, parts[:1])]
    listed.append({**listed[-1], "UpfrontFee": "99999"})  # the same block for more
    market.refused["DescribeCapacityBlockOfferings"] = {"CapacityBlockOfferings": listed}
    [row] = [each for each in look(market).rows if each.kind == "capacity-block"]
    assert (row.offer.zone, row.offer.usd) == ("usw2-az1", 72 * 160)


def test_hint_helps_where_no_block_holds_the_deadline():
    [hint] = look(Market(sold=lambda asked: asked["CapacityDurationHours"] < 72)).hints
    assert hint.startswith("no single block holds the deadline, the longest has 47.1 hours: take a later --by")
    late = look(Market(sold=lambda _: False), replace(OPTIONS, by="2027-01-05"))
    assert (late.is_feasible, late.plans, late.rows[0].done) == (False, (), None)
    assert look(Market(), replace(OPTIONS, instance_type="trn1n.32xlarge")).is_feasible, "On-Demand alone"


def test_all_wrong_options_are_reported_at_once():
    for wrong, names in (
        (
            SearchOptions("trn1.32xlrge", 65, 0, "soon", "2027-13-01", ("us-wst-2",)),
            ("--type", "--nodes", "--hours", "--by", "--from", "--regions"),
        ),
        (SearchOptions("trn2u.48xlarge", 6, 1, "2027-01-03"), ("--nodes", "--by")),
    ):
        with pytest.raises(UsageError) as refused:
            look(Market(), wrong)
        assert tuple(each.path for each in refused.value.problems) == names


def test_ultraservers_are_asked_for_by_their_type_and_drained_earlier():
    market = Market(("ap-south-2",))
    found = look(market, SearchOptions("trn2u.48xlarge", 8, 20, "2027-01-20"))
    asked = next(each for name, each in market.asked if name == "ec2:DescribeCapacityBlockOfferings")
    assert (asked["UltraserverType"], asked["UltraserverCount"], "InstanceType" in asked) == ("u-trn2x64", 2, False)
    assert (found.rows[0].offer.nodes, found.need.drain) == (8, timedelta(minutes=75))
    assert found.hints[-1] == "each UltraServer is a block: --nodes 4 finds those to buy one by one"


def test_missing_credentials_end_the_search(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UsageError, match="there are no AWS credentials here"):
        search(OPTIONS)
