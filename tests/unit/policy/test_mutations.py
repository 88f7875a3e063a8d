"""Whether rules notice what weakens an environment: 300 seeded mutations of the three recorded programs."""

from functools import cache

import pytest
from golden import recorded
from security_mutations import KINDS, sample

from trainium_eks.plan.rules import judge

pytestmark = pytest.mark.slow

ENVIRONMENTS = ("dev", "prod", "gpu")
COUNT = 100
"""Mutations of each environment. There are about 130 kinds, and about 1,000 places."""


@cache
def mutations(stack):
    return tuple(sample(recorded(stack), COUNT, seed=len(stack) + ord(stack[0])))


def faults(graph):
    """What rules say. The environment's waivers do not count, the library's own do."""
    return {
        (verdict.id, finding.subject, finding.text)
        for verdict in judge(graph, {})
        if verdict.status == "fail"
        for finding in verdict.failures
    }


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_every_mutation_is_noticed(stack):
    before = recorded(stack)
    known = faults(before)
    assert all(each.graph.resources != before.resources for each in mutations(stack))
    assert [each.title for each in mutations(stack) if faults(each.graph) <= known] == []


def test_every_kind_of_mutation_is_tried():
    tried = [each for stack in ENVIRONMENTS for each in mutations(stack)]
    assert len(tried) >= 300
    assert {kind.name for kind in KINDS} == {each.kind for each in tried}
