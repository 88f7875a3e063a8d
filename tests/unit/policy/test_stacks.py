"""Sound stacks break no policy of the pack, and the CIS benchmark's recommendations are judged or explained."""

import contextlib
import re
from pathlib import Path

import pytest
import yaml
from engine.analyzer import pack, shown, without_a_cluster
from engine.rig import Rig
from full_environments import given
from rule_faults import FAULTS

from trainium_eks.plan.policy_pack import NotSeenError
from trainium_eks.plan.rules import RULES

ROOT = Path(__file__).resolve().parents[3]


NOT_IN_FIRST_PREVIEW = {each.id for each in RULES if each.beyond_pack or each.follows_ids or each.reads_computed}
"""The rules of the last section of docs/rules.md."""


def ids(said):
    return set(re.findall(r"R\d+", said))


def broken(graph, *, preview=False):
    made, found = pack(graph, preview=preview), []
    for rule in RULES:
        with contextlib.suppress(NotSeenError):
            found += [rule.id for _ in made.broken(rule, shown(graph))]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["dev", "gpu", "prod"])
def test_a_sound_stack_breaks_no_policy(stack, tmp_path):
    """In its first preview, and in an update, which knows all values."""
    rig = Rig(tmp_path)
    rig.configure(stack, lambda config: config.update(given(stack)))
    built = rig.recorded(stack)
    first = without_a_cluster(rig.recorded(stack, dry_run=True))
    assert broken(first, preview=True) == []
    assert ids(pack(first, preview=True).not_judged(shown(first))) <= NOT_IN_FIRST_PREVIEW
    assert broken(built) == []
    assert pack(built).stale_waivers(shown(built)) == ()
    said = pack(built).not_judged(shown(built))
    linked = {"R39"} if stack == "dev" else set()  # to its own bucket, which may be deleted
    assert ids(said) == {"R65"} | linked


def test_a_recommendation_of_cis_is_judged_or_has_a_reason():
    rows = yaml.safe_load((ROOT / "tests" / "cis_eks.yaml").read_text())
    page = (ROOT / "docs" / "plan.md").read_text()
    with_faults = {fault.rule for fault in FAULTS} | {"R07"}  # R07 is broken by pulumi-eks itself
    assert len({row["id"] for row in rows}) == len(rows) == 50
    for row in rows:
        rules = row.get("rules", ())
        assert bool(rules) != bool(row.get("why")), row
        assert set(rules) <= with_faults, row
        assert f"| {row['id']} | {row['title']} | {', '.join(rules) or row['why']} |" in page
