"""`trn prices`: what AWS' price list says of a stack's instance types, and what becomes of its file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_double import Answer, AwsDouble, AwsError
from typer.testing import CliRunner

from trainium_eks.aws.account import Account
from trainium_eks.cli.app import app
from trainium_eks.cli.environment import prices
from trainium_eks.cli.shared import recording
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, Price
from trainium_eks.plan.graph import Graph, Resource

FILE = "config:\n  trainium-eks:region: us-west-2 # here\n"
LISTED = {"trn1.32xlarge": "22.5000000000", "m6i.xlarge": "0.1920000000"}


def product(usd: str, unit: str = "Hrs", date: str = "2026-11-01T00:00:00Z") -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"T": {"effectiveDate": date, "priceDimensions": {"D": dimension}}}}
    return json.dumps({"product": {}, "terms": terms, "publicationDate": date})


def listed(asked: Mapping[str, Any]) -> Answer:
    filters = {each["Field"]: each["Value"] for each in asked["Filters"]}
    assert filters["regionCode"] == "us-west-2"
    assert (filters["operatingSystem"], filters["tenancy"], filters["capacitystatus"]) == ("Linux", "Shared", "Used")
    usd = LISTED.get(filters["instanceType"])
    return {"PriceList": [product("0.0000000000"), product(usd)] if usd else []}


def group(instance_type: str) -> Resource:
    inputs = {"instanceTypes": [instance_type], "scalingConfig": {"desiredSize": 1, "maxSize": 1}}
    return Resource(instance_type, "aws:eks/nodeGroup:NodeGroup", instance_type, inputs=inputs)


PROVIDER = Resource("u", "pulumi:providers:aws", "aws", inputs={"region": "us-west-2"})
GRAPH = Graph("p", "dev", (PROVIDER, group("trn1.32xlarge"), group("trn2.48xlarge"), group("m6i.xlarge")), {})


def ask(answer: Answer) -> tuple[prices.Row, ...]:
    return prices.look(GRAPH, Account("us-west-2", AwsDouble({"pricing:GetProducts": answer}).session()))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: trainium-eks\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "Pulumi.dev.yaml").write_text(FILE)
    rows = ask(listed)
    monkeypatch.setattr(recording, "record", lambda *_: GRAPH)
    monkeypatch.setattr(prices, "look", lambda _: rows)
    return tmp_path


def run(project: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["prices", "--directory", str(project), *options])


def test_prices_are_those_of_the_region_with_the_list_s_day() -> None:
    by_type = {row.instance_type: row for row in ask(listed)}
    assert by_type["trn1.32xlarge"].old == CATALOGUE.price("trn1.32xlarge")
    assert by_type["trn1.32xlarge"].new == Price(22.5, "2026-11-01", "us-west-2")
    assert by_type["trn2.48xlarge"].new is None
    assert not by_type["trn2.48xlarge"].changes


def test_a_price_that_is_not_by_the_hour_is_none() -> None:
    assert [row.new for row in ask({"PriceList": [product("900", unit="Quantity")]})] == [None] * 3


def test_what_cannot_be_asked_is_said_for_each_type() -> None:
    rows = ask(AwsError("AccessDeniedException"))
    assert {row.problem for row in rows} == {"the right pricing:GetProducts is missing"}


def test_china_is_not_asked_in_dollars() -> None:
    china = replace(GRAPH, resources=(replace(PROVIDER, inputs={"region": "cn-north-1"}), group("m6i.xlarge")))
    [row] = prices.look(china, Account("cn-north-1", AwsDouble({}).session()))
    assert "aws-cn" in row.problem


def test_the_file_gets_the_prices_that_the_plan_then_uses(project: Path) -> None:
    result = run(project)
    assert result.exit_code == 0, result.output
    text = (project / "Pulumi.dev.yaml").read_text()
    assert "region: us-west-2 # here" in text
    entries = yaml.safe_load(text)["config"]["trainium-eks:instanceTypes"]
    priced = with_entries(CATALOGUE, entries)
    assert priced.price("trn1.32xlarge") == Price(22.5, "2026-11-01", "us-west-2")
    assert set(entries) == {"trn1.32xlarge", "m6i.xlarge"}
    assert "2 prices written" in result.output


def test_a_dry_run_shows_and_writes_nothing(project: Path) -> None:
    result = run(project, "--dry-run", "--no-color")
    assert "$22.5000 us-west-2 2026-11-01" in result.output
    assert "no On-Demand price in the list" in result.output
    assert "2 would be written to Pulumi.dev.yaml" in result.output
    assert (project / "Pulumi.dev.yaml").read_text() == FILE


def test_the_json_says_what_was_written(project: Path) -> None:
    data = json.loads(run(project, "--json").output)
    assert data["written"] == "Pulumi.dev.yaml"
    [trn1] = [each for each in data["prices"] if each["instanceType"] == "trn1.32xlarge"]
    assert trn1["new"] == {"hourlyUsd": 22.5, "date": "2026-11-01", "region": "us-west-2"}


def test_a_file_that_cannot_be_edited_is_left_alone(project: Path) -> None:
    held = "config:\n  trainium-eks:instanceTypes: none\n"
    (project / "Pulumi.dev.yaml").write_text(held)
    result = run(project)
    assert result.exit_code == 1
    assert "cannot set prices in Pulumi.dev.yaml" in result.output
    assert (project / "Pulumi.dev.yaml").read_text() == held
