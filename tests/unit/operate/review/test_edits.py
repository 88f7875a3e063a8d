"""Edits of every key of a stack's config, in both directions, and the verdict that plan and comment have on them:
``tests/review_edits.yaml``; and comments of real edits, letter by letter, which ``make golden`` rewrites."""

from functools import cache
from pathlib import Path

import config_tables
import kept_inputs
import pulumi
import pytest
import review_cases
import yaml
from review_cases import CASES, config_of, edited, planned
from tables import first_of_each

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.operate.review import review
from trainium_eks.operate.review.review import Outcome, Refusal, Review
from trainium_eks.plan.graph import Graph

ROOT = Path(__file__).parents[4]
TABLE = yaml.safe_load((ROOT / "tests" / "review_edits.yaml").read_text())
EDITS = TABLE["edits"]
KEYS = {row.path for row in config_tables.rows(StackConfig)}


def _listed(value):
    return value if isinstance(value, list) else [value]


def keys(edit):
    for name in _listed(edit["key"]):
        yield from sorted(key for key in KEYS if key.startswith(name[:-1])) if name.endswith(".*") else [name]


def _with_thresholds(edit):
    """Return the edit with every threshold that is a number, one above its default, if the case asks for it."""
    numbers = {row.path: row.default.strip("`") for row in config_tables.rows(AlertSettings)}
    above = {key: int(number) + 1 for key, number in numbers.items() if number.isdigit()}
    return {key: above if value == {"THRESHOLDS": 1} else value for key, value in edit.items()}


@cache
def _config(base):
    given = TABLE["bases"][base]
    return edited(config_of(given["stack"]), given.get("set", {}))


@cache
def _base(base):
    return planned(TABLE["bases"][base]["stack"], _config(base))


def verdict(before, after, monkeypatch):
    """Return the verdict of comment and plan, and all that the comment tells of risks."""
    if isinstance(after, Refusal):
        return Review("trainium-eks", "dev", "offline", "base", refusal=after).outcome, ""
    compared = review.of_plans(before, after)
    assert list(kept_inputs.unlisted_removals(compared.changes)) == []
    comment = Review("trainium-eks", "dev", "offline", "base", compared)
    monkeypatch.setattr(review, "of_plans", lambda *_: compared)
    side = compared.after
    plan = plan_report.compare_with(plan_report.Plan(after, side.cost, side.timeline, side.verdicts), "base", before)
    monkeypatch.undo()
    assert plan.review.outcome is comment.outcome
    assert f" {comment.outcome}: " in plan_page.page(plan).strip().splitlines()[-1]
    assert plan.failed is (comment.outcome is Outcome.BLOCKED)
    told = (f"{risk.what} {risk.note} {risk.resource.name} {risk.paths}" for risk in compared.risks)
    return comment.outcome, "\n".join(told)


@pytest.mark.parametrize(
    "edit",
    first_of_each(EDITS, lambda edit: edit["there"], lambda edit: f"{'+'.join(keys(edit))[:60]}-{EDITS.index(edit)}"),
)
def test_an_edit_has_its_verdict_in_plan_and_comment(edit, monkeypatch):
    base = edit.get("of", "dev")
    before = _base(base)
    try:
        after = planned(before.stack, edited(_config(base), _with_thresholds(edit["set"])))
    except pulumi.RunError as error:
        after = Refusal(str(error))
    sides = [(before, after, edit["there"], "tells")]
    if edit["back"] is not None:
        assert isinstance(after, Graph), after
        sides.append((after, before, edit["back"], "tells back"))
    for old, new, wanted, tells in sides:
        found, told = verdict(old, new, monkeypatch)
        assert found is Outcome(wanted), told
        assert [words for words in _listed(edit.get(tells, [])) if words not in told] == []


def test_omitted_tier_is_billed_until_it_is_standard():
    tier = edited(_config("small"), {"cluster.controlPlaneTier": "tier-xl"})
    standard = edited(tier, {"cluster.controlPlaneTier": "standard"})
    built, left_out = planned("dev", tier), _base("small")
    assert review.of_plans(built, left_out).cost.hourly_usd == 0
    assert review.of_plans(built, planned("dev", standard)).cost.hourly_usd == pytest.approx(-1.65)


def test_every_key_of_the_config_is_edited():
    assert {key for edit in EDITS for key in keys(edit)} == KEYS
    assert sum(2 if edit["back"] else 1 for edit in EDITS) >= 120
    # Several keys share an edit only where none can hide another.
    for edit in EDITS:
        leaves = {key for key in keys(edit) if not any(other.startswith((f"{key}.", f"{key}[")) for other in KEYS)}
        for judged, tells in ((edit["there"], "tells"), (edit["back"], "tells back")):
            same = judged == edit["there"] and "tells" in edit
            assert len(leaves) < 2 or judged in ("SAFE", "BLOCKED", None) or tells in edit or same, edit


@pytest.mark.parametrize("case", first_of_each(CASES, lambda case: case.outcome, lambda case: case.name))
def test_comment_of_a_real_edit_is_golden(case):
    judged, written = review_cases.reviewed(case)
    assert judged.outcome is case.outcome
    assert written == (review_cases.FOLDER / f"{case.name}.md").read_text()
    assert len(written) < 60_000
    assert {file.stem for file in review_cases.FOLDER.glob("*.md")} == {case.name for case in CASES}
    assert len(CASES) >= 16
