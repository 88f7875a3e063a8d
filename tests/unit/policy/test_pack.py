"""The policy pack says of a program what the rules say, from what an engine shows."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rule_faults import FAULTS, Fault, put
from rule_programs import Program, environment

from trainium_eks.graph.graph import UNKNOWN, Graph, Resource
from trainium_eks.graph.judging.policy_pack import NEED_IDS, NOT_SHOWN, NotSeen, Pack, judged_here, plain
from trainium_eks.graph.judging.rules import RULES, judge
from trainium_eks.graph.recording.process import record

ROOT = Path(__file__).resolve().parents[3]
RULE = {rule.id: rule for rule in RULES}
SENTINEL = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SHOWN_FAULTS = [fault for fault in FAULTS if fault.rule not in NOT_SHOWN]


class Unknown(Exception):  # noqa: N818 (as the SDK's)
    """What reading an unknown value raises."""


class Props(Mapping[str, Any]):
    """As the SDK's: an unknown value raises when it is read."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = target

    def __getitem__(self, key: str) -> Any:
        if key == "__target":
            return self._target
        if self._target[key] == SENTINEL:
            raise Unknown(key)
        return self._target[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._target)

    def __len__(self) -> int:
        return len(self._target)


class Items(Sequence[Any]):
    """As the SDK's."""

    def __init__(self, target: list[Any]) -> None:
        self._target = target

    def __getitem__(self, key: Any) -> Any:
        return self._target if key == "__target" else self._target[key]

    def __len__(self) -> int:
        return len(self._target)


def proxied(value: Any) -> Any:
    """A recorded value as the SDK hands it over: numbers are floats, unknowns the engine's words for them."""
    if isinstance(value, dict):
        return Props({key: proxied(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return Items([proxied(each) for each in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return SENTINEL if value == UNKNOWN else value


def shown(graph: Graph) -> list[Any]:
    """What a stack policy sees: outputs, and no inputs."""
    seen = {
        each.urn: SimpleNamespace(
            urn=each.urn,
            resource_type=each.type,
            name=each.name,
            props=proxied(dict(each.outputs or (graph.outputs if not each.parent else {}))),
            opts=SimpleNamespace(
                protect=each.options.protect,
                ignore_changes=list(each.options.ignore_changes),
                additional_secret_outputs=[],
            ),
            provider=SimpleNamespace(urn=each.provider) if each.custom else None,
        )
        for each in graph.resources
    }
    for each in graph.resources:
        one = seen[each.urn]
        one.parent = seen.get(each.parent)
        one.dependencies = [seen[urn] for urn in each.dependencies if urn in seen]
        one.property_dependencies = {
            name: [seen[urn] for urn in urns if urn in seen] for name, urns in each.property_dependencies.items()
        }
    return list(seen.values())


def pack(graph: Graph, *, preview: bool = False) -> Pack:
    config = {f"{graph.project}:{key}": json.dumps(value) for key, value in graph.config.items()}
    made = Pack(graph.project, graph.stack, config, preview)
    for each in graph.resources:
        made.remember(each.urn, proxied(dict(each.inputs)))
    return made


def test_a_sound_program_breaks_no_policy() -> None:
    graph = environment().graph()
    made, resources = pack(graph), shown(graph)
    assert {rule.id for rule in judged_here() if made.broken(rule, resources)} == set()
    assert made.stale_waivers(resources) == ()


@pytest.mark.parametrize("fault", SHOWN_FAULTS, ids=lambda fault: f"{fault.rule} {fault.label}")
def test_a_fault_breaks_the_policy_of_its_rule(fault: Fault) -> None:
    program = environment()
    fault.change(program)
    graph = program.graph()
    [verdict] = [each for each in judge(graph) if each.id == fault.rule]
    if verdict.status == "waived":
        pytest.skip("waived everywhere")
    found = pack(graph).broken(RULE[fault.rule], shown(graph))
    assert {(each.urn, each.message) for each in found} == {(each.urn, each.message) for each in verdict.failures}


def waived(expires: str) -> Program:
    program = environment()
    program.put("flow-logs", "retentionInDays", 30)
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
    with pytest.raises(NotSeen, match="known only during the update"):
        pack(graph, preview=True).broken(RULE["R11"], shown(graph))
    assert pack(graph).broken(RULE["R11"], shown(graph)), "an update knows everything"


def without_a_cluster(graph: Graph) -> Graph:
    """As an engine's first preview has it: the Kubernetes provider waits for its cluster, so objects answer nothing,
    and what other inputs have of their names is unknown."""
    named = {each.urn: each.inputs["metadata"].get("name") for each in graph.resources if "metadata" in each.inputs}

    def one(resource: Resource) -> Resource:
        inputs = {
            key: forgotten(value, {named[urn] for urn in resource.property_dependencies.get(key, ()) if urn in named})
            for key, value in resource.inputs.items()
        }
        return replace(resource, inputs=inputs)

    return replace(graph, resources=tuple(map(one, graph.resources)))


def forgotten(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: forgotten(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [forgotten(each, names) for each in value]
    return UNKNOWN if value in names else value


def test_a_first_preview_of_prod_breaks_no_policy() -> None:
    """A rule that follows ids or names must be in NEED_IDS: else every first preview under the pack fails by it."""
    graph = without_a_cluster(record(ROOT, "prod", dry_run=True))
    seen, resources = pack(graph, preview=True), shown(graph)
    broken = set()
    for rule in judged_here():
        with contextlib.suppress(NotSeen):
            broken |= {rule.id for _ in seen.broken(rule, resources)}
    assert broken == set()


def test_what_a_preview_knows_is_reported() -> None:
    program = environment()
    program.put("key-policy", "policy", UNKNOWN)
    put("key", "enableKeyRotation", False)(program)
    graph = program.graph()
    [finding] = pack(graph, preview=True).broken(RULE["R11"], shown(graph))
    assert "enableKeyRotation" in finding.message


def test_providers_of_the_engines_own_are_left_out() -> None:
    program = environment()
    program.add("default_4_4_0", "pulumi:providers:eks", {})
    graph = program.graph()
    assert not [each for each in pack(graph).graph(shown(graph)).resources if each.name == "default_4_4_0"]


def test_every_rule_is_a_policy_or_said_not_to_be() -> None:
    assert {rule.id for rule in judged_here()} | set(NOT_SHOWN) == set(RULE)
    assert set(RULE) >= NEED_IDS
    assert all(NOT_SHOWN.values())


def test_values_of_the_sdk_become_recorded_ones() -> None:
    assert plain(proxied({"a": [1, 2.5, True, None, UNKNOWN], "b": {"c": "x"}})) == {
        "a": [1, 2.5, True, None, UNKNOWN],
        "b": {"c": "x"},
    }
