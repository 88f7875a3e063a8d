"""The published benchmark, what follows from it, and runs of one's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.model.sizing import training_cost


def compared(*arguments: str) -> Any:
    shown = CliRunner().invoke(app, ["compare", "--json", *arguments])
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def test_the_table_comes_from_its_inputs_to_the_cents_that_were_printed() -> None:
    for row in training_cost.PUBLISHED:
        assert row.cost_usd(row.hourly_usd) == pytest.approx(row.published_usd, abs=0.05)


def test_the_text_does_not_follow_from_the_table() -> None:
    found = {each["claim"]: each for each in compared()["claims"]}
    assert {name: (each["textPercent"], each["tablePercent"]) for name, each in found.items()} == {
        "lower cost": (50, 39.5),
        "faster time to train": (22, 7.9),
    }
    assert not any(each["follows"] for each in found.values())


def test_present_prices_are_the_catalogue_s_with_their_source() -> None:
    trn1, p4d = compared()["benchmark"]
    assert (round(trn1["nowUsd"], 2), round(p4d["nowUsd"], 2)) == (36.03, 39.97)
    assert trn1["priceSource"] == "EC2 On-Demand, us-east-1, 2026-07-20"


def test_runs_are_priced_by_type_count_and_given_price() -> None:
    names = ("--run", "a=2:trn1.32xlarge:3", "--run", "b=1:ml.trn1.32xlarge", "--run", "c=1:x9.big")
    a, b, c = compared(*names, "--price", "x9.big=10")["runs"]
    assert (a["usd"], b["usd"], c["usd"]) == (129.0, 24.725, 10.0)
    assert b["priceSource"].startswith("estimate")


def test_completed_jobs_of_trn_jobs_are_runs(tmp_path: Path) -> None:
    job = {"name": "bert", "state": "Completed", "instanceType": "trn1.32xlarge", "seconds": 1800, "nodes": 2}
    others = [{**job, "state": "Running"}, {**job, "instanceType": None}]
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": [job, *others]}))
    assert [each["usd"] for each in compared("--jobs", str(file))["runs"]] == [21.5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--run", "a=trn1.32xlarge"), "write NAME=HOURS:INSTANCE"),
        (("--run", "a=soon:trn1.32xlarge"), "HOURS is a number"),
        (("--run", "a=-1:trn1.32xlarge"), "cannot be"),
        (("--run", "a=1:trn1.32xlargee"), "did you mean trn1.32xlarge"),
        (("--run", "a=1:trn2.48xlarge"), "--price trn2.48xlarge=USD"),
        (("--price", "trn1.32xlarge=cheap"), "write INSTANCE=USD"),
        (("--jobs", "missing.json"), "No such file"),
    ],
)
def test_an_unreadable_run_or_price_is_refused_with_its_mend(arguments: tuple[str, ...], words: str) -> None:
    shown = CliRunner().invoke(app, ["compare", *arguments])
    assert shown.exit_code == 2
    assert words in shown.stderr


def test_a_file_without_jobs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text("[]")
    shown = CliRunner().invoke(app, ["compare", "--jobs", str(file)])
    assert (shown.exit_code, "no list `jobs`" in shown.stderr) == (2, True)


def test_the_tables_for_people_have_the_claims_and_the_gap() -> None:
    shown = CliRunner().invoke(app, ["compare", "--run", "mine=1:trn1.32xlarge", "--run", "gpu=2:p4d.24xlarge"])
    assert shown.exit_code == 0, shown.output
    for words in ("39.5 %", "7.9 %", "does not follow", "Trn1 is 9.9 % cheaper than P4d.", "-100.0 %"):
        assert words in shown.stdout
