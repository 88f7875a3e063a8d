"""The plan as people see it, of a program built by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path

import plan_pages
import pytest
from hand_built import changed, environment, waiting, without
from outcome import ends, raising

from trainium_eks.cli.shared import plan_report
from trainium_eks.plan import rules

STALE = {"reason": "x", "expires": "2027-03-31"}
FEWER = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 4})


@pytest.fixture(autouse=True)
def verdicts(monkeypatch):
    """What the rules say; the hand-built program breaks many of them."""
    found = [*plan_pages.VERDICTS]
    monkeypatch.setattr(rules, "judge", lambda _graph: tuple(found))
    return found


@pytest.fixture
def saved(tmp_path):
    """A saved plan of the unchanged program."""
    plan_report.save(plan_report.make(environment()), tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.mark.parametrize(
    ("graph", "code", "last"),
    [
        (environment(), 0, "✓ dev is sound: no failed rule, no wrong edge."),
        (replace(environment(), resources=()), 0, "! dev registers no resources: there is nothing to judge."),
        (waiting(environment(), "lustre", "control-plane"), 1, "✗ dev is not sound: 1 wrong edge"),
        (environment({"waivers": {"R01": STALE}}), 1, "✗ dev is not sound: stale waiver R01"),
    ],
    ids=["sound", "nothing", "edge", "stale waiver"],
)
def test_a_plan_ends_with_the_verdict(planned, graph, code, last):
    result = planned(graph=graph)
    assert (result.exit_code, result.stdout.rstrip().splitlines()[-1]) == (code, last)
    wrong = "✗ The file system does not wait for the cluster\n\n • lustre waits for control-plane"
    assert (wrong in result.stdout) == ("edge" in last and code == 1)
    waived = "R01: waived, but the rule passes; remove the waiver"
    assert (waived in result.stdout) == ("waiver" in last)


@pytest.mark.parametrize(
    ("after", "code", "last"),
    [
        (changed(environment(), "control-plane", version="1.2"), 1, "✗ BLOCKED: 1 change cannot be deployed"),
        (changed(environment(), "control-plane", version="1.36"), 0, "! REVIEW: 1 risk"),
        (changed(environment(), "lustre", deploymentType="SCRATCH_2"), 1, "✗ BLOCKED"),
        (FEWER, 1, "✗ BLOCKED: 1 resource with data or running work is lost"),
        (environment(), 0, "✓ SAFE: everything that changes is understood as harmless"),
    ],
)
def test_a_comparison_ends_with_the_verdict_on_the_change(planned, saved, after, code, last):
    result = planned("--against", saved, graph=after)
    assert result.exit_code == code
    assert result.stdout.rstrip().splitlines()[-1].startswith(last)
    assert "sound" not in result.stdout
    assert "Resources" not in result.stdout, "the tree would drown the changes"
    told = json.loads(planned("--against", saved, "--json", graph=after).stdout)["against"]["verdict"]
    assert last[2:].partition(":")[0] == told
    accepted = planned("--against", saved, "--accept-losses", graph=after).exit_code
    assert accepted == (0 if after is FEWER else code)


def test_failed_save_keeps_the_old_file(planned, saved, monkeypatch):
    old = saved.read_text()
    monkeypatch.setattr(Path, "replace", raising(OSError(28, "No space left on device")))
    ends(2, planned("--save", saved, graph=without(environment(), "lustre")), "No space left on device")
    assert saved.read_text() == old
    assert list(saved.parent.glob(".plan*")) == []


# --- the terminal -------------------------------------------------------------------------------------------------


def test_calendar_of_blocks_is_data_too(planned):
    assert "capacityBlocks" not in json.loads(planned("--json").stdout)
    graph = environment({"nodeGroups": [plan_pages.dated(each) for each in plan_pages.BLOCKS]})
    over, now, later = json.loads(planned("--json", graph=graph).stdout)["capacityBlocks"]
    assert (over["drains"], now["usd"], later["usd"]) == ("2026-11-02T10:15:00Z", 4 * 240 * 35.76, None)


@pytest.mark.parametrize("width", [40, 71, 72, 120])
def test_a_narrow_terminal_has_shorter_lines_and_every_amount(planned, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    graph = replace(environment(), outputs={"kubeconfig": "x" * 300, "list": [{"name": "a" * 90}, 3]})
    amounts = re.findall(r"\$[0-9,]+(?:\.[0-9]+)?", plan_pages.page().partition("**Cost**")[2])
    assert len(amounts) > 9
    shown = planned(graph=graph).stdout
    assert max(map(len, shown.splitlines())) <= width
    assert [amount for amount in amounts if amount not in shown] == []
    if width == 40:  # a line for each cell
        assert re.search(r"\n  component: eks\n  what: .*\n(  .*\n)*  \$/hour: \$43\.\d\d\n  \$/month: ", shown)
        assert "  component: total\n  $/hour: $4" in shown


def test_no_color_prints_no_escape_codes_and_names_inject_none(planned, monkeypatch, saved):
    hostile = "\x1b[31m**big** `x` | [a](https://evil.example) <br> \u202e"
    graph = changed(environment(), "queue-test", metadata={"name": hostile}, spec={"weight": hostile})
    graph = replace(graph, outputs={hostile: hostile}, warnings=(hostile,), placeholders=(hostile,))
    for arguments in ((), ("--against", saved)):
        shown = planned(*arguments, graph=graph).stdout
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", shown)
        assert "**big** 'x' ¦ [a](https://evil.example) <br>" in " ".join(shown.split())
    assert "\x1b" not in planned().stdout, "a pipe"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" in planned().stdout
    assert "\x1b[3" not in planned("--no-color").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in planned().stdout


# --- what it says -------------------------------------------------------------------------------------------------


def test_pages_are_the_golden_ones():
    assert plan_pages.text() == plan_pages.FILE.read_text(), "`make golden` accepts the difference"


def test_failed_rules_decide_the_exit_code_and_waived_ones_do_not(planned, verdicts):
    waived, *failed = plan_pages.BROKEN
    verdicts.append(waived)
    assert planned().exit_code == 0
    verdicts += failed
    result = planned()
    assert result.exit_code == 1
    assert result.stdout.rstrip().endswith("✗ dev is not sound: failed R03 R04")
    found = json.loads(planned("--json").stdout)
    [first, _] = [each for each in found["rules"] if each["status"] == "fail"]
    assert (first["id"], first["findings"][0]["message"]) == ("R03", "0")
    assert found["training"]["gangs"][0]["nodes"] == 2
    assert json.loads(planned("--json", graph=without(environment(), "trn1")).stdout)["training"] is None
