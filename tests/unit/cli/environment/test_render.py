"""The plan as people see it, of a program built by hand."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hand_built import changed, environment, optioned, waiting, without
from typer.testing import Result

from trainium_eks.cli.environment.plan import report
from trainium_eks.plan import rules
from trainium_eks.plan.graph import Graph, Options
from trainium_eks.plan.rules import Finding, Verdict

Planned = Callable[..., Result]


def _verdict(id_: str, status: str, *messages: str, severity: str = "high", reason: str = "") -> Verdict:
    findings = tuple(Finding(f"urn::{index}", False, message) for index, message in enumerate(messages))
    return Verdict(id_, f"Title of {id_}", severity, "", status, reason, findings)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What the rules say; the hand-built program breaks many of them."""
    found = [_verdict("R01", "pass"), _verdict("R02", "n/a")]
    monkeypatch.setattr(rules, "judge", lambda _graph: tuple(found))
    return found


@pytest.fixture
def against(planned: Planned, tmp_path: Path) -> Callable[[Graph], str]:
    """The text of a plan compared with the unchanged program."""

    def run(after: Graph) -> str:
        saved = tmp_path / "plan.json"
        report.save(report.make(environment()), saved)
        result: Result = planned("--against", saved, graph=after)
        return result.stdout

    return run


def _lines(text: str, start: str) -> list[str]:
    """The lines of one section."""
    lines = text.splitlines()
    first = lines.index(start)
    return lines[first : lines.index("", first)]


def test_a_sound_plan_says_so_and_exits_with_zero(planned: Planned) -> None:
    result = planned()
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("✓ dev is sound: no failed rule, no wrong edge.")


def test_a_program_that_registers_nothing_is_not_called_sound(planned: Planned) -> None:
    nothing = replace(environment(), resources=())
    result = planned(graph=nothing)
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("! dev registers no resources: there is nothing to judge.")
    assert "is sound" not in result.stdout


def test_a_change_that_aws_refuses_fails_the_plan(planned: Planned, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    report.save(report.make(environment()), saved)
    back = planned("--against", saved, graph=changed(environment(), "control-plane", version="1.2"))
    assert back.exit_code == 1
    assert back.stdout.rstrip().endswith("✗ BLOCKED: 1 change cannot be deployed")
    up = planned("--against", saved, graph=changed(environment(), "control-plane", version="1.36"))
    assert up.exit_code == 0
    assert "! REVIEW: 1 risk" in up.stdout


def test_a_loss_blocks_the_plan_until_it_is_accepted(planned: Planned, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    report.save(report.make(environment()), saved)
    fewer = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 4})
    blocked = planned("--against", saved, graph=fewer)
    assert blocked.exit_code == 1
    assert "✗ BLOCKED: 1 resource with data or running work is lost" in blocked.stdout
    assert planned("--against", saved, "--accept-losses", graph=fewer).exit_code == 0


