"""The policy pack says of a program what the rules say, from what an engine shows."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.analyzer import pack, proxied, shown, without_a_cluster
from engine.config_changes import Change, every_feature
from engine.rig import Config, Rig
from rule_faults import ONE_A_RULE, Fault, put
from rule_programs import Program, environment

from trainium_eks.plan.graph import UNKNOWN, Graph
from trainium_eks.plan.policy_pack import NotSeenError, plain
from trainium_eks.plan.rules import RULES, Judgement, judge
from trainium_eks.plan.rules._facts import ASSOCIATION

RULE = {rule.id: rule for rule in RULES}


def plain_config(_config: Config) -> None:
    """The repository's own."""


def broken(graph: Graph, *, preview: bool = False) -> Iterator[tuple[str, Judgement]]:
    """Each rule that the pack finds broken, with what breaks it. What it cannot judge is left out."""
    made, resources = pack(graph, preview=preview), shown(graph)
    for rule in RULES:
        with contextlib.suppress(NotSeenError):
            yield from ((rule.id, each) for each in made.broken(rule, resources))


def test_a_sound_program_breaks_no_policy() -> None:
    graph = environment().graph()
    assert list(broken(graph)) == []
    assert pack(graph).stale_waivers(shown(graph)) == ()


@pytest.mark.parametrize("fault", ONE_A_RULE)
def test_a_fault_breaks_the_policy_of_its_rule_and_no_other(fault: Fault) -> None:
    program = environment()
    fault.change(program)
    graph = program.graph()
    [verdict] = [each for each in judge(graph) if each.id == fault.rule]
    if verdict.status == "waived":
        pytest.skip("waived everywhere")
    found = list(broken(graph))
    if fault.beyond_pack:
        assert RULE[fault.rule].beyond_pack
        assert fault.rule in pack(graph).not_judged(shown(graph))
        assert {id_ for id_, _ in found} == fault.also
        return
    assert {id_ for id_, _ in found} - fault.also == {fault.rule}
    assert {each.urn for id_, each in found if id_ == fault.rule} == {each.urn for each in verdict.failures}


def waived(expires: str) -> Program:
    program = environment()
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    program.config["waivers"] = {"R08": {"reason": "shipped elsewhere", "expires": expires}}
    return program


def test_a_waiver_of_the_stacks_config_holds_until_its_last_day() -> None:
    graph = waived("2027-03-31").graph()
    assert pack(graph).broken(RULE["R08"], shown(graph)) == ()
    assert pack(graph).stale_waivers(shown(graph)) == ()
    late = waived("2026-03-31").graph()
    assert pack(late).broken(RULE["R08"], shown(late))
    assert "expired on 2026-03-31" in "".join(pack(late).stale_waivers(shown(late)))


def test_what_a_preview_cannot_know_is_not_reported() -> None:
    program = environment()
    program.put("key-policy", "policy", UNKNOWN)
    graph = program.graph()
    with pytest.raises(NotSeenError, match="known only during the update"):
        pack(graph, preview=True).broken(RULE["R11"], shown(graph))
    assert pack(graph).broken(RULE["R11"], shown(graph)), "an update knows everything"


@pytest.mark.parametrize(
    ("stack", "change"),
    [
        ("dev", plain_config),
        *(pytest.param(stack, every_feature, marks=pytest.mark.slow) for stack in ("dev", "gpu", "prod")),
    ],
)
def test_a_sound_stack_breaks_no_policy(stack: str, change: Change, tmp_path: Path) -> None:
    """In its first preview, and in an update, which knows all values."""
    rig = Rig(tmp_path)
    rig.configure(stack, change)
    built = rig.recorded(stack)
    assert list(broken(without_a_cluster(rig.recorded(stack, dry_run=True)), preview=True)) == []
    assert list(broken(built)) == []
    said = pack(built).not_judged(shown(built))
    linked = {"R39"} if built.of_type(ASSOCIATION) and not built.production else set()
    assert set(re.findall(r"R\d+", said)) == {"R65"} | linked


def test_whether_a_waiver_of_what_a_preview_cannot_know_is_stale_is_said_to_be_open() -> None:
    program = environment()
    program.config["waivers"] = {"R11": {"reason": "ours", "expires": "2027-03-31"}}
    stale = ("R11: waived, but the rule passes; remove the waiver",)
    assert pack(program.graph()).stale_waivers(shown(program.graph())) == stale
    program.put("key-policy", "policy", UNKNOWN)
    graph = program.graph()
    first = pack(graph, preview=True)
    assert first.stale_waivers(shown(graph)) == ()
    assert "R11" in first.not_judged(shown(graph))


def test_what_a_preview_knows_is_reported() -> None:
    program = environment()
    program.put("key-policy", "policy", UNKNOWN)
    put("key-key", "enableKeyRotation", False)(program)
    graph = program.graph()
    [finding] = pack(graph, preview=True).broken(RULE["R11"], shown(graph))
    assert "enableKeyRotation" in finding.message


def test_providers_of_the_engines_own_are_left_out() -> None:
    program = environment()
    program.add("default_4_4_0", "pulumi:providers:eks", {})
    graph = program.graph()
    assert not [each for each in pack(graph).graph(shown(graph)).resources if each.name == "default_4_4_0"]


def test_values_of_the_sdk_become_recorded_ones() -> None:
    assert plain(proxied({"a": [1, 2.5, True, None, UNKNOWN], "b": {"c": "x"}})) == {
        "a": [1, 2.5, True, None, UNKNOWN],
        "b": {"c": "x"},
    }
