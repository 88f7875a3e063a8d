"""The plan as people see it, of a program built by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hand_built import changed, environment, waiting, without
from outcome import ends, raising

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.model.finding import Finding, Status
from trainium_eks.plan import rules
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.rules import RuleResult

STALE = {"reason": "x", "expires": "2027-03-31"}
FEWER = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 4})


def _verdict(id_, status, *messages, severity="high", reason=""):
    findings = tuple(Finding(Status.FAIL, f"urn::{index}", message) for index, message in enumerate(messages))
    return RuleResult(id_, f"Title of {id_}", severity, "", status, reason, findings)


@pytest.fixture(autouse=True)
def verdicts(monkeypatch):
    """What the rules say; the hand-built program breaks many of them."""
    found = [_verdict("R01", "pass"), _verdict("R02", "n/a")]
    monkeypatch.setattr(rules, "judge", lambda _graph: tuple(found))
    return found


@pytest.fixture
def saved(tmp_path):
    """A saved plan of the unchanged program."""
    plan_report.save(plan_report.make(environment()), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def _page(graph=None):
    return plan_page.page(plan_report.make(graph or environment()))


def _against(after):
    return plan_page.page(plan_report.compare_with(plan_report.make(after), "main", environment()))


def _part(page, title):
    """The lines of one part, without its title and empty ones."""
    part = page.split(f"**{title}**\n", 1)[1].split("\n**", 1)[0]
    return [line for line in part.splitlines() if line]


def _cells(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


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


@pytest.mark.parametrize("width", [40, 71, 72, 120])
def test_a_narrow_terminal_has_shorter_lines_and_every_amount(planned, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    graph = replace(environment(), outputs={"kubeconfig": "x" * 300, "list": [{"name": "a" * 90}, 3]})
    amounts = re.findall(r"\$[0-9,]+(?:\.[0-9]+)?", "".join(_part(_page(), "Cost")))
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


def test_page_marks_warnings_outputs_and_simulated_answers():
    page = _page(replace(environment(), warnings=("look out",), placeholders=("aws:x",)))
    first, _, second, *_ = page.splitlines()
    assert first == "**trainium-eks · dev · us-west-2 · 21 resources**"
    assert second.startswith("Simulated: nothing was contacted. The answers of aws and kubernetes are made up")
    assert "\n! Warning: look out\n" in page
    assert "\n! Answered by placeholders (give the real answers with --stub FILE):\n\n- aws:x\n" in page
    found = environment()
    thing = Resource("urn::thing", "acme:index:Thing", "thing")
    page = _page(replace(found, resources=(*found.resources, thing), unjudged=("acme:index:Thing",)))
    for line in (
        "! Not simulated, so shown without parts, price, time and rules: acme:index:Thing.",
        "! Not simulated, and not in this time: acme:index:Thing.",
        "! No price is known for acme:index:Thing; it is not in the total.",
        "**! dev: no failed rule, no wrong edge in what is known; not simulated: acme:index:Thing.**",
    ):
        assert f"\n{line}\n" in page
    tree = _part(_page(), "Resources")
    for line in (
        "NodeGroup `trn1`: 2 × trn1.32xlarge (0 to 4), 8 EFA interfaces, on demand, usw2-az4",
        "LustreFileSystem `lustre`: 2400 GiB, `PERSISTENT_2`, 250 MB/s per TiB, usw2-az4, protected",
        "Addon ×2: vpc-cni v1.22.3, coredns default version",
        "Queue `queue-test`: capability 64 neuron",
        "and 2 LaunchTemplate, Role, RolePolicyAttachment, kubernetes provider",
    ):
        assert f"    - {line}" in tree
    for resource in environment().resources:
        assert resource.type.rsplit(":", 1)[-1] in "".join(tree) or not resource.custom
    outputs = {"names": ["a", "b"], "groups": [{"name": "g", "size": 1}], "empty": "", "none": None, "z": "x" * 300}
    rows = [_cells(row) for row in _part(_page(replace(environment(), outputs=outputs)), "Outputs")[2:]]
    assert rows[:4] == [["empty", '`""`'], ["groups", "`g`"], ["names", "`a, b`"], ["none", "`null`"]]
    assert rows[4][1].endswith("x…`")


def test_page_shows_cost_by_component_and_time_to_ready():
    cost = _part(_page(), "Cost")
    assert _cells(cost[0]) == ["component", "what", "$/hour", "$/month", "most $/hour"]
    assert _cells(cost[2])[0] == "eks"
    assert len([row for row in cost if row.startswith("| **total**")]) == 1
    assert cost[-1].startswith("Billed by use and not counted")
    unknown = "\n".join(_part(_page(changed(environment(), "trn1-template", instanceType="trn9.x")), "Cost"))
    assert "! No price is known for trn9.x; it is not in the total." in unknown
    assert "+ ? |" in unknown
    lines = _part(_page(), "Time to ready")
    assert lines[0] == "✓ **15:56 modelled**, 1.00 × max(cluster 15:56, file system 8:27)"
    names = ["vpc", "subnet", "control-plane", "cni", "trn1"]
    assert [_cells(row)[2].split("`")[1] for row in lines[4:9]] == names
    assert lines[9] == "Order: 12 of 12 rules hold."
    pool = SimpleNamespace(pool="cpu", minimum=0, maximum=4, instance_type="m7i.xlarge", by="Karpenter")
    found = SimpleNamespace(pools=[pool], limits=["none of a gang"])
    lines = _part(plan_page.page(replace(plan_report.make(environment()), autoscaling=found)), "Autoscaling")
    assert lines == ["- cpu: 0 to 4 × m7i.xlarge, by Karpenter", "- none of a gang"]


def test_failed_rules_come_first_by_severity_then_waived_with_reason(planned, verdicts):
    assert planned().exit_code == 0
    verdicts.append(_verdict("R05", "waived", "x", reason="because of this"))
    assert planned().exit_code == 0, "a waived rule does not fail"
    verdicts += [_verdict("R03", "fail", *map(str, range(20)), severity="low"), _verdict("R04", "fail", "is high")]
    lines = _part(_page(), "Rules")
    assert [_cells(row)[:2] for row in lines[2:5]] == [["✗", "R04"], ["✗", "R03"], ["~", "R05"]]
    assert "**Title of R04** (high)<br>0: is high |" in lines[2]
    assert lines[3].endswith("3: 3<br>and 16 more |"), "many faults are cut with their number"
    assert lines[4].endswith("waived: because of this |")
    assert "pulumi config set --path waivers.R04" in lines[5]
    assert lines[6:] == ["1 pass: R01", "1 do not apply: R02"]
    verdicts.append(
        replace(_verdict("R06", "unseen"), findings=(Finding(Status.NOT_CHECKED, "urn::6", "known later"),))
    )
    assert _cells(_part(_page(), "Rules")[5]) == ["?", "R06", "Title of R06: not judged: known later"]
    result = planned()
    assert result.exit_code == 1
    assert result.stdout.rstrip().endswith("✗ dev is not sound: failed R03 R04")
    [first, _] = [each for each in json.loads(planned("--json").stdout)["rules"] if each["status"] == "fail"]
    assert (first["id"], first["findings"][0]["message"]) == ("R03", "0")


def test_a_comparison_has_the_parts_of_a_comment():
    page = _against(changed(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"), "sts", policy="{}"))
    refused = "⛔ `LustreFileSystem lustre` to be replaced, but protected: Pulumi refuses; it holds its files"
    assert " ".join(_cells(_part(page, "Risks")[2])[:3]) == refused
    assert "`~ VpcEndpoint sts`" in page[page.index("**Changes**") :]
    assert "\n!     cidrBlock: 10.0.0.0/18 → 10.0.64.0/18  (replaces it)\n" in page
    dearer = _against(changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 3, "maxSize": 4}))
    assert "**Cost**: **+$21.53 an hour, +$15,718 a month**; unchanged at most" in dearer
    same = _against(environment())
    assert "**Changes since main**: none\n" in same
    assert "**Cost**: unchanged" in same
    new = plan_report.compare_with(plan_report.make(environment()), "main", replace(environment(), resources=()))
    assert "21 create" in plan_page.page(new)


def test_training_table_shows_useful_time_with_its_assumptions(planned):
    lines = _part(_page(), "Training")
    assert [_cells(row)[0] for row in lines[2:4]] == ["2 × trn1.32xlarge", "4 × trn1.32xlarge"]
    assert re.search(r"\| 131d\d\dh \| \d\dm \| 2m59s \| 9\d\.\d % \| \$4\d\.\d\d \|", lines[2])
    assert lines[4:] == [
        "Checkpoints of 100 GB (training.checkpointGigabytes) at 586 MB/s, which the file system writes.",
        "A node fails 1.4 times a year, as in Meta's Llama 3 run on H100; none is published for these.",
    ]
    graph = changed(environment(), "trn1-template", instanceType="trn9.48xlarge")
    lines = _part(_page(changed(graph, "trn1", capacityType="SPOT")), "Training")
    assert _cells(lines[2])[-1] == "?"
    assert lines[-2] == "Spot interruptions come on top: training.failuresPerNodeYear."
    assert lines[-1] == "No price is known for trn9.48xlarge."
    lines = _part(_page(environment({"training": {"failuresPerNodeYear": 0}})), "Training")
    assert _cells(lines[2])[1] == "never"
    assert lines[-1] == "A node fails 0 times a year, as the config says."
    assert "**Training**" not in _page(without(environment(), "trn1"))
    assert json.loads(planned("--json", graph=without(environment(), "trn1")).stdout)["training"] is None
    assert json.loads(planned("--json").stdout)["training"]["gangs"][0]["nodes"] == 2