def test_a_change_that_pulumi_refuses_is_not_called_sound(planned: Planned, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    report.save(report.make(environment()), saved)
    result = planned("--against", saved, graph=changed(environment(), "lustre", deploymentType="SCRATCH_2"))
    assert result.exit_code == 1
    assert "protected: Pulumi refuses" in result.stdout
    assert "sound" not in result.stdout
    assert "✗ BLOCKED" in result.stdout
    data = json.loads(planned("--json", "--against", saved, graph=environment()).stdout)
    assert (data["against"]["verdict"], data["against"]["risks"]) == ("SAFE", [])


def test_the_header_says_that_nothing_was_contacted(planned: Planned) -> None:
    first, second, *_ = planned().stdout.splitlines()
    assert first == "trainium-eks · dev · us-west-2 · 21 resources"
    assert second.startswith("Simulated: nothing was contacted. The answers of aws and kubernetes are made up")


def test_the_tree_shows_what_matters_of_each_resource(planned: Planned) -> None:
    tree = "\n".join(_lines(planned().stdout, "Resources"))
    assert "NodeGroup  trn1  2 × trn1.32xlarge (0 to 4), 8 EFA interfaces, on demand, usw2-az4" in tree
    assert "LustreFileSystem  lustre  2400 GiB, PERSISTENT_2, 250 MB/s per TiB, usw2-az4, protected" in tree
    assert "Addon ×2  vpc-cni v1.22.3, coredns default version" in tree
    assert "Queue  queue-test  capability 64 neuron" in tree
    assert "and 2 LaunchTemplate, Role, RolePolicyAttachment, kubernetes provider" in tree


def test_every_resource_is_in_the_tree_or_counted(planned: Planned) -> None:
    tree = "\n".join(_lines(planned().stdout, "Resources"))
    for resource in environment().resources:
        if resource.custom:
            assert resource.type.rsplit(":", 1)[-1] in tree


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(planned: Planned, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    graph = replace(environment(), outputs={"kubeconfig": "x" * 300, "list": [{"name": "a" * 90}, 3]})
    text = planned(graph=graph).stdout
    assert max(map(len, text.splitlines())) <= width
    [cut] = [line for line in text.splitlines() if line.strip().startswith("kubeconfig")]
    assert cut.endswith("x…")


def test_outputs_are_one_line_each(planned: Planned) -> None:
    outputs = {"queueNames": ["a", "b"], "groups": [{"name": "g", "size": 1}], "empty": "", "nothing": None}
    lines = _lines(planned(graph=replace(environment(), outputs=outputs)).stdout, "Outputs")
    assert [line.split() for line in lines[1:]] == [
        ["empty", '""'],
        ["groups", "g"],
        ["nothing", "null"],
        ["queueNames", "a,", "b"],
    ]


def test_cost_shows_components_total_and_what_is_not_counted(planned: Planned) -> None:
    cost = _lines(planned().stdout, "Cost")
    assert cost[2].split()[0] == "eks"
    [total] = [line.split() for line in cost if line.strip().startswith("total")]
    assert len(total) == 4
    assert any("Billed by use and not counted" in line for line in cost)


def test_an_unknown_price_is_said_beside_the_sum(planned: Planned) -> None:
    cost = "\n".join(
        _lines(planned(graph=changed(environment(), "trn1-template", instanceType="trn9.x")).stdout, "Cost")
    )
    assert "No price is known for trn9.x; it is not in the total." in cost
    assert "+ ?" in cost


def test_time_to_ready_shows_bound_ratio_and_path(planned: Planned) -> None:
    lines = _lines(planned().stdout, "Time to ready")
    assert lines[1].strip().startswith("15:56 modelled, 1.00 × max(cluster 15:56, file system 8:27) (good: up to 1.05)")
    assert [line.split()[2] for line in lines[3:8]] == ["vpc", "subnet", "control-plane", "cni", "trn1"]
    assert lines[8].strip() == "Order: 12 of 12 rules hold."


def test_a_wrong_edge_is_shown_and_fails(planned: Planned) -> None:
    result = planned(graph=waiting(environment(), "lustre", "control-plane"))
    assert result.exit_code == 1
    assert "✗ The file system does not wait for the cluster\n    lustre waits for control-plane" in result.stdout
    assert result.stdout.rstrip().endswith("✗ dev is not sound: 1 wrong edge")


def test_failed_rules_come_first_by_severity_then_waived_with_reason(planned: Planned, verdicts: list[Verdict]) -> None:
    verdicts += [
        _verdict("R05", "waived", "x", reason="because of this"),
        _verdict("R03", "fail", "is low", severity="low"),
        _verdict("R04", "fail", "is high"),
    ]
    result = planned()
    lines = [line.strip() for line in _lines(result.stdout, "Rules")]
    assert result.exit_code == 1
    assert [line.split()[1] for line in lines if line.startswith(("✗", "~"))] == ["R04", "R03", "R05"]
    assert "0: is high" in lines
    assert any("waived: because of this" in line for line in lines)
    assert lines[-2:] == ["1 pass: R01", "1 do not apply: R02"]
    assert result.stdout.rstrip().endswith("✗ dev is not sound: failed R03 R04")


def test_many_faults_of_one_rule_are_cut_with_their_number(planned: Planned, verdicts: list[Verdict]) -> None:
    verdicts.append(_verdict("R03", "fail", *(f"fault {index}" for index in range(20))))
    text = planned().stdout
    assert "fault 3" in text
    assert "fault 4" not in text
    assert "and 16 more" in text


def test_a_waived_rule_does_not_fail(planned: Planned, verdicts: list[Verdict]) -> None:
    verdicts.append(_verdict("R05", "waived", "x", reason="because"))
    assert planned().exit_code == 0


def test_a_stale_waiver_is_said(planned: Planned) -> None:
    result = planned(graph=environment({"waivers": {"R01": {"reason": "x", "expires": "2027-03-31"}}}))
    assert "R01: waived, but the rule passes; remove the waiver" in result.stdout
    assert result.exit_code == 1
    assert result.stdout.rstrip().endswith("✗ dev is not sound: stale waiver R01")


def test_warnings_of_the_program_are_shown(planned: Planned) -> None:
    assert "Warning: look out" in planned(graph=replace(environment(), warnings=("look out",))).stdout


@pytest.mark.parametrize("arguments", [("--no-color",), ()])
def test_no_color_means_no_escape_codes(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" in planned().stdout
    if not arguments:
        monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in planned(*arguments).stdout


def test_losses_come_first_with_what_goes_with_them(against: Callable[[Graph], str]) -> None:
    after = changed(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"), "sts", policy="{}")
    text = against(after)
    lines = _lines(text, next(line for line in text.splitlines() if line.startswith("Changes since ")))
    losses = [line.strip() for line in lines if line.strip().startswith("!")]
    assert losses == [
        "! LustreFileSystem lustre: to be replaced, but protected: Pulumi refuses; it holds its files",
        "! NodeGroup system: REPLACED; lost with it: what runs on its nodes",
        "! NodeGroup trn1: REPLACED; lost with it: what runs on its nodes",
        "! Subnet subnet: REPLACED; lost with it: everything in it",
    ]
    assert lines.index(f"  {losses[0]}") < next(index for index, line in enumerate(lines) if "VpcEndpoint" in line)
    assert "    cidrBlock: 10.0.0.0/18 → 10.0.64.0/18  replaces it" in lines


def test_a_guard_taken_off_is_a_loss(against: Callable[[Graph], str]) -> None:
    text = against(optioned(environment(), "lustre", Options()))
    assert "! LustreFileSystem lustre: no longer protected" in text


def test_replacements_that_only_follow_are_folded_under_their_cause(against: Callable[[Graph], str]) -> None:
    text = against(changed(environment(), "control-plane", name="other"))
    assert "  ± replaced because k8s is: Queue, Release" in text
    assert "± Queue" not in text


def test_updates_that_only_follow_are_folded_under_their_cause(against: Callable[[Graph], str]) -> None:
    text = against(changed(environment(), "subnet", cidrBlock="10.0.64.0/18"))
    assert "  ~ updated because subnet is replaced: Cluster" in text
    assert "~ Cluster" not in text


def test_a_cluster_that_would_have_to_move_is_said_first(against: Callable[[Graph], str]) -> None:
    lines = " ".join(against(changed(environment(), "vpc", cidrBlock="10.1.0.0/16")).split())
    first, _, rest = lines.partition("! ")[2].partition(" ! ")
    assert first.startswith(
        "Cluster control-plane: cannot be updated: `up` stops there vpcConfig: a new value, from subnet EKS cannot "
        "move a cluster to another VPC: make a new environment, or destroy this one first"
    )
    assert "Vpc vpc: REPLACED" in rest


def _tagged(graph: Graph, *groups: str) -> Graph:
    """With a tag of the whole environment on these groups and what they launch."""
    for group in groups:
        graph = changed(graph, f"{group}-template", tagSpecifications=[{"tags": {"Team": "x"}}], tags={"Team": "x"})
        graph = changed(graph, group, tags={"Team": "x"})
    return graph


def test_a_tag_that_replaces_all_nodes_says_so(against: Callable[[Graph], str]) -> None:
    text = against(_tagged(changed(environment(), "vpc", tags={"Team": "x"}), "system", "trn1"))
    flat = " ".join(text.split())
    assert "  nodes of 2 groups are replaced one after another\n" in text
    for group in ("system", "trn1"):
        assert (
            f"! NodeGroup {group}: its nodes are replaced; what runs on them ends "
            f"launchTemplate.version: a new value, from {group}-template" in flat
        )
    assert "and tags alone on 1 resource" in text


def test_a_resting_group_is_counted_and_no_loss(planned: Planned, tmp_path: Path) -> None:
    resting = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 4})
    saved = tmp_path / "plan.json"
    report.save(report.make(resting), saved)
    text = planned("--against", saved, graph=_tagged(resting, "system", "trn1")).stdout
    assert "  nodes of 2 groups are replaced one after another; 1 of these has no nodes now\n" in text
    assert "! NodeGroup trn1" not in text
    assert "~ NodeGroup  trn1\n" in text
    alone = planned("--against", saved, graph=changed(resting, "trn1-template", userData="bmV3")).stdout
    assert "~ NodeGroup  trn1\n" in alone
    assert "is replaced" not in alone


def test_the_pace_of_a_roll_is_the_groups_own(against: Callable[[Graph], str]) -> None:
    text = against(changed(environment(), "trn1", releaseVersion="x", updateConfig={"maxUnavailable": 3}))
    assert "  nodes of 1 group are replaced 3 at a time\n" in text
    mixed = changed(environment(), "system", releaseVersion="x", updateConfig={"maxUnavailablePercentage": 50})
    text = against(changed(mixed, "trn1", releaseVersion="x"))
    assert "  nodes of 2 groups are replaced in turn\n" in text
    assert "! NodeGroup system: its nodes are replaced" in text


def test_no_roll_is_not_mentioned(against: Callable[[Graph], str]) -> None:
    assert "nodes of" not in against(changed(environment(), "trn1", tags={"Team": "x"}))


def test_tags_are_folded(against: Callable[[Graph], str]) -> None:
    text = against(changed(changed(environment(), "vpc", tags={"a": "b"}), "subnet", tags={"a": "b"}))
    assert "and tags alone on 2 resources" in text
    assert "~ Vpc" not in text


def test_the_cost_difference_names_the_components_that_make_it(against: Callable[[Graph], str]) -> None:
    sizes = {"minSize": 0, "desiredSize": 3, "maxSize": 4}
    text = against(changed(environment(), "trn1", scalingConfig=sizes))
    assert "Cost: +$21.53 an hour, +$15,718 a month; +$0.00 an hour at most" in text
    assert "+$21.53 eks" in text


def test_a_component_that_goes_saves_its_cost(against: Callable[[Graph], str]) -> None:
    assert "-$0.69 fsx" in against(without(environment(), "lustre"))


def test_no_change_is_said(against: Callable[[Graph], str]) -> None:
    text = against(environment())
    assert "  none" in text
    assert "Cost: unchanged" in text


def test_a_comparison_leaves_the_tree_out(against: Callable[[Graph], str]) -> None:
    assert "Resources" not in against(environment())


def test_json_of_a_failing_plan_is_whole_and_fails(planned: Planned, verdicts: list[Verdict]) -> None:
    verdicts.append(_verdict("R03", "fail", "x"))
    result = planned("--json")
    assert result.exit_code == 1
    [rule] = [each for each in json.loads(result.stdout)["rules"] if each["status"] == "fail"]
    assert (rule["id"], rule["findings"][0]["message"]) == ("R03", "x")


def test_a_save_that_fails_halfway_leaves_the_old_file(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "replace", full)
    result = planned("--save", saved)
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert saved.read_text() == "old"
    assert list(tmp_path.glob(".plan*")) == []


@pytest.mark.parametrize("columns", [40, 50, 59, 71, 72, 100])
def test_the_cost_table_keeps_every_amount_however_narrow(
    planned: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = planned("--no-color").stdout
    cost = shown[shown.index("Cost\n") :]
    monkeypatch.setenv("COLUMNS", "140")
    wide = planned("--no-color").stdout
    amounts = re.findall(r"\$[0-9,]+(?:\.[0-9]+)?", wide[wide.index("Cost\n") : wide.index("Time to ready")])
    assert len(amounts) > 9
    assert [amount for amount in amounts if amount not in cost] == []


def test_a_gangs_useful_time_is_a_line_with_what_it_rests_on(planned: Planned) -> None:
    lines = _lines(planned().stdout, "Training")
    assert " ".join(lines[1].split()) == "all nodes at once a fault every save every takes useful $/useful hour"
    assert [line.split()[:3] for line in lines[2:4]] == [["2", "×", "trn1.32xlarge"], ["4", "×", "trn1.32xlarge"]]
    assert re.search(r"131d\d\dh +\dh\d\dm +2m50s +9\d\.\d % +\$4\d\.\d\d", lines[2])
    assert [line.strip() for line in lines[4:]] == [
        "Checkpoints of 100 GB (training.checkpointGigabytes) at 586 MB/s, which the file system writes.",
        "A node fails 1.4 times a year, as in Meta's Llama 3 run on H100; none is published for these.",
    ]


def test_what_is_not_known_of_useful_time_is_said(planned: Planned) -> None:
    graph = changed(environment(), "trn1-template", instanceType="trn9.48xlarge")
    lines = _lines(planned(graph=changed(graph, "trn1", capacityType="SPOT")).stdout, "Training")
    assert lines[2].split()[-1] == "?"
    assert lines[-2].strip() == "Spot interruptions come on top: training.failuresPerNodeYear."
    assert lines[-1].strip() == "No price is known for trn9.48xlarge."


def test_a_rate_of_the_users_own_is_said_to_be(planned: Planned) -> None:
    lines = _lines(planned(graph=environment({"training": {"failuresPerNodeYear": 0}})).stdout, "Training")
    assert lines[2].split()[3] == "never"
    assert lines[-1].strip() == "A node fails 0 times a year, as the config says."


def test_a_plan_without_accelerators_has_no_training(planned: Planned) -> None:
    plan = planned(graph=without(environment(), "trn1"))
    assert "Training" not in plan.stdout.splitlines()
    assert json.loads(planned("--json", graph=without(environment(), "trn1")).stdout)["training"] is None
    assert json.loads(planned("--json").stdout)["training"]["gangs"][0]["nodes"] == 2
