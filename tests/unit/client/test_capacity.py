"""What is sold for a run, asked of a simulated market."""

import json
from datetime import timedelta

import pytest
from aws_double import AwsError
from botocore.exceptions import EndpointConnectionError
from ec2_market import NOW, Market

from trainium_eks.aws.account import Account
from trainium_eks.client.capacity import SearchOptions, Stack, search, to_json
from trainium_eks.client.failure import UsageError

OPTIONS = SearchOptions("trn1.32xlarge", 8, 70, "2027-01-31", regions=("us-west-2", "us-east-1"))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOW.timestamp())))


def look(market, options=OPTIONS):
    return search(options, Stack(), Account("us-west-2", market.session()))


def test_offers_of_all_regions_weeks_and_pages_are_beside_on_demand_and_spot():
    market = Market(("us-west-2", "us-east-1"))
    found = look(market)
    blocks = [row for row in found.rows if row.offer]
    # Each week has six offers, on three pages, for each of four durations.
    assert {(row.offer.region, row.offer.zone) for row in blocks} == {
        ("us-west-2", "usw2-az4"),
        ("us-east-1", "use1-az6"),
    }
    assert {row.offer.starts.day for row in blocks} >= {*range(4, 10), *range(11, 17), *range(18, 24)}
    assert {row.offer.days for row in blocks} == {1, 2, 3, 4}
    assert [row.kind for row in found.rows[-2:]] == ["on-demand", "spot"]
    assert found.rows[-1].score == 3
    best = found.plans[0]
    assert (best.kind, best.region, best.usd) == ("block", "us-east-1", 72 * 8 * 18.0)
    assert best.done <= found.need.deadline == NOW.replace(hour=0) + timedelta(days=28)
    row = next(row for row in blocks if row.offer is best.stretches[0].offer)
    assert row.training_hours == pytest.approx(72 - 40 / 60 - found.need.start_seconds / 3600)
    assert row.usd_per_useful_hour == pytest.approx(row.usd / row.training_hours / found.useful_fraction)
    assert 0.9 < found.useful_fraction < 1
    assert found.not_checked == {}
    assert json.loads(json.dumps(to_json(found)))["plans"][0]["stretches"][0]["offer"]["region"] == "us-east-1"
    assert {operation.split(":")[1].startswith(("Describe", "Get")) for operation, _ in market.asked} == {True}


def test_hours_that_nearly_fit_a_shorter_block_are_hinted():
    [hint] = look(Market(("us-east-2",)), SearchOptions("trn2.48xlarge", 8, 72, "2027-01-31")).hints
    assert hint.startswith("--hours 71.")
    assert " would fit into cb-0104-72-0, for 14,400.00 USD" in hint


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (AwsError("UnauthorizedOperation", "no"), "the right ec2:DescribeCapacityBlockOfferings is missing"),
        (AwsError("AuthFailure"), "or the region is not enabled in this account"),
        (AwsError("InvalidParameterValue", "not supported for Capacity Blocks"), "not supported for Capacity Blocks"),
        (EndpointConnectionError(endpoint_url="https://ec2"), "no network"),
    ],
    ids=lambda each: getattr(each, "code", ""),
)
def test_region_that_cannot_be_asked_is_shown_with_its_reason(answer, reason):
    market = Market(("us-west-2", "us-east-1"))
    market.refused["us-east-1", "DescribeCapacityBlockOfferings"] = answer
    found = look(market)
    assert list(found.not_checked) == ["us-east-1"]
    assert reason in found.not_checked["us-east-1"]
    assert found.plans[0].region == "us-west-2"


def test_refused_spot_scores_and_zones_leave_the_rest():
    market = Market()
    market.refused |= dict.fromkeys(("GetSpotPlacementScores", "DescribeAvailabilityZones"), AwsError("AccessDenied"))
    found = look(market)
    assert found.not_checked == {"Spot placement scores": "the right ec2:GetSpotPlacementScores is missing"}
    assert found.rows[0].offer.zone == "us-west-2d"


def test_offers_of_segments_or_other_currencies_are_left_out():
    market = Market()
    [block] = market.describe_capacity_block_offerings(
        {
            "region": "us-west-2",
            "CapacityDurationHours": 72,
            "InstanceCount": 8,
            "StartDateRange": NOW,
            "EndDateRange": NOW + timedelta(days=4, hours=2),
        }
    )["CapacityBlockOfferings"]
    parts = [{"AvailabilityZoneId": "usw2-az1"}, {"AvailabilityZoneId": "usw2-az4"}]
    listed = [
        {**block, "CurrencyCode": "CNY"},
        {**block, "CapacityBlockOfferingSegments": parts},
        {**block, "StartDate": NOW + timedelta(hours=1), "CapacityBlockOfferingSegments": parts[:1]},
    ]
    market.refused["DescribeCapacityBlockOfferings"] = {"CapacityBlockOfferings": listed}
    # Both regions have this answer.
    assert [row.zones for row in look(market).rows if row.offer] == [("usw2-az1",)]


def test_market_without_offers_says_what_would_help():
    few = look(Market(sold=lambda asked: asked.get("InstanceCount") == 4))
    assert few.hints[0].startswith("--nodes 4 has ")
    late = look(Market(sold=lambda asked: asked["StartDateRange"].month > 1))
    assert late.hints[0].startswith("another --by has ")
    other = look(Market(("us-west-2",), lambda asked: asked.get("InstanceType") == "trn2.48xlarge"))
    assert [each.split(" has ")[0] for each in other.hints] == ["--type trn2.48xlarge"]
    assert look(Market(sold=lambda _: False)).hints[0].startswith("EC2 sells no block for fewer nodes")
    [single, *_] = look(Market(), SearchOptions("trn1n.32xlarge", 8, 70, "2027-01-31", regions=("us-west-2",))).hints
    assert single == "EC2 sells no Capacity Blocks of trn1n.32xlarge"


def test_all_wrong_options_are_reported_at_once():
    wrong = SearchOptions("trn1.32xlrge", 65, 0, "soon", "2027-13-01", ("us-wst-2",))
    with pytest.raises(UsageError) as refused:
        look(Market(), wrong)
    assert [each.path for each in refused.value.problems] == [
        *("--type", "--nodes", "--hours", "--by", "--from", "--regions")
    ]
    with pytest.raises(UsageError) as refused:
        look(Market(), SearchOptions("trn2u.48xlarge", 6, 1, "2027-01-03"))
    assert [each.path for each in refused.value.problems] == ["--nodes", "--by"]


def test_ultraservers_are_asked_for_by_their_type_and_drained_earlier():
    market = Market(("ap-south-2",))
    found = look(market, SearchOptions("trn2u.48xlarge", 8, 20, "2027-01-20"))
    asked = next(each for name, each in market.asked if name == "ec2:DescribeCapacityBlockOfferings")
    assert (asked["UltraserverType"], asked["UltraserverCount"], "InstanceType" in asked) == ("u-trn2x64", 2, False)
    assert found.rows[0].offer.nodes == 8
    assert found.need.drain == timedelta(minutes=75)
    assert found.hints[-1] == "each UltraServer is a block: --nodes 4 finds those to buy one by one"


def test_missing_credentials_end_the_search(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UsageError, match="there are no AWS credentials here"):
        search(OPTIONS)
