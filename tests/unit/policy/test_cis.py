"""Each recommendation of the CIS EKS benchmark has a rule with a fixture that fails, or a reason why it has none."""

from pathlib import Path

import pytest
import yaml
from rule_faults import FAULTS

ROOT = Path(__file__).resolve().parents[3]
ROWS = yaml.safe_load((ROOT / "tests" / "cis_eks.yaml").read_text())
PAGE = (ROOT / "docs" / "policy.md").read_text()
WITH_FAULTS = {fault.rule for fault in FAULTS} | {"R07"}  # R07 is broken by pulumi-eks itself, in a test of its own


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_recommendation_is_judged_or_has_a_reason(row: dict[str, object]) -> None:
    assert bool(row.get("rules")) != bool(row.get("why"))
    assert set(row.get("rules", ())) <= WITH_FAULTS


def test_the_page_has_all() -> None:
    for row in ROWS:
        said = ", ".join(row["rules"]) if row.get("rules") else str(row["why"])
        assert f"| {row['id']} | {row['title']} | {said} |" in PAGE


def test_no_id_is_twice() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS) == 50
