"""How much of what weakens an environment the rules notice: 300 seeded mutations of the three recorded programs."""

from collections.abc import Mapping
from functools import cache

import pytest
from recordings import recorded
from security_mutations import KINDS, Mutation, sample

from trainium_eks.plan.graph import Graph
from trainium_eks.plan.rules import judge

pytestmark = pytest.mark.slow

ENVIRONMENTS = ("dev", "prod", "gpu")
COUNT = 100
"""Mutations of each environment. There are about 130 kinds, and about 1,000 places."""
LEAST_SHARE = 0.95

MISSED: Mapping[str, str] = {}
"""Kinds of which the rules miss some places, each with why."""


@cache
def mutations(stack: str) -> tuple[Mutation, ...]:
    return tuple(sample(recorded(stack), COUNT, seed=len(stack) + ord(stack[0])))


@cache
def missed(stack: str) -> tuple[Mutation, ...]:
    """Those after which no rule says anything new. The environment's waivers do not count, the library's own do."""
    before = faults(recorded(stack))
    return tuple(each for each in mutations(stack) if faults(each.graph) <= before)


def faults(graph: Graph) -> set[tuple[str, str, str]]:
    return {
        (verdict.id, finding.urn, finding.message)
        for verdict in judge(graph, {})
        if verdict.status == "fail"
        for finding in verdict.failures
    }


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_what_is_missed_has_a_reason(stack: str) -> None:
    assert [each.title for each in missed(stack) if each.kind not in MISSED] == []


def test_enough_is_caught() -> None:
    tried = sum(len(mutations(stack)) for stack in ENVIRONMENTS)
    left = sum(len(missed(stack)) for stack in ENVIRONMENTS)
    assert tried >= 300
    assert (tried - left) / tried >= LEAST_SHARE, f"{tried - left} of {tried}"


def test_every_reason_is_still_needed() -> None:
    """At every place of one environment: the sample may have none that is missed."""
    graph = recorded("dev")
    for kind in (each for each in KINDS if each.name in MISSED):
        assert any(faults(kind.at(graph, urn).graph) <= faults(graph) for urn in kind.places(graph)), kind.name


def test_every_kind_of_mutation_has_a_place() -> None:
    tried = {each.kind for stack in ENVIRONMENTS for each in mutations(stack)}
    assert {kind.name for kind in KINDS} == tried


def test_mutations_change_the_program() -> None:
    for stack in ENVIRONMENTS:
        assert all(each.graph.resources != recorded(stack).resources for each in mutations(stack))
